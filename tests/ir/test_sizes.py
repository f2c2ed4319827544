"""Sizes that a graph computes itself: a symbol, its value, and everything that comes after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from luminal_onnx.ir import interpreter
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.legality import violations
from luminal_onnx.ir.passes.fold import fold_constants
from luminal_onnx.ir.printer import constants_of, format_graph, parse_graph
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import int64
from luminal_onnx.plan.errors import InvalidInput, LuminalError
from size_graphs import positives


@pytest.mark.parametrize("length", [0, 1, 7, 13])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_interpreter_gives_the_symbol_its_value(length: int, share: float) -> None:
    rng = np.random.default_rng(length)
    x = np.where(rng.random(length) < share, 1, -1) * rng.uniform(0.5, 2, length)
    x = x.astype(np.float32)
    for graph in (positives(), fold_constants(positives())):
        assert violations(graph) == []
        y, m = interpreter.run(graph, {"x": x})
        np.testing.assert_array_equal(y, 2 * x[x > 0])
        np.testing.assert_array_equal(m, x[x > 0] - x[x > 0].max(initial=-np.inf))


def test_a_number_outside_of_the_bounds_is_an_error_that_names_the_size() -> None:
    graph = positives(limit=3)
    assert len(interpreter.run(graph, {"x": np.ones(3, np.float32)})[0]) == 3
    with pytest.raises(InvalidInput, match=r"'kept'.* is 4, outside of 0..3"):
        interpreter.run(graph, {"x": np.ones(4, np.float32)})


def test_a_node_comes_after_the_sizes_that_it_needs() -> None:
    graph = positives()
    order = {id(node): place for place, node in enumerate(graph.nodes())}
    count = order[id(graph.sizes["kept"].value.node)]
    sized = [node for node in graph.nodes() if symbol("kept") in node.types[0].shape]
    assert len(sized) > 3 and all(order[id(node)] > count for node in sized)


def test_a_graph_with_sizes_is_printed_and_read_back() -> None:
    graph = positives()
    text = format_graph(graph)
    assert 'size "kept" %' in text and " in 0 .. n" in text
    again = parse_graph(text, constants_of(graph))
    assert format_graph(again) == text
    x = np.array([1, -2, 3], np.float32)
    np.testing.assert_array_equal(interpreter.run(again, {"x": x})[0], [2, 6])


def test_a_size_that_nothing_needs_goes() -> None:
    graph = positives()
    graph.outputs, graph.output_names = [graph.sizes["kept"].value], ["count"]
    folded = fold_constants(graph)
    assert folded.sizes == {} and set(folded.ranges) == {"n"}
    assert interpreter.run(folded, {"x": np.ones(5, np.float32)}) == [5]


def test_a_size_of_a_body_that_nothing_needs_goes_though_its_range_went_before() -> None:
    graph = positives()
    graph.outputs, graph.output_names = [graph.sizes["kept"].value], ["count"]
    del graph.ranges["kept"]  # a body lists the ranges of the dims that it uses
    folded = fold_constants(graph)
    assert folded.sizes == {} and set(folded.ranges) == {"n"}


def test_illegal_sizes_are_named() -> None:
    b = Builder("wrong", {"n": Range(0, 8, 64)})
    x = b.input("x", int64, (symbol("n"),))
    b.size("kept", x, 0, symbol("n"))
    b.output("y", b.iota((symbol("kept"),), 0))
    assert any("'kept': int64[n], expected a scalar" in line for line in violations(b.graph))
    scalar = b.reduce("sum", x, [0])
    with pytest.raises(LuminalError, match="has a dim 'kept' already"):
        b.size("kept", scalar, 0, 4)
    with pytest.raises(LuminalError, match="needs bounds"):
        b.size("other", scalar, -1, 4)


def test_a_size_that_depends_on_itself_is_a_cycle() -> None:
    looped = Builder("looped", {"n": Range(0, 8, 64)})
    x = looped.input("x", int64, ())
    size = looped.size("k", x, 0, 9)
    total = looped.reduce("sum", looped.iota((size,), 0), [0])
    looped.output("y", total)
    assert violations(looped.graph) == []
    looped.graph.sizes["k"] = replace(looped.graph.sizes["k"], value=total)
    assert any(line.startswith("cycle") for line in violations(looped.graph))
