"""What the texts of command line options mean. Every `parse_` function raises InvalidInput that shows the expected form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from luminal_onnx.plan.errors import InvalidInput

DimSpec = int | str | tuple[int, ...]


def parse_dims(items: Iterable[str]) -> dict[str, DimSpec]:
    """Parse `batch=8`, `batch=1:32`, `batch=1:8:32` and expressions such as `H=32*h`, also several joined by commas."""
    dims: dict[str, DimSpec] = {}
    for item in _split(items):
        name, separator, sizes = item.partition("=")
        if separator and name and ":" not in sizes and any(character.isalpha() for character in sizes):
            dims[name] = sizes
            continue
        numbers = sizes.split(":")
        if not separator or not name or len(numbers) > 3 or not all(_is_size(number) for number in numbers):
            raise InvalidInput(f"--dim {item!r} is not NAME=SIZE, NAME=MIN:MAX or NAME=MIN:OPT:MAX")
        values = tuple(map(int, numbers))
        if list(values) != sorted(values):
            raise InvalidInput(f"--dim {item!r}: sizes must not fall from min to opt to max")
        dims[name] = values[0] if len(values) == 1 else values
    return dims


def parse_sizes(items: Iterable[str]) -> dict[str, int]:
    """Parse `batch=8`, where a run needs one size."""
    sizes: dict[str, int] = {}
    for item in _split(items):
        name, separator, size = item.partition("=")
        if not separator or not name or not _is_size(size):
            raise InvalidInput(f"--dim {item!r} is not NAME=SIZE")
        sizes[name] = int(size)
    return sizes


def parse_shapes(items: Iterable[str]) -> dict[str, list[int]]:
    """Parse trtexec's `name:1x3x224x224,other:scalar`."""
    shapes: dict[str, list[int]] = {}
    for item in _split(items):
        name, separator, text = item.rpartition(":")
        sizes = [] if text == "scalar" else text.split("x")
        if not separator or not name or not all(_is_size(size) for size in sizes):
            raise InvalidInput(f"--shapes {item!r} is not NAME:1x3x224x224 or NAME:scalar")
        shapes[name] = [int(size) for size in sizes]
    return shapes


def parse_arches(items: Iterable[str]) -> list[str]:
    """Parse `sm_80,sm_90`, each once."""
    return list(dict.fromkeys(_split(items)))


def parse_ranges(items: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Parse Polygraphy's `name:[lo,hi]`."""
    ranges = {}
    for item in items:
        name, _, text = item.rpartition(":")
        try:
            low, high = (float(number) for number in text.strip("[]()").split(","))
        except ValueError:
            low = high = math.nan
        if not name or not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise InvalidInput(f"--val-range {item!r} is not NAME:[LO,HI] with LO <= HI")
        ranges[name] = (low, high)
    return ranges


def _split(items: Iterable[str]) -> Iterator[str]:
    return (part.strip() for text in items for part in text.split(","))


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdigit()
