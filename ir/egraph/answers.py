"""Python's side of the demands: what rules ask about handles, and the rows that answer.

Each entry names a demand relation and the function that answers one row of it. An answer is rows of other relations, or
nothing: then the rules that wait for it do not fire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ...plan.dims import index_symbol, product, substitute
from ...plan.view import View, compose
from .attention import reading, reordered
from .contraction import contraction, is_bias, lt_records, packing
from .handles import Handles
from .lift import dtype_of

Answer = Iterable[tuple]  # (relation, *row)


def see(handles: Handles, view: int, shape: int) -> Answer:
    """How a view looks to a tensor stored over `shape`: the identity, rows repeated, or some other total view."""
    stored = handles.thing(shape)
    seen = handles.seen_by(view, stored)
    if seen is None or not seen.is_total:
        return
    if seen.is_identity():
        yield "Identity", view, shape
        return
    rank = len(stored)
    own = tuple(index_symbol(axis) for axis in range(rank))
    if len(seen.out_shape) > rank and seen.out_shape[:rank] == stored and seen.index == own:
        yield "RowsOf", view, shape, handles.shape(seen.out_shape[rank:])
    yield "Pushed", view, shape, handles.view(seen)


def alias(handles: Handles, view: int, shape: int) -> Answer:
    """Whether storing over `shape` what the view reads gives the operand's own elements in their own places."""
    read: View = handles.thing(view)
    if read.out_shape == handles.thing(shape) and read.is_contiguous(handles.ranges):
        yield "Alias", view, shape


def composed(handles: Handles, outer: int, inner: int) -> Answer:
    """The view that reads through `inner`, then `outer`."""
    below: View = handles.thing(inner)
    above = handles.seen_by(outer, below.out_shape)
    if above is not None:
        both = compose(above, below, handles.ranges)
        if both is not None:
            yield "Composed", outer, inner, handles.view(both)


def iota_at(handles: Handles, expr: int, shape: int, view: int) -> Answer:
    """An iota's expression where the view reads it."""
    seen = handles.seen_by(view, handles.thing(shape))
    if seen is not None and seen.is_total:
        moved = substitute(handles.thing(expr), {}, dict(enumerate(seen.index)))
        yield "IotaAt", expr, shape, view, handles.dim(moved), handles.shape(seen.out_shape)


def beside(handles: Handles, view: int, extents: int) -> Answer:
    """A reshape beside trailing axes that it leaves alone. Other views would compute a reduction more than once."""
    rows: View = handles.thing(view)
    trailing = handles.thing(extents)
    if not rows.is_contiguous(handles.ranges):
        return
    extra = tuple(index_symbol(len(rows.out_shape) + axis) for axis in range(len(trailing)))
    wider = View.make(
        rows.in_shape + trailing, rows.out_shape + trailing, rows.index + extra, ranges=handles.ranges
    )
    yield "Beside", view, extents, handles.view(wider)


def matrix_product(handles: Handles, a: int, b: int, extents: int, dtype: int) -> Answer:
    """Whether a sum of products of two loads is a matrix product, and whose rows come first."""
    found = contraction(
        handles.thing(a), handles.thing(b), handles.thing(extents), dtype_of(dtype), handles.ranges
    )
    if found is not None:
        record, rows_first = found
        relation = "RowsFirst" if rows_first else "ColumnsFirst"
        yield relation, a, b, extents, dtype, handles.intern("contraction", record)


def packed(handles: Handles, view: int, extents: int) -> Answer:
    """A copy that brings a factor into an order that cuBLASLt takes; its elements are only moved, none repeated."""
    found = packing(handles.thing(view), len(handles.thing(extents)), handles.ranges)
    if found is not None:
        copy, read = found
        shape = handles.shape(copy.out_shape)
        yield "Packed", view, extents, handles.view(copy), shape, handles.view(read)
        yield "Count", shape, handles.dim(product(copy.out_shape))


def lt(handles: Handles, factors: int, shape: int) -> Answer:
    """The cuBLASLt records of a contraction stored over its own space."""
    record = handles.thing(factors)
    if record.space == handles.thing(shape):
        for key, matmul in lt_records(record, handles.ranges).items():
            yield "Lt", key, factors, shape, handles.intern("lt", matmul)


def lt_bias(handles: Handles, factors: int, view: int, shape: int) -> Answer:
    """The records with a bias along the columns; only a column-ordered D takes one."""
    record = handles.thing(factors)
    if record.space == handles.thing(shape) and is_bias(handles.thing(view), record, handles.ranges):
        for key, matmul in lt_records(record, handles.ranges).items():
            if matmul.order_d == "col":
                with_bias = replace(matmul, epilogue="bias")
                with_bias.validate()
                yield "LtBias", key, factors, view, shape, handles.intern("lt", with_bias)


def attends(
    handles: Handles, softmaxed: int, stored: int, view: int, values: int, summed: int, space: int
) -> Answer:
    """How a product of stored probabilities and values reads both, if it sums along the softmax's own axis."""
    seen = handles.seen_by(view, handles.thing(stored))
    if seen is not None:
        found = reading(
            seen, handles.thing(values), handles.thing(softmaxed), handles.thing(summed), handles.thing(space)
        )
        if found is not None:
            handle = handles.intern("attention", found)
            yield "Attends", softmaxed, stored, view, values, summed, space, handle


def reorder(handles: Handles, read: int, view: int, shape: int) -> Answer:
    """How the result of an attention is read in another order."""
    seen = handles.seen_by(view, handles.thing(read).space)
    if seen is not None and seen.out_shape == handles.thing(shape):
        found = reordered(handles.thing(read), seen, handles.ranges)
        if found is not None:
            yield "Reordered", read, view, shape, handles.intern("attention", found)


DEMANDS: Mapping[str, Callable[..., Answer]] = {
    "See": see,
    "AskAlias": alias,
    "AskCompose": composed,
    "AskIota": iota_at,
    "AskBeside": beside,
    "AskContraction": matrix_product,
    "AskPack": packed,
    "AskLt": lt,
    "AskBias": lt_bias,
    "AskAttention": attends,
    "AskReorder": reorder,
}


