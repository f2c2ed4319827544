"""Unique: the distinct elements, or slices along an axis. Every pair is compared, as in TopK."""

from __future__ import annotations

from ...ir.graph import Value
from ...plan.dims import index_symbol, product
from ...plan.dtypes import bool_, int64, uint8
from ..context import NodeBuilder
from ..registry import onnx_op
from ..selection import counts_before


@onnx_op("Unique", 11)
def unique(
    b: NodeBuilder, x: Value, *, axis: int | None = None, sorted: int
) -> tuple[Value, Value, Value, Value]:
    """Return the distinct slices, where each comes first, which of them every slice is, and how often each occurs.

    NaN is equal to itself here and comes after all numbers.
    """
    if axis is None:
        x, axis = b.reshape(x, (product(x.shape),)), 0
    axis = b.axis(axis, x.type.rank)
    extent = x.shape[axis]
    order = [axis, *(k for k in range(x.type.rank) if k != axis)]
    rows = b.reshape(b.transpose(x, order), (extent, product(x.shape[k] for k in order[1:])))
    same, lower = _compared(b, rows)
    square = (extent, extent)
    is_earlier = b.b("less", b.iota(square, index_symbol(1) - index_symbol(0)), 0)
    seen = b.cast(b.b("and", same, is_earlier), int64)
    is_first = b.b("equal", b.reduce("sum", seen, [1]), 0)
    firsts = b.cast(is_first, int64)
    if sorted:
        number = b.reduce("sum", b.b("where", lower, b.expand(firsts, square), 0), [1])
    else:
        place = b.iota(square, index_symbol(1))
        first_place = b.reduce("min", b.b("where", same, place, b.dim_value(extent)), [1])
        number = b.gather_flat(counts_before(b, firsts), first_place)
    least = 1 if b.is_nonnegative(extent - 1) else 0
    count = b.data_size(b.reduce("sum", firsts, [0]), "the number of distinct elements", extent, least)
    nothing = b.expand(b.scalar(0, int64), (count,))
    target = b.b("where", is_first, number, -1)  # out of range is dropped
    first_places = b.scatter_flat(nothing, target, b.iota((extent,), index_symbol(0)))
    counts = b.scatter_flat(nothing, number, b.expand(b.scalar(1, int64), (extent,)), "add")
    return b.take(x, first_places, axis), first_places, number, counts


def _compared(b: NodeBuilder, rows: Value) -> tuple[Value, Value]:
    """Return for each two rows (one, other) whether they are the same, and whether the other comes first in order."""
    if rows.dtype is bool_:
        rows = b.cast(rows, uint8)
    extent, width = rows.shape
    cube = (extent, extent, width)
    one, other = b.expand(b.unsqueeze(rows, [1]), cube), b.expand(b.unsqueeze(rows, [0]), cube)
    differs, lower = b.b("not_equal", one, other), b.b("less", other, one)
    if rows.dtype.is_float:
        odd, others_odd = b.b("isnan", one), b.b("isnan", other)
        differs = b.b("and", differs, b.b("not", b.b("and", odd, others_odd)))
        lower = b.b("or", lower, b.b("and", odd, b.b("not", others_odd)))
    column = b.iota(cube, index_symbol(2))
    decisive = b.reduce("min", b.b("where", differs, column, b.dim_value(width)), [2], True)
    is_decisive = b.b("equal", column, decisive)
    is_lower = b.reduce("max", b.b("and", lower, is_decisive), [2])
    return b.b("greater_equal", b.squeeze(decisive, [2]), b.dim_value(width)), is_lower
