"""What a view means on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .dims import Dim, evaluate, linear_terms
from .errors import InvalidInput, LuminalError

if TYPE_CHECKING:
    from .view import View

_PADDING_LIMIT = 4  # padded copies larger than this many times operand and result together are not worth it

Linear = tuple[int, tuple[int, ...]]  # base, stride per output axis


def apply_view(view: View, array: np.ndarray, env: Mapping[str, int]) -> np.ndarray:
    """Return what the view reads from array; strided memory of array (or of a padded copy) where the map allows."""
    in_shape = tuple(evaluate(extent, env) for extent in view.in_shape)
    out_shape = tuple(evaluate(extent, env) for extent in view.out_shape)
    if array.shape != in_shape:
        raise InvalidInput(f"a view of shape {list(in_shape)} was given an array of shape {list(array.shape)}: {view}")
    if 0 in out_shape:
        return np.empty(out_shape, array.dtype)
    if array.size == 0 and not view.is_total:
        return np.full(out_shape, view.fill, array.dtype)
    try:
        with np.errstate(divide="raise"):
            return _apply(view, array, env, out_shape)
    except (ZeroDivisionError, FloatingPointError):
        # A zero divisor is the extent of an empty shape that the view passes through: no point gets to the operand.
        if view.is_total:
            raise
        return np.full(out_shape, view.fill, array.dtype)


def _apply(view: View, array: np.ndarray, env: Mapping[str, int], out_shape: tuple[int, ...]) -> np.ndarray:
    maps = [_linear(expr, len(out_shape), env) for expr in view.index]
    if all(found is not None for found in maps):
        strided = _apply_strided(view, array, env, maps, out_shape)
        if strided is not None:
            return strided
    return _apply_gathered(view, array, env, out_shape)


def _linear(expr: Dim, rank: int, env: Mapping[str, int]) -> Linear | None:
    parts = linear_terms(expr, range(rank))
    if parts is None:
        return None
    base, strides = parts
    return evaluate(base, env), tuple(evaluate(strides[axis], env) for axis in range(rank))


def _span(found: Linear, shape: Sequence[int]) -> tuple[int, int]:
    """Return the least and the greatest value over all points of the shape."""
    base, strides = found
    reach = [stride * (extent - 1) for stride, extent in zip(strides, shape, strict=True)]
    return base + sum(min(step, 0) for step in reach), base + sum(max(step, 0) for step in reach)


def _apply_strided(
    view: View, array: np.ndarray, env: Mapping[str, int], maps: list[Linear], out_shape: tuple[int, ...]
) -> np.ndarray | None:
    """Read through strides. With bounds this works when they say just "inside the operand": then a copy is padded."""
    spans = [_span(found, out_shape) for found in maps]
    before = [max(-low, 0) for low, _ in spans]
    after = [max(high + 1 - extent, 0) for (_, high), extent in zip(spans, array.shape, strict=True)]
    outside = {axis for axis in range(array.ndim) if before[axis] or after[axis]}
    if view.is_total and outside:
        raise LuminalError(f"the view reads outside its operand at {dict(env)}: {view}")
    if outside or not view.is_total:
        covered = _covered_axes(view, env, maps, array.shape, out_shape)
        if covered is None or not outside <= covered:
            return None
    if outside:
        shape = tuple(a + extent + b for a, extent, b in zip(before, array.shape, after, strict=True))
        if np.prod(shape, dtype=float) > _PADDING_LIMIT * (array.size + np.prod(out_shape, dtype=float)):
            return None
        padded = np.full(shape, view.fill, array.dtype)
        padded[tuple(slice(a, a + extent) for a, extent in zip(before, array.shape, strict=True))] = array
        array = padded
        maps = [(base + a, strides) for (base, strides), a in zip(maps, before, strict=True)]
    first = tuple(slice(base, None) for base, _ in maps)
    steps = tuple(
        sum(strides[axis] * size for (_, strides), size in zip(maps, array.strides, strict=True))
        for axis in range(len(out_shape))
    )
    return as_strided(array[first], out_shape, steps, writeable=False)


def _covered_axes(
    view: View, env: Mapping[str, int], maps: list[Linear], in_shape: tuple[int, ...], out_shape: tuple[int, ...]
) -> set[int] | None:
    """Return the input axes whose range check is among the bounds; None if a bound says anything else."""
    checks = {}
    for axis, ((base, strides), extent) in enumerate(zip(maps, in_shape, strict=True)):
        negated = tuple(-stride for stride in strides)
        checks[(strides, -base, extent - base)] = axis
        checks[(negated, 1 + base - extent, 1 + base)] = axis
    covered = set()
    for bound in view.valid:
        found = _linear(bound.expr, len(out_shape), env)
        if found is None:
            return None
        low, high = evaluate(bound.low, env) - found[0], evaluate(bound.high, env) - found[0]
        axis = checks.get((found[1], low, high))
        if axis is not None:
            covered.add(axis)
            continue
        least, greatest = _span((0, found[1]), out_shape)
        if least < low or greatest >= high:
            return None
    return covered


def _apply_gathered(
    view: View, array: np.ndarray, env: Mapping[str, int], out_shape: tuple[int, ...]
) -> np.ndarray:
    points = np.ogrid[tuple(slice(0, extent) for extent in out_shape)] if out_shape else []
    index = [np.asarray(evaluate(expr, env, points)) for expr in view.index]
    if view.is_total:
        for places, extent in zip(index, array.shape, strict=True):
            if places.min() < 0 or places.max() >= extent:
                raise LuminalError(f"the view reads outside its operand at {dict(env)}: {view}")
        return np.broadcast_to(array[tuple(index)], out_shape)
    inside = np.ones((1,) * len(out_shape), bool)
    for bound in view.valid:
        value = evaluate(bound.expr, env, points)
        inside = inside & (value >= evaluate(bound.low, env)) & (value < evaluate(bound.high, env))
    index = [np.clip(places, 0, extent - 1) for places, extent in zip(index, array.shape, strict=True)]
    return np.where(inside, np.broadcast_to(array[tuple(index)], out_shape), np.array(view.fill, array.dtype))
