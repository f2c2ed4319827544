"""Constant folding: keeps meaning, folds what shrinks, leaves views and large expansions alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.graph import Graph
from luminal_onnx.ir.interpreter import run
from luminal_onnx.ir.legality import check
from luminal_onnx.ir.passes.fold import fold_constants
from luminal_onnx.ir.printer import constants_of, format_graph
from luminal_onnx.plan.dims import Range, index_symbol, symbol
from luminal_onnx.plan.dtypes import float32, int32
from tolerances import REDUCTION, assert_close

N = symbol("n")
RNG = np.random.default_rng(0)


def folded(b: Builder, *feeds: np.ndarray) -> Graph:
    """Fold, check that both graphs are legal and agree, that folding again changes nothing, and return the result."""
    check(b.graph)
    result = fold_constants(b.graph)
    check(result)
    for actual, expected in zip(run(result, feeds), run(b.graph, feeds), strict=True):
        assert actual.dtype == expected.dtype
        assert_close(actual, expected, REDUCTION, vacuous_ok=True)
    assert format_graph(fold_constants(result)) == format_graph(result)
    return result


def operations(graph: Graph) -> Counter[str]:
    return Counter(node.attrs.get("fn", node.op) for node in graph.nodes())


def test_a_batch_normalisation_folds_into_its_weights():
    b = Builder("bn", {"n": Range(1, 2, 8)})
    x = b.input("x", float32, (N, 32, 5, 5))
    weights = b.constant(RNG.standard_normal((64, 32, 3, 3)).astype(np.float32))
    scale, variance = (b.constant(RNG.uniform(0.5, 2, 64).astype(np.float32)) for _ in range(2))
    factor = b("mul", scale, b("rsqrt", b("add", variance, 1e-5)))
    scaled = b("mul", weights, b.reshape(factor, (64, 1, 1, 1)))
    b.output("y", b.conv(x, scaled, [1, 1], [1, 1], [1, 1], [1, 1]))
    result = folded(b, RNG.standard_normal((2, 32, 5, 5)).astype(np.float32))
    assert operations(result) == Counter({"view": 3, "input": 1, "constant": 1, "mul": 1, "sum": 1})


def test_views_of_weights_stay_views():
    b = Builder()
    weights = b.constant(RNG.standard_normal((200, 300)).astype(np.float32))
    b.output("transposed", b.transpose(weights, [1, 0]))
    b.output("spread", b.expand(b.constant(np.float32([1, 2])), (5, 2)))
    result = folded(b)
    assert operations(result) == Counter({"view": 2, "constant": 2})


def test_small_views_are_computed():
    b = Builder()
    b.output("y", b.transpose(b.constant(RNG.standard_normal((3, 4)).astype(np.float32)), [1, 0]))
    assert operations(folded(b)) == Counter({"constant": 1})


def test_what_would_grow_stays():
    b = Builder()
    narrow = b.constant(RNG.integers(-9, 9, (300, 300)).astype(np.int8))
    b.output("wide", b.cast(narrow, float32))
    column = b.constant(RNG.standard_normal((300, 1)).astype(np.float32))
    b.output("outer", b("mul", column, b.transpose(column, [1, 0])))
    assert operations(folded(b))["cast"] == 1 and operations(folded(b))["mul"] == 1


def test_a_repeated_number_stays_a_number_at_any_size():
    b = Builder("splat", {"n": Range(1, 2, 8)})
    x = b.input("x", float32, (N, 4000, 1000))
    two = b.expand(b.constant(np.full((1, 1), 2, np.float32)), x.shape)
    four = b("add", two, b("mul", b.expand(b.constant(np.full(1, 2, np.float32)), x.shape), 1))
    b.output("y", b("mul", x, four))
    result = fold_constants(b.graph)
    check(result)
    assert operations(result) == Counter({"input": 1, "constant": 1, "view": 1, "mul": 1})
    assert [data.tolist() for data in constants_of(result).values()] == [4.0]


def test_a_constant_result_of_equal_elements_becomes_one_element():
    b = Builder()
    b.output("y", b("mul", b.constant(np.float32([1, 2, 4])), b.constant(np.float32([4, 2, 1]))))
    assert [data.shape for data in constants_of(folded(b)).values()] == [()]
    b = Builder()
    b.output("y", b("mul", b.constant(np.float32([0, 0])), b.constant(np.float32([1, -1]))))  # 0.0 and -0.0 differ
    assert [data.shape for data in constants_of(folded(b)).values()] == [(2,)]


def test_looking_up_constant_places_in_a_table_folds():
    b = Builder()
    table = b.constant(RNG.standard_normal((512, 64)).astype(np.float32))
    b.output("y", b.take(table, b.constant(np.arange(128)), 0))
    assert operations(folded(b)) == Counter({"constant": 1})


def test_masks_made_of_iotas_stay_computed():
    b = Builder()
    mask = b("less", b.iota((128, 128), index_symbol(1)), b.iota((128, 128), index_symbol(0) + 1))
    b.output("y", mask)
    assert operations(folded(b))["less"] == 1


def test_the_budget_limits_what_is_made_on_the_way():
    b = Builder()
    wide = b.expand(b.constant(RNG.standard_normal(4).astype(np.float32)), (4000, 4))
    b.output("y", b.reduce("max", b("exp", wide), [0, 1]))
    assert operations(fold_constants(b.graph))["max"] == 0
    assert operations(fold_constants(b.graph, budget_bytes=1000))["max"] == 1


def test_scatter_reduce_and_origin():
    b = Builder()
    b.origin = ("Scatter_1",)
    index = b.constant(np.array([0, 2, 2]))
    y = b.scatter_flat(b.constant(np.int32([1, 2, 3])), index, b.constant(np.int32([5, 6, 7])), "add")
    b.output("y", b.reduce("prod", b("max", y, 3), [0]))
    result = folded(b)
    assert operations(result) == Counter({"constant": 1})
    assert result.nodes()[0].origin == ("Scatter_1",)


def test_inputs_that_nothing_reads_stay_in_the_signature():
    b = Builder()
    b.input("unused", int32, (2,))
    b.output("y", b("add", b.constant(np.int32([1, 2])), 1))
    result = folded(b, np.zeros(2, np.int32))
    assert result.input_names == ["unused"]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_folding_random_graphs_keeps_their_meaning(data):
    b = Builder("random", {"n": Range(1, 2, 8)})
    rows = data.draw(st.integers(1, 3))
    x = b.input("x", float32, (rows, 4))
    column, row = np.float32([[1], [2], [3]])[:rows], np.ones((1, 4), np.float32)
    pool = [x, b.scalar(1.5, float32), b.constant(column), b.constant(row)]
    for _ in range(data.draw(st.integers(1, 8))):
        left, right = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
        kind = data.draw(st.sampled_from(["add", "mul", "max", "reduce", "pad", "neg", "reshape"]))
        if kind in ("add", "mul", "max"):
            pool.append(b(kind, left, right))
        elif kind == "reduce":
            pool.append(b.reduce("sum", left, [left.type.rank - 1] if left.type.rank else [], True))
        elif kind == "pad" and left.type.rank == 2:
            pool.append(b.slice(b.pad(left, [1, 0], [0, 0], 2.0), [0, 0], [1, 1], left.shape))
        elif kind == "neg":
            pool.append(b("neg", left))
    for number, value in enumerate(pool[4:]):
        b.output(f"y{number}", value)
    folded(b, RNG.standard_normal((rows, 4)).astype(np.float32))


@pytest.mark.parametrize("dim", [1, 7])
def test_symbolic_views_of_constants_are_left(dim):
    b = Builder("symbolic", {"n": Range(1, 2, 8)})
    x = b.input("x", float32, (N,))
    b.output("y", b("add", x, b.slice(b.constant(np.arange(8, dtype=np.float32)), [0], [1], [N])))
    folded(b, np.ones(dim, np.float32))


def test_what_has_no_elements_and_what_reduces_none_repeats_one_element():
    b = Builder("", {"n": Range(1, 4, 9)})
    x = b.input("x", float32, (N, 0, 3))
    twice = b("add", x, x)
    b.output("twice", b.transpose(twice, (2, 0, 1)))
    for fn in ("sum", "prod", "max", "min"):
        b.output(fn, b.reduce(fn, twice, [1]))
    result = fold_constants(b.graph)
    assert {node.op for node in result.nodes()} == {"input", "constant", "view"}
    feeds = [np.zeros((4, 0, 3), np.float32)]
    for before, after in zip(run(b.graph, feeds), run(result, feeds)):
        np.testing.assert_array_equal(before, after)
