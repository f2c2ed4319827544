"""Feeds for checking a model: right names, dtypes and shapes, and values that make sense for the graph.

Floats are standard normal. Integers that index a table stay inside it; other integers are 0 or 1, as masks are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np

from luminal_onnx.plan.dims import evaluate, symbols
from luminal_onnx.plan.errors import InvalidInput
from luminal_onnx.plan.signature import InputPort

if TYPE_CHECKING:
    import onnx

ValueRange = tuple[float, float]
# Operators through which an index reaches the table it points into.
_PASS_THROUGH = {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Slice", "Expand"}


def index_ranges(model: onnx.ModelProto) -> dict[str, ValueRange]:
    """Return for each integer input that indexes a constant table the range of valid indices, inclusive."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    consumers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)

    def limit(name: str, depth: int) -> int | None:
        found: list[int] = []
        for node in consumers.get(name, ()) if depth < 8 else ():
            if node.op_type == "Gather" and len(node.input) > 1 and node.input[1] == name and node.input[0] in shapes:
                axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
                found.append(shapes[node.input[0]][axis])
            elif node.op_type in _PASS_THROUGH and node.input[0] == name:
                inner = limit(node.output[0], depth + 1)
                found += [] if inner is None else [inner]
        return min(found, default=None)

    limits = {value.name: limit(value.name, 0) for value in model.graph.input if value.name not in shapes}
    return {name: (0, size - 1) for name, size in limits.items() if size is not None}


def sample_feeds(
    ports: Sequence[InputPort], dims: Mapping[str, int], ranges: Mapping[str, ValueRange], seed: int
) -> dict[str, np.ndarray]:
    """Return seeded feeds for `ports` at `dims`. `ranges` bounds the values of an input, inclusive for integers."""
    generator = np.random.default_rng(seed)
    feeds = {}
    for port in ports:
        shape = tuple(int(evaluate(dim, dims)) for dim in port.shape)
        if port.dtype.kind == "b":
            array = generator.random(shape) < 0.5
        elif port.dtype.is_integer:
            low, high = _integer_range(port, ranges.get(port.name, (0, 1)))
            array = generator.integers(low, high, shape, endpoint=True)
        elif port.name in ranges:
            array = generator.uniform(*ranges[port.name], shape)
        else:
            array = generator.standard_normal(shape)
        feeds[port.name] = np.asarray(array).astype(port.dtype.numpy)
    return feeds


def _integer_range(port: InputPort, wanted: ValueRange) -> tuple[int, int]:
    low, high = ceil(wanted[0]), floor(wanted[1])
    least, most = int(np.iinfo(port.dtype.numpy).min), min(int(np.iinfo(port.dtype.numpy).max), 2**63 - 1)
    if not least <= low <= high <= most:
        raise InvalidInput(
            f"values of input {port.name!r} should lie in [{wanted[0]:g}, {wanted[1]:g}], "
            f"where its type {port.dtype} has no integer or not all of them; it holds {least}..{most}"
        )
    return low, high


def free_symbols(ports: Sequence[InputPort]) -> list[str]:
    """Names of the symbolic dims of `ports`, in order of appearance."""
    names: dict[str, None] = {}
    for port in ports:
        for dim in port.shape:
            names.update(dict.fromkeys(sorted(symbols(dim))))
    return list(names)
