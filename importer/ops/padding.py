"""Pad: constants around a tensor, or its own elements repeated by an index map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.graph import Value
from ...plan.dims import Dim, index_symbol, maximum, minimum
from ..context import NodeBuilder
from ..registry import onnx_op

_MODES = ("constant", "reflect", "edge")


@onnx_op("Pad", 2, only={"mode": _MODES})
def pad_2(b: NodeBuilder, x: Value, *, mode: str, pads: Sequence[int], value: float) -> Value:
    rank = x.type.rank
    return _pad(b, x, list(pads[:rank]), list(pads[rank:]), mode, b.scalar(value, x.dtype))


@onnx_op("Pad", 11, 13, only={"mode": _MODES})
def pad_11(b: NodeBuilder, x: Value, pads: Value, value: Value | None = None, *, mode: str) -> Value:
    return pad(b, x, pads, value, None, mode=mode)


@onnx_op("Pad", 18, 19, 21, 23, 24, 25, only={"mode": (*_MODES, "wrap")})
def pad(
    b: NodeBuilder, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None, *, mode: str
) -> Value:
    amounts = b.ints(pads, "the pads")
    where = list(range(x.type.rank)) if axes is None else b.axes(b.ints(axes, "the axes"), x.type.rank)
    if len(amounts) != 2 * len(where):
        b.invalid(f"{len(amounts)} pads for {len(where)} axes, which need {2 * len(where)}")
    before, after = [0] * x.type.rank, [0] * x.type.rank
    for k, axis in enumerate(where):
        before[axis], after[axis] = amounts[k], amounts[k + len(where)]
    return _pad(b, x, before, after, mode, value)


def _pad(b: NodeBuilder, x: Value, before: list[Dim], after: list[Dim], mode: str, value: Value | None) -> Value:
    if mode != "constant":
        return _from_inside(b, x, before, after, mode)
    known = np.zeros(()) if value is None else b.known(value)
    if known is not None and known.dtype != object:
        return b.pad(x, before, after, known.reshape(-1)[0].item())
    inside = b.pad(b.expand(b.constant(np.array(True)), x.shape), before, after, False)
    return b.b("where", inside, b.pad(x, before, after, 0), b.reshape(value, ()))


def _from_inside(b: NodeBuilder, x: Value, before: list[Dim], after: list[Dim], mode: str) -> Value:
    """Each element of the result is one of the operand: `mode` says which."""
    rule = {"edge": _edge, "reflect": _reflected, "wrap": _wrapped}[mode]
    shape = [first + extent + last for first, extent, last in zip(before, x.shape, after, strict=True)]
    index = []
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        place = index_symbol(axis) - first
        plain = type(first) is int and type(last) is int and first <= 0 and last <= 0
        index.append(place if plain else rule(place, x.shape[axis]))
    return b.indexed(x, shape, index)


def _edge(place: Dim, extent: Dim) -> Dim:
    return minimum(maximum(place, 0), extent - 1)


def _reflected(place: Dim, extent: Dim) -> Dim:
    """Mirrored at the first and the last element, which are not repeated."""
    from_start = maximum(place, -place)
    from_end = extent - 1 - from_start
    return extent - 1 - maximum(from_end, -from_end)


def _wrapped(place: Dim, extent: Dim) -> Dim:
    return place % extent


@onnx_op("CenterCropPad", 18)
def center_crop_pad(b: NodeBuilder, x: Value, shape: Value, *, axes: Sequence[int] | None = None) -> Value:
    """Crop or pad each axis to the wanted extent, as evenly as goes; the odd element is at the end."""
    wanted = b.ints(shape, "the shape")
    where = list(range(x.type.rank)) if axes is None else b.axes(axes, x.type.rank)
    before, after = [0] * x.type.rank, [0] * x.type.rank
    for axis, size in zip(where, wanted, strict=True):
        missing = b.simplify(size - x.shape[axis])
        if type(missing) is not int:
            b.fail(f"it is not known whether axis {axis} of extent {x.shape[axis]} is cropped or padded to {size}")
        before[axis] = missing // 2 if missing > 0 else -(-missing // 2)
        after[axis] = missing - before[axis]
    return b.pad(x, before, after, 0)
