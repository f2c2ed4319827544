"""TopK, by ranking: the rank of an element is how many others come before it."""

from __future__ import annotations

from ...ir.graph import Value
from ...plan.dims import Dim, index_symbol, product
from ...plan.dtypes import int64
from ..context import NodeBuilder
from ..registry import onnx_op


@onnx_op("TopK", 1)
def topk_1(b: NodeBuilder, x: Value, *, axis: int, k: int) -> tuple[Value, Value]:
    return _topk(b, x, k, axis, True)


@onnx_op("TopK", 10)
def topk_10(b: NodeBuilder, x: Value, k: Value, *, axis: int) -> tuple[Value, Value]:
    return _topk(b, x, _count(b, x, k, axis), axis, True)


@onnx_op("TopK", 11, 24, ignored=("sorted",))
def topk(b: NodeBuilder, x: Value, k: Value, *, axis: int, largest: int) -> tuple[Value, Value]:
    return _topk(b, x, _count(b, x, k, axis), axis, bool(largest))


def _count(b: NodeBuilder, x: Value, k: Value, axis: int) -> Dim:
    """Return how many elements are wanted. Where data decides it, more than there are is an error of the run."""
    return b.data_size(b.reshape(k, ()), "k", x.shape[b.axis(axis, x.type.rank)])


def _topk(b: NodeBuilder, x: Value, k: Dim, axis: int, largest: bool) -> tuple[Value, Value]:
    """Every pair of a row is compared, which suits rows of some thousand elements. Equal elements keep their order."""
    which = b.axis(axis, x.type.rank)
    order = [a for a in range(x.type.rank) if a != which] + [which]
    rows = b.transpose(x, order)
    rank = _ranks(b, rows, largest)
    *outer, extent = rows.shape
    # element (row, place) goes to (row, rank) of the result; ranks from k on are sent out of range and dropped
    row_start = b.iota(rows.shape, sum((index_symbol(a) * product(outer[a + 1 :]) for a in range(len(outer))), 0))
    total = product(outer) * k
    target = b.b("add", b.b("mul", row_start, b.dim_value(k)), rank)
    target = b.b("where", b.b("less", rank, b.dim_value(k)), target, b.dim_value(total))
    shape = (*outer, k)
    places = b.iota(rows.shape, index_symbol(len(outer)))
    values = b.scatter_flat(b.expand(b.scalar(0, x.dtype), shape), target, rows, "none")
    indices = b.scatter_flat(b.expand(b.scalar(0, places.dtype), shape), target, places, "none")
    back = [order.index(a) for a in range(x.type.rank)]
    return b.transpose(values, back), b.transpose(indices, back)


def _ranks(b: NodeBuilder, rows: Value, largest: bool) -> Value:
    """Return for each element how many of its row come before it."""
    rank = rows.type.rank
    extent = rows.shape[-1]
    square = (*rows.shape, extent)
    mine = b.expand(b.unsqueeze(rows, [rank]), square)
    other = b.expand(b.unsqueeze(rows, [rank - 1]), square)
    earlier = b.b("less", b.iota(square, index_symbol(rank) - index_symbol(rank - 1)), 0)
    before = b.b("greater" if largest else "less", other, mine)
    before = b.b("or", before, b.b("and", b.b("equal", other, mine), earlier))
    return b.reduce("sum", b.cast(before, int64), [rank], False)
