"""Python's side of the demands: what rules ask about handles, and the rows that answer.

Each entry names a demand relation and the function that answers one row of it. An answer is rows of other relations, or
nothing: then the rules that wait for it do not fire.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ...plan.dims import index_symbol, product, substitute
from ...plan.view import View, compose
from .attention import reading, reordered
from .contraction import contraction, packing
from .handles import Handles
from .library_product import LibraryProduct
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


def matrix_product(handles: Handles, a: int, b: int, extents: int, factors: int, dtype: int) -> Answer:
    """Whether a sum of products of two loads is a matrix product, and whose rows come first."""
    found = contraction(
        handles.thing(a), handles.thing(b), handles.thing(extents), dtype_of(factors), handles.ranges
    )
    if found is not None:
        record, rows_first = found
        relation = "RowsFirst" if rows_first else "ColumnsFirst"
        product = LibraryProduct(record, dtype_of(dtype))
        yield relation, a, b, extents, factors, dtype, handles.intern("product", product)


def packed(handles: Handles, view: int, extents: int) -> Answer:
    """A copy that brings a factor into an order that cuBLASLt takes; its elements are only moved, none repeated."""
    found = packing(handles.thing(view), len(handles.thing(extents)), handles.ranges)
    if found is not None:
        copy, read = found
        shape = handles.shape(copy.out_shape)
        yield "Packed", view, extents, handles.view(copy), shape, handles.view(read)
        yield "Count", shape, handles.dim(product(copy.out_shape))


def number(handles: Handles, bits: int, dtype: int) -> Answer:
    """Which of the numbers that rules know a constant is, as far as its type or an exporter's decimals tell."""
    value = _number(handles, bits, dtype)
    tolerance = 5e-3 if dtype_of(dtype).bits == 16 else 2e-6
    for name, known in KNOWN_NUMBERS.items():
        if math.isclose(value, known, rel_tol=0.0 if known in (0.0, 0.5, 1.0, 3.0) else tolerance):
            yield "Number", name, bits, dtype


KNOWN_NUMBERS = {"0": 0.0, "1": 1.0, "3": 3.0, "1/2": 0.5, "sqrt(2/pi)": math.sqrt(2 / math.pi), "0.044715": 0.044715}


def _number(handles: Handles, bits: int, dtype: int) -> float:
    return float(np.frombuffer(handles.thing(bits), dtype_of(dtype).numpy)[0])


def scaled(handles: Handles, fn: str, product: int, bits: int, dtype: int) -> Answer:
    """A product times a number, or divided by it."""
    value = _number(handles, bits, dtype)
    if fn == "div":
        value = 1 / value if value else math.inf
    yield from _linked(handles, ("Scaled", fn, product, bits, dtype), handles.thing(product).times(value))


def plus(handles: Handles, fn: str, product: int, view: int) -> Answer:
    """A product and what is read through a view: a bias, or a matrix, which may be subtracted as well."""
    value: LibraryProduct = handles.thing(product)
    read, ranges = handles.thing(view), handles.ranges
    if fn == "add":
        yield from _linked(handles, ("PlusBias", product, view), value.plus_bias(read, ranges))
    factor = 1.0 if fn == "add" else -1.0
    yield from _linked(handles, ("PlusMatrix", fn, product, view), value.plus_matrix(read, factor, ranges))


def plus_scaled(handles: Handles, product: int, view: int, bits: int, dtype: int) -> Answer:
    """A product and a number times a matrix."""
    value: LibraryProduct = handles.thing(product)
    more = value.plus_matrix(handles.thing(view), _number(handles, bits, dtype), handles.ranges)
    yield from _linked(handles, ("PlusScaled", product, view, bits, dtype), more)


def applied(handles: Handles, activation: str, product: int) -> Answer:
    """An activation of a product."""
    yield from _linked(handles, ("Applied", activation, product), handles.thing(product).activated(activation))


def cast_to(handles: Handles, product: int, dtype: int) -> Answer:
    """A product cast to another type."""
    yield from _linked(handles, ("CastTo", product, dtype), handles.thing(product).cast(dtype_of(dtype)))


def _linked(handles: Handles, row: tuple, more: LibraryProduct | None) -> Answer:
    if more is not None:
        yield *row, handles.intern("product", more)


def call(handles: Handles, product: int, shape: int) -> Answer:
    """The cuBLASLt records of a product stored over its own space."""
    value: LibraryProduct = handles.thing(product)
    if value.factors.space == handles.thing(shape):
        for family, matmul in value.records(handles.ranges).items():
            yield "Call", family, product, shape, handles.intern("lt", matmul)


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
    "AskNumber": number,
    "AskScaled": scaled,
    "AskPlus": plus,
    "AskPlusScaled": plus_scaled,
    "AskApplied": applied,
    "AskCastTo": cast_to,
    "AskCall": call,
    "AskAttention": attends,
    "AskReorder": reorder,
}
