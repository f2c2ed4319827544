"""The interpreter: binding of dims, contraction of products within a memory bound, wide mode, errors."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from luminal_onnx.ir import contraction
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.contraction import sum_of_products
from luminal_onnx.ir.graph import Graph
from luminal_onnx.ir.interpreter import run
from luminal_onnx.plan.dims import Range, index_symbol, symbol
from luminal_onnx.plan.dtypes import bfloat16, bool_, float16, float32, float64, int8, int32, int64
from luminal_onnx.plan.errors import InvalidInput, LuminalError
from luminal_onnx.plan.view import select
from tolerances import REDUCTION, assert_close

N = symbol("n")


def linear() -> Graph:
    b = Builder("linear", {"n": Range(1, 2, 8)})
    x, bias = b.input("x", float32, (N, 3)), b.input("bias", float32, (2,))
    b.output("y", b("add", b.matmul(x, b.constant(np.float32([[1, 2], [3, 4], [5, 6]]))), bias))
    return b.graph


def test_feeds_by_name_or_in_order():
    x, bias = np.float32([[1, 0, 1], [0, 1, 0]]), np.float32([10, 20])
    for feeds in ({"bias": bias, "x": x}, [x, bias], (x, bias)):
        (y,) = run(linear(), feeds)
        np.testing.assert_array_equal(y, [[16, 28], [13, 24]])


GOOD = {"x": np.zeros((2, 3), np.float32), "bias": np.zeros(2, np.float32)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "not fed: x"),
        ({"z": np.zeros(1)}, "fed but unknown: z"),
        ({"x": np.zeros((2, 3))}, r"input 'x' is float32\[n, 3\]; an array of float64"),
        ({"x": np.zeros((2, 3), complex)}, "complex128"),
        ({"x": np.zeros(3, np.float32)}, r"an array of shape \[3\]"),
        ({"x": np.zeros((2, 4), np.float32)}, r"input 'x' axis 1 \(3\) must be 3, got 4"),
        ({"x": np.zeros((9, 3), np.float32)}, r"dim 'n' is 9, outside its range 1..8"),
    ],
)
def test_wrong_feeds_are_named(change, message):
    feeds = {name: array for name, array in (GOOD | change).items() if array is not None}
    with pytest.raises(InvalidInput, match=message):
        run(linear(), feeds)


def test_one_dim_must_have_one_value():
    b = Builder()
    x, y = b.input("x", float32, (N,)), b.input("y", float32, (2 * N,))
    b.output("z", b("add", b.reshape(y, (2, N)), x))
    (z,) = run(b.graph, [np.ones(2, np.float32), np.ones(4, np.float32)])
    assert z.shape == (2, 2)
    with pytest.raises(InvalidInput, match=r"input 'y' axis 0 \(2\*n\) must be 4, got 5"):
        run(b.graph, [np.ones(2, np.float32), np.ones(5, np.float32)])
    with pytest.raises(InvalidInput, match="input 'x' axis 0"):
        run(b.graph, [np.ones(2, np.float32), np.ones(4, np.float32)], {"n": 3})


def test_dims_that_no_shape_shows():
    b = Builder()
    b.output("y", b.iota((N,), 2))
    assert run(b.graph, {}, {"n": 3})[0].tolist() == [2, 2, 2]
    with pytest.raises(InvalidInput, match="no value for the dim 'n'"):
        run(b.graph, {})


def test_errors_name_the_origin():
    b = Builder()
    x = b.input("x", float32, (N,))
    b.origin = ("Slice_7",)
    b.output("y", b.slice(x, [5], [1], [2]))
    with pytest.raises(LuminalError, match="Slice_7"):
        run(b.graph, [np.zeros(3, np.float32)])


def test_outputs_are_the_callers_own():
    b = Builder()
    x = b.input("x", float32, (2,))
    b.output("same", x)
    b.output("twice", b.expand(x, (2, 2)))
    fed = np.float32([1, 2])
    same, twice = run(b.graph, [fed])
    same += 1
    twice[0, 0] = 9
    assert fed.tolist() == [1, 2] and twice.tolist() == [[9, 2], [1, 2]]


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32], ids=str)
def test_wide_computes_in_float64(dtype):
    b = Builder()
    x = b.input("x", dtype, (1000,))
    tenth = b.cast(b("mul", x, 0.1), float32)
    b.output("sum", b.reduce("sum", tenth, [0]))
    b.output("count", b.reduce("sum", b.cast(b("less", x, 2), int64), [0]))
    total, count = run(b.graph, [np.ones(1000, dtype.numpy)], wide=True)
    assert total.dtype == np.float64 and count == 1000 and count.dtype == np.int64
    exact = 1000 * float(np.array(0.1).astype(dtype.numpy))
    assert abs(total - exact) < 1e-9
    (narrow, _) = run(b.graph, [np.ones(1000, dtype.numpy)])
    assert narrow.dtype == np.float32


def conv_graph(n: int) -> Graph:
    b = Builder()
    x = b.input("x", float32, (n, 64, 56, 56))
    w = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32)
    b.output("y", b.conv(x, b.constant(w), [1, 1], [1, 1], [1, 1], [1, 1]))
    return b.graph


@pytest.mark.parametrize("wide", [False, True])
def test_a_convolution_never_stores_its_products(wide):
    x = np.random.default_rng(1).standard_normal((4, 64, 56, 56)).astype(np.float32)
    graph = conv_graph(4)
    tracemalloc.start()
    try:
        (y,) = run(graph, [x], wide=wide)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 256 << 20  # the products alone are 1.7 GB
    alone = np.pad(x[2, :, :3, :3], [(0, 0), (1, 1), (1, 1)])
    weights = graph.outputs[0].node
    while weights.op != "constant":
        weights = weights.inputs[-1].node
    expected = sum(
        alone[:, i : i + 3, j : j + 3].astype(float) * weights.attrs["data"][5, :, i, j, None, None]
        for i in range(3) for j in range(3)
    ).sum(0)
    assert_close(y[2, 5, :2, :2], expected[:2, :2], REDUCTION)


def test_a_matmul_is_split_within_the_memory_bound(monkeypatch):
    monkeypatch.setattr(contraction, "BLOCK_BYTES", 4096)
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((3, 37, 1, 50)), rng.standard_normal((1, 1, 41, 50))
    result = sum_of_products(a, b, (3, 37, 41, 50), 1, np.dtype(float))
    assert_close(result, np.einsum("bik,jk->bij", a[:, :, 0], b[0, 0]), REDUCTION)
    both = rng.standard_normal((11, 13, 50))
    assert_close(sum_of_products(both, both, (11, 13, 50), 1, np.dtype(float)), (both * both).sum(-1), REDUCTION)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data())
def test_contraction_equals_the_plain_sum_of_products(data):
    rank = data.draw(st.integers(1, 5))
    space = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    count = data.draw(st.integers(1, rank))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    factors = [
        rng.integers(-5, 6, [extent if data.draw(st.booleans()) else 1 for extent in space]).astype(data.draw(
            st.sampled_from([np.float64, np.int64]))) for _ in range(2)
    ]
    before = contraction.BLOCK_BYTES
    contraction.BLOCK_BYTES = data.draw(st.sampled_from([16, 200, before]))
    try:
        result = sum_of_products(*factors, space, count, np.dtype(np.float64))
    finally:
        contraction.BLOCK_BYTES = before
    expected = np.broadcast_to(factors[0] * factors[1], space).sum(tuple(range(rank - count, rank)))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [float16, bfloat16, int8, int32, float64], ids=str)
def test_contraction_in_every_dtype(dtype):
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-3, 4, shape).astype(dtype.numpy) for shape in ((5, 7), (7, 3)))
    b = Builder()
    b.output("z", b.matmul(b.input("x", dtype, (5, 7)), b.input("y", dtype, (7, 3))))
    (z,) = run(b.graph, [x, y])
    assert z.dtype == dtype.numpy
    expected = x.astype(int) @ y.astype(int)
    np.testing.assert_array_equal(z.astype(int), expected)


def test_a_product_that_is_used_twice_is_computed():
    b = Builder()
    x = b.input("x", float32, (3, 4))
    product = b("mul", x, x)
    b.output("sum", b.reduce("sum", product, [1]))
    b.output("product", product)
    fed = np.arange(12, dtype=np.float32).reshape(3, 4)
    total, squares = run(b.graph, [fed])
    np.testing.assert_array_equal(total, (fed * fed).sum(1))
    np.testing.assert_array_equal(squares, fed * fed)


@pytest.mark.parametrize("extent", [0, symbol("n")])
def test_products_of_what_has_no_elements(extent):
    b = Builder("", {"n": Range(0, 2, 4)})
    x, w = b.input("x", float32, (extent, 4)), b.input("w", float32, (4, 3))
    first = b.view(x, select((extent, 4), (extent, 3, 4), [0, index_symbol(2)], b.ranges))
    b.output("y", b.reduce("sum", b("mul", first, b.transpose(w, (1, 0))), [2]))
    (y,) = run(b.graph, [np.zeros((0, 4), np.float32), np.ones((4, 3), np.float32)])
    assert y.shape == (0, 3) and y.dtype == np.float32


def test_values_are_freed_after_their_last_use():
    b = Builder()
    value = b.input("x", float32, (1 << 18,))
    for _ in range(40):
        value = b("add", value, b("exp", value))
        value = b("min", value, 1)
    b.output("y", value)
    x = np.zeros(1 << 18, np.float32)
    tracemalloc.start()
    try:
        run(b.graph, [x])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20  # each value is 1 MB


def test_bool_and_empty_graphs():
    b = Builder()
    x = b.input("x", bool_, (2, 0))
    b.output("any", b.reduce("max", x, [1]))
    b.output("all", b.reduce("min", x, [1]))
    any_, all_ = run(b.graph, [np.zeros((2, 0), bool)])
    assert any_.tolist() == [False, False] and all_.tolist() == [True, True]
    assert run(Graph("empty"), {}) == []
