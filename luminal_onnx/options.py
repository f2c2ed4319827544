"""What the texts of command line options mean. Every `parse_` function raises InvalidInput that shows the expected form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from luminal_onnx.plan.errors import InvalidInput

Shape = list[int]
DimSpec = int | str | tuple[int, ...] | list[int | tuple[int, ...]]


def parse_dims(items: Iterable[str]) -> dict[str, DimSpec]:
    """Parse `batch=8`, `batch=1:32`, `batch=1:8:32` and expressions such as `H=32*h`, also several joined by commas.

    What follows a comma without a name is a further bucket of the dim before: `batch=1,2:8:32`.
    """
    dims: dict[str, DimSpec] = {}
    for text in items:
        parts: dict[str, list[str]] = {}
        for item in (piece.strip() for piece in text.split(",")):
            name, separator, sizes = item.partition("=")
            if separator and name:
                parts[name] = [sizes]
            elif parts and not separator:
                parts[next(reversed(parts))].append(item)
            else:
                raise InvalidInput(f"--dim {item!r} is not NAME=SIZE, NAME=MIN:MAX or NAME=MIN:OPT:MAX")
        for name, ranges in parts.items():
            found = [_dim(name, sizes, alone=len(ranges) == 1) for sizes in ranges]
            dims[name] = found if len(found) > 1 else found[0]
    return dims


def _dim(name: str, sizes: str, alone: bool) -> int | str | tuple[int, ...]:
    if alone and ":" not in sizes and any(character.isalpha() for character in sizes):
        return sizes
    numbers = sizes.split(":")
    if len(numbers) > 3 or not all(_is_size(number) for number in numbers):
        raise InvalidInput(f"--dim {f'{name}={sizes}'!r} is not NAME=SIZE, NAME=MIN:MAX or NAME=MIN:OPT:MAX")
    values = tuple(map(int, numbers))
    if list(values) != sorted(values):
        raise InvalidInput(f"--dim {f'{name}={sizes}'!r}: sizes must not fall from min to opt to max")
    return values[0] if len(values) == 1 else values


def parse_sizes(items: Iterable[str]) -> dict[str, int]:
    """Parse `batch=8`, where a run needs one size."""
    sizes: dict[str, int] = {}
    for item in _split(items):
        name, separator, size = item.partition("=")
        if not separator or not name or not _is_size(size):
            raise InvalidInput(f"--dim {item!r} is not NAME=SIZE")
        sizes[name] = int(size)
    return sizes


def parse_shapes(items: Iterable[str], option: str = "--shapes") -> dict[str, Shape]:
    """Parse trtexec's `name:1x3x224x224,other:scalar`; a name may stand in single quotes."""
    shapes: dict[str, Shape] = {}
    for item in _split(items):
        name, separator, text = item.rpartition(":")
        name = name[1:-1] if len(name) > 2 and name[0] == name[-1] == "'" else name
        sizes = [] if text == "scalar" else text.split("x")
        if not separator or not name or not all(_is_size(size) for size in sizes):
            raise InvalidInput(f"{option} {item!r} is not NAME:1x3x224x224 or NAME:scalar")
        shapes[name] = [int(size) for size in sizes]
    return shapes


def parse_profiles(
    least: Sequence[str], usual: Sequence[str], most: Sequence[str], numbers: Sequence[int] = ()
) -> list[dict[str, tuple[Shape, Shape, Shape]]]:
    """Parse trtexec's `--minShapes`, `--optShapes` and `--maxShapes`: the first of each make the first profile, and so on.

    As there, only `--optShapes` fixes the shapes, and each profile needs all three otherwise.
    """
    if usual and not least and not most:
        least = most = usual
    if not len(least) == len(usual) == len(most):
        raise InvalidInput(
            f"--minShapes, --optShapes and --maxShapes were given {len(least)}, {len(usual)} and {len(most)} times: every "
            "profile needs all three, each naming all its inputs; --optShapes alone fixes shapes"
        )
    if numbers and list(numbers) != list(range(len(usual))):
        raise InvalidInput(
            f"--profile was given as {', '.join(map(str, numbers))}: number the {len(usual)} profiles from 0, each in front "
            "of its --minShapes, --optShapes and --maxShapes"
        )
    profiles = []
    for number, texts in enumerate(zip(least, usual, most)):
        options = ("--minShapes", "--optShapes", "--maxShapes")
        low, opt, high = (parse_shapes([text], option) for text, option in zip(texts, options))
        for name in {**low, **opt, **high}:
            missing = [option for option, shapes in zip(options, (low, opt, high)) if name not in shapes]
            if missing:
                raise InvalidInput(f"profile {number} lacks input {name!r} in {' and '.join(missing)}")
        profiles.append({name: (low[name], opt[name], high[name]) for name in low})
    return profiles


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
