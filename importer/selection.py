"""Picking elements by flags: how many are picked is a size that data decides."""

from __future__ import annotations

from ..ir.graph import Value
from ..plan.dims import Dim, bounds, index_symbol
from ..plan.dtypes import int64
from .context import NodeBuilder

FEW = 256  # so many elements are counted by comparing all pairs; more go in blocks, of about the square root of them
BLOCKS = (32, 64, 128, 256, 512, 1024)


def places_of(b: NodeBuilder, flags: Value) -> Value:
    """Return the places of the true elements of a row, in order, as an int64 row of as many."""
    (extent,) = flags.shape
    ones = b.cast(flags, int64)
    count = b.data_size(b.reduce("sum", ones, [0]), "the number of elements that are picked", extent)
    target = b.b("where", flags, counts_before(b, ones), -1)  # out of range is dropped
    nothing = b.expand(b.scalar(0, int64), (count,))
    return b.scatter_flat(nothing, target, b.iota((extent,), index_symbol(0)))


def counts_before(b: NodeBuilder, counts: Value) -> Value:
    """Return for each place of an int64 row the sum of all elements before it."""
    (extent,) = counts.shape
    most = bounds(extent, b.ranges)[1]
    if most is not None and most <= FEW:
        return _sums_before(b, counts)
    size = next((block for block in BLOCKS if most is not None and block * block >= most), BLOCKS[-1])
    blocks = b.ceil_div(extent, size)
    rows = b.reshape(b.pad(counts, [0], [blocks * size - extent], 0), (blocks, size))
    inside = _sums_before(b, rows)
    before = counts_before(b, b.reduce("sum", rows, [1]))
    total = b.b("add", inside, b.unsqueeze(before, [1]))
    return b.slice_axis(b.reshape(total, (blocks * size,)), 0, 0, extent)


def _sums_before(b: NodeBuilder, counts: Value) -> Value:
    """Return the sums along the last axis, by looking at every pair of places."""
    *outer, extent = counts.shape
    last = len(outer)
    square: tuple[Dim, ...] = (*outer, extent, extent)
    is_before = b.b("less", b.iota(square, index_symbol(last + 1) - index_symbol(last)), 0)
    others = b.expand(b.unsqueeze(counts, [last]), square)
    return b.reduce("sum", b.b("where", is_before, others, 0), [last + 1])
