"""Gathering and scattering by index tensors. A negative index counts from the end."""

from __future__ import annotations

import numpy as np

from ...ir.builder import row_major_strides
from ...ir.graph import Value
from ...plan.dims import Dim, index_symbol, product
from ...plan.dtypes import int64
from ..context import NodeBuilder
from ..registry import onnx_op
from ..selection import places_of

Shape = tuple[Dim, ...]


@onnx_op("Gather", 1, 11, 13)
def gather(b: NodeBuilder, data: Value, index: Value, *, axis: int) -> Value:
    which = b.axis(axis, data.type.rank)
    known = b.known(index)
    if known is None or known.size != 1:
        return b.take(data, index, which)
    row = b.slice_axis(data, which, _place(b, b.integer(index, "the index"), data, which), 1)
    return b.reshape(row, (*data.shape[:which], *index.shape, *data.shape[which + 1 :]))


def _place(b: NodeBuilder, place: Dim, data: Value, axis: int) -> Dim:
    """Return a known index counted from the front."""
    extent = data.shape[axis]
    why = f"the index {place} counts from the end where it is negative"
    from_front = b.holds(place, why)
    if from_front is None:
        b.fail(f"it is not known whether the index {place} is negative, that is counted from the end")
    if not from_front:
        place = place + extent
    if type(place) is int and type(extent) is int and not 0 <= place < extent:
        b.invalid(f"the index {place} is outside axis {axis} of {data.type}")
    if b.has_data_sizes(extent):
        b.at_least(place, 0)
        b.at_least(extent - place, 1)
    return place


def counted_from_front(b: NodeBuilder, index: Value, extent: Dim) -> Value:
    """Return int64 indices in which negative ones, which count from the end, count from the front."""
    wide = b.cast(index, int64)
    if index.dtype.kind == "u":
        return wide
    return b.b("where", b.b("less", wide, 0), b.b("add", wide, b.dim_value(extent)), wide)


@onnx_op("GatherElements", 11, 13)
def gather_elements(b: NodeBuilder, data: Value, index: Value, *, axis: int) -> Value:
    return b.gather_elements(data, index, b.axis(axis, data.type.rank))


@onnx_op("GatherND", 11)
def gather_nd_11(b: NodeBuilder, data: Value, index: Value) -> Value:
    return gather_nd(b, data, index, batch_dims=0)


@onnx_op("GatherND", 12, 13)
def gather_nd(b: NodeBuilder, data: Value, index: Value, *, batch_dims: int) -> Value:
    """The last axis of the index holds the place along the first axes of the data, after `batch_dims` shared ones."""
    inner = batch_dims + _index_depth(b, index)
    tensor, start, strides = b.strided(data)
    where = _first_elements(b, data.shape, start, strides, index, batch_dims)
    return b.gather_flat(tensor, _with_inner(b, where, data.shape[inner:], strides[inner:]))


def _index_depth(b: NodeBuilder, index: Value) -> int:
    depth = index.shape[-1]
    if type(depth) is not int:
        b.fail(f"the last extent of the index, {depth}, must be a number")
    return depth


def _first_elements(
    b: NodeBuilder, shape: Shape, start: Dim, strides: Shape, index: Value, batch_dims: int
) -> Value:
    """Return for each row of the index the number of the first element that it means, in a tensor of these strides."""
    for axis in range(batch_dims):
        start = start + strides[axis] * index_symbol(axis)
    total = b.iota(index.shape[:-1], start)
    for position in range(_index_depth(b, index)):
        axis = batch_dims + position
        column = b.squeeze(b.slice_axis(index, -1, position, 1), [-1])
        place = counted_from_front(b, column, shape[axis])
        total = b.b("add", total, b.b("mul", place, b.dim_value(strides[axis])))
    return total


def _with_inner(b: NodeBuilder, first: Value, inner: Shape, strides: Shape) -> Value:
    """Add the places inside a slice of shape `inner` to each first element."""
    if not inner:
        return first
    rank = first.type.rank
    offsets = b.iota(inner, sum((index_symbol(k) * stride for k, stride in enumerate(strides)), 0))
    return b.b("add", b.unsqueeze(first, [rank + k for k in range(len(inner))]), offsets)


@onnx_op("ScatterND", 11, 13)
def scatter_nd_11(b: NodeBuilder, data: Value, index: Value, updates: Value) -> Value:
    return scatter_nd(b, data, index, updates, reduction="none")


@onnx_op("ScatterND", 16, 18, only={"reduction": ("none", "add", "mul", "max", "min")})
def scatter_nd(b: NodeBuilder, data: Value, index: Value, updates: Value, *, reduction: str) -> Value:
    depth = _index_depth(b, index)
    strides = row_major_strides(data.shape)
    first = _first_elements(b, data.shape, 0, strides, index, 0)
    flat = _with_inner(b, first, data.shape[depth:], strides[depth:])
    return b.scatter_flat(data, flat, b.reshape(updates, flat.shape), reduction)


