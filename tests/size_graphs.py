"""Graphs whose sizes are known only when they run, for tests of what must come after such a size."""

from __future__ import annotations

import numpy as np
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.graph import Graph, Value
from luminal_onnx.plan.dims import Dim, Range, index_symbol, symbol
from luminal_onnx.plan.dtypes import bool_, float32, int64

SEED = 5


def places_of(b: Builder, flags: Value, name: str, most: Dim) -> Value:
    """The places of the true elements of a row, as many as there are: a size called `name`."""
    (extent,) = flags.shape
    assert flags.dtype is bool_
    ones = b.cast(flags, int64)
    count = b.size(name, b.reduce("sum", ones, [0]), 0, most)
    square = (extent, extent)
    earlier = b("less", b.iota(square, index_symbol(1) - index_symbol(0)), 0)
    before = b.reduce("sum", b("where", earlier, b.expand(ones, square), 0), [1])
    target = b("where", flags, before, -1)
    return b.scatter_flat(b.iota((count,), 0), target, b.iota((extent,), index_symbol(0)))


def positives(limit: int | None = None) -> Graph:
    """The positive elements of x, in order, doubled. With a limit, more of them than that is an error."""
    b = Builder("positives", {"n": Range(0, 8, 64)})
    n = symbol("n")
    x = b.input("x", float32, (n,))
    taken = b.gather_flat(x, places_of(b, b("greater", x, 0), "kept", n if limit is None else limit))
    b.output("y", b("mul", taken, 2))
    b.output("m", b("sub", taken, b.reduce("max", taken, [0])))
    return b.graph


def rows_and_rows(columns: int = 4) -> Graph:
    """Rows of x picked by their first element, multiplied and put through a softmax over how many there are; of those

    some picked again, by what they are now; and what comes after as many rows of x.
    """
    b = Builder("rows", {"n": Range(0, 8, 64)})
    n = symbol("n")
    x = b.input("x", float32, (n, columns))
    first = b.reshape(b.slice_axis(x, 1, 0, 1), (n,))
    rows = b.take(x, places_of(b, b("greater", first, 0), "kept", n), 0)
    weight = np.random.default_rng(SEED).uniform(-1, 1, (columns, 5)).astype(np.float32)
    product = b.matmul(rows, b.constant(weight))
    b.output("softmax", b.softmax(product, 0))
    kept = symbol("kept")
    again = b("greater", b.reduce("sum", product, [1]), 0.1)
    b.output("again", b.take(product, places_of(b, again, "again", n), 0))
    b.output("rest", b("add", b.slice_axis(x, 0, kept, n - kept), 1))
    b.output("half", b("mul", b.size_value(kept, float32), 0.5))
    return b.graph


def rows_and_rows_expected(x: np.ndarray) -> list[np.ndarray]:
    """The same in NumPy, in float64."""
    columns = x.shape[1]
    weight = np.random.default_rng(SEED).uniform(-1, 1, (columns, 5)).astype(np.float32)
    kept = x[x[:, 0] > 0]
    product = kept.astype(np.float64) @ weight
    powers = np.exp(product - product.max(0, initial=-np.inf, keepdims=True))
    again = product[product.sum(1) > 0.1]
    return [powers / powers.sum(0, keepdims=True), again, x[len(kept) :] + 1.0, np.array(len(kept) / 2)]
