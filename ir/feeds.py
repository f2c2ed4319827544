"""Feeds of a graph: checks names, dtypes and ranks, and finds the value of every symbolic dim from the shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..plan.dims import Dim, evaluate, symbol, symbols
from ..plan.dtypes import from_numpy
from ..plan.errors import InvalidInput
from ..plan.solving import solve
from .graph import Graph, TensorType

Feeds = Mapping[str, np.ndarray] | Sequence[np.ndarray]


def bind_feeds(
    graph: Graph, feeds: Feeds, dims: Mapping[str, int] | None = None
) -> tuple[list[np.ndarray], dict[str, int]]:
    """Return the fed arrays in signature order and the value of each dim symbol.

    `dims` gives values that no shape shows. InvalidInput names the input, the axis, what was expected and what was fed.
    """
    arrays = _in_order(graph, feeds)
    env: dict[str, int] = dict(dims or {})
    for name, value, array in zip(graph.input_names, graph.inputs, arrays, strict=True):
        _check_type(name, value.type, array)
        for axis, extent in enumerate(value.shape):
            names = symbols(extent)
            if len(names) == 1 and extent == symbol(*names):
                _check_extent(env.setdefault(*names, array.shape[axis]), name, value.type, axis, array)
    for value, array in zip(graph.inputs, arrays, strict=True):
        for extent, size in zip(value.shape, array.shape, strict=True):
            solved = solve(extent, size)
            if solved is not None:
                env.setdefault(*solved)
    for name, value, array in zip(graph.input_names, graph.inputs, arrays, strict=True):
        for axis, extent in enumerate(value.shape):
            unknown = symbols(extent) - env.keys()
            if unknown:
                raise InvalidInput(f"input {name!r} axis {axis}: the dim {', '.join(unknown)} of {extent} is not known")
            _check_extent(evaluate(extent, env), name, value.type, axis, array)
    for dim, size in env.items():
        limits = graph.ranges.get(dim)
        if limits is not None and not limits.min <= size <= limits.max:
            raise InvalidInput(f"the dim {dim!r} is {size}, outside its range {limits.min}..{limits.max}")
    return arrays, env


def bind_size(name: str, least: Dim, most: Dim, number: int, dims: Mapping[str, int]) -> int:
    """Return the number that a size has in this run; InvalidInput if it is outside of its bounds."""
    low, high = int(evaluate(least, dims)), int(evaluate(most, dims))
    if not low <= number <= high:
        raise InvalidInput(f"the size {name!r}, which data decides, is {number}, outside of {low}..{high}")
    return number


def _in_order(graph: Graph, feeds: Feeds) -> list[np.ndarray]:
    names = graph.input_names
    if not isinstance(feeds, Mapping):
        if len(feeds) != len(names):
            raise InvalidInput(f"the graph has {len(names)} inputs ({', '.join(names)}), {len(feeds)} arrays were fed")
        return [np.asarray(array) for array in feeds]
    missing = [name for name in names if name not in feeds]
    unknown = [name for name in feeds if name not in names]
    if missing or unknown:
        raise InvalidInput(
            f"the graph's inputs are {', '.join(names) or 'none'}; not fed: {', '.join(missing) or 'none'}; "
            f"fed but unknown: {', '.join(unknown) or 'none'}"
        )
    return [np.asarray(feeds[name]) for name in names]


def _check_type(name: str, type: TensorType, array: np.ndarray) -> None:
    try:
        dtype = from_numpy(array.dtype)
    except KeyError:
        raise InvalidInput(f"input {name!r} is {type}; an array of NumPy dtype {array.dtype} was fed") from None
    if dtype is not type.dtype:
        raise InvalidInput(f"input {name!r} is {type}; an array of {dtype} was fed")
    if array.ndim != type.rank:
        raise InvalidInput(f"input {name!r} is {type}; an array of shape {list(array.shape)} was fed")


def _check_extent(expected: int, name: str, type: TensorType, axis: int, array: np.ndarray) -> None:
    if array.shape[axis] != expected:
        raise InvalidInput(
            f"input {name!r} axis {axis} ({type.shape[axis]}) must be {expected}, got {array.shape[axis]} "
            f"in an array of shape {list(array.shape)}"
        )