@onnx_op("Scatter", 9)
@onnx_op("ScatterElements", 11, 13)
def scatter_elements_11(b: NodeBuilder, data: Value, index: Value, updates: Value, *, axis: int) -> Value:
    return scatter_elements(b, data, index, updates, axis=axis, reduction="none")


@onnx_op("ScatterElements", 16, 18, only={"reduction": ("none", "add", "mul", "max", "min")})
def scatter_elements(b: NodeBuilder, data: Value, index: Value, updates: Value, *, axis: int, reduction: str) -> Value:
    flat = b.element_numbers(data.shape, index, b.axis(axis, data.type.rank))
    return b.scatter_flat(data, flat, updates, reduction)


@onnx_op("NonZero", 9, 13)
def nonzero(b: NodeBuilder, x: Value) -> Value:
    """The places of what is not 0, one column each. How many there are is a size, unless x is known."""
    source = x.node.inputs[0].node if x.node.op == "view" else x.node
    filled = source.op == "constant" and source.attrs["data"].size == 1 and x.node.op == "view"
    if x.type.rank == 1 and filled and x.node.attrs["view"].is_total and source.attrs["data"].reshape(-1)[0]:
        return b.iota((1, x.shape[0]), index_symbol(1))
    known = x.node.attrs["data"] if x.node.op == "constant" else b.known(x)
    if known is not None and known.dtype != object:
        found = np.array(np.nonzero(np.atleast_1d(known)), np.int64)
        return b.constant(found if x.type.rank else found[:0])
    flags = x if x.dtype.kind == "b" else b.b("not_equal", x, 0)
    places = places_of(b, b.reshape(flags, (product(x.shape),)))
    if x.type.rank == 0:
        return b.iota((0, places.shape[0]), 0)
    rows: list[Value] = []
    for axis, extent in enumerate(x.shape):
        inner = product(x.shape[axis + 1 :])
        row = places if inner == 1 else b.b("div", places, b.dim_value(inner))
        rows.append(row if axis == 0 else b.b("floor_mod", row, b.dim_value(extent)))
    return b.concat([b.unsqueeze(row, [0]) for row in rows], 0)


@onnx_op("Compress", 9, 11, 28)
def compress(b: NodeBuilder, x: Value, condition: Value, *, axis: int | None = None) -> Value:
    if axis is None:
        x, axis = b.reshape(x, (product(x.shape),)), 0
    axis = b.axis(axis, x.type.rank)
    known = condition.node.attrs["data"] if condition.node.op == "constant" else b.known(condition)
    if known is not None and known.dtype != object:
        return b.take(x, b.constant(np.flatnonzero(known).astype(np.int64)), axis)
    (length,), extent = condition.shape, x.shape[axis]
    if b.is_nonnegative(length - extent - 1):
        b.invalid(f"a condition of {length} elements is longer than axis {axis} of {x.type}")
    return b.take(x, places_of(b, condition), axis)


@onnx_op("TensorScatter", 24, only={"mode": ("linear", "circular")})
def tensor_scatter(
    b: NodeBuilder, past: Value, update: Value, starts: Value | None = None, *, axis: int, mode: str
) -> Value:
    """Write the update into the cache along an axis, from each batch row's start on."""
    which = b.axis(axis, past.type.rank)
    place = b.iota_along(update.shape, which)
    if starts is not None:
        place = b.b("add", place, b.reshape(b.cast(starts, int64), (starts.shape[0], *[1] * (past.type.rank - 1))))
    if mode == "circular":
        place = b.b("floor_mod", place, b.dim_value(past.shape[which]))
    return b.scatter_flat(past, b.element_numbers(past.shape, place, which), update, "none")


@onnx_op("OneHot", 9, 11, 28)
def one_hot(b: NodeBuilder, index: Value, depth: Value, values: Value, *, axis: int) -> Value:
    count = b.data_size(b.cast(b.reshape(depth, ()), int64), "the depth")
    which = b.axis(axis, index.type.rank + 1)
    place = b.unsqueeze(counted_from_front(b, index, count), [which])
    shape = [*index.shape[:which], count, *index.shape[which:]]
    hit = b.b("equal", b.iota_along(shape, which), place)
    off, on = (b.reshape(b.slice_axis(values, 0, k, 1), ()) for k in (0, 1))
    return b.b("where", hit, on, off)


@onnx_op("ReverseSequence", 10, 28)
def reverse_sequence(b: NodeBuilder, x: Value, lengths: Value, *, time_axis: int, batch_axis: int) -> Value:
    """The first `lengths[n]` steps of batch n in reverse; the rest stays."""
    step = b.iota_along(x.shape, time_axis)
    shape = [1] * x.type.rank
    shape[batch_axis] = x.shape[batch_axis]
    length = b.reshape(b.cast(lengths, int64), shape)
    mirrored = b.b("sub", b.b("sub", length, 1), step)
    return b.gather_elements(x, b.b("where", b.b("less", step, length), mirrored, step), time_axis)
