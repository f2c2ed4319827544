"""The reducer: planted bugs come out as graphs of at most three nodes that can be built again."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz import failures as failures_module
from fuzz.failures import Failure, Ways, as_text, failures, shrunk
from fuzz.generate import Binding, generate
from fuzz.oracle import expect
from fuzz.road import Road
from fuzz.shrink import node_count, shrink
from luminal_onnx.ir.graph import Graph
from luminal_onnx.ir.printer import constants_of, format_graph, parse_graph
from luminal_onnx.ir.search import SearchOptions

LARGE = 15  # nodes that a graph has before


def has_pattern(graph: Graph, outer: str, inner: str) -> bool:
    """Say whether a node of one kind reads one of another."""

    def kind(node) -> str:
        return node.attrs.get("fn", node.op) if node.op in ("elementwise", "reduce") else node.op

    return any(kind(node) == outer and any(kind(v.node) == inner for v in node.inputs) for node in graph.nodes())


@pytest.mark.parametrize(("outer", "inner"), [("sum", "view"), ("add", "mul"), ("view", "abs"), ("sub", "view")])
def test_a_pair_of_nodes_is_all_that_is_left(outer: str, inner: str) -> None:
    cases = (generate(seed) for seed in range(300))
    case = next(
        (c for c in cases if node_count(c.graph) >= LARGE and has_pattern(c.graph, outer, inner)), None
    )
    if case is None:
        pytest.fail(f"no generated graph has {outer} of {inner}")
    graph, binding = shrink(case.graph, case.bindings[0], lambda smaller, _: has_pattern(smaller, outer, inner))
    assert node_count(graph) == 2
    expect(graph, binding.feeds, binding.dims)  # it can still be run


def test_an_unsound_rule_is_shrunk_to_what_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = '(rule ((= r (E1 "abs" a d))) ((union r a)) :ruleset extra :name "erase-sign")'
    road_of = Road.of
    monkeypatch.setattr(Road, "of", lambda graph: road_of(graph, SearchOptions(extra=(planted,))))
    for seed in range(100):
        case = generate(seed)
        if node_count(case.graph) < LARGE or not any(n.attrs.get("fn") == "abs" for n in case.graph.nodes()):
            continue
        road, failure = failures_module.search_for(case.graph)
        if failure is None:
            failure = next(failures(road, case.bindings[0], Ways(chosen=False, randoms=12)), None)
        if failure is not None:
            break
    else:
        pytest.fail("the planted rule was not noticed")
    graph, _ = shrunk(case.graph, case.bindings[0], failure)
    assert node_count(graph) <= 3
    assert any(node.attrs.get("fn") == "abs" for node in graph.nodes())


def test_the_text_builds_the_graph_again() -> None:
    case = generate(3)
    text = as_text(case.graph, case.bindings[0])
    again = parse_graph(format_graph(case.graph), constants_of(case.graph))
    assert format_graph(again) in text
    feeds, dims = case.bindings[0].feeds, case.bindings[0].dims
    for one, other in zip(expect(case.graph, feeds, dims), expect(again, feeds, dims)):
        np.testing.assert_array_equal(one.values, other.values)


def test_a_failure_names_its_stage() -> None:
    case = generate(0)
    feeds = {name: array[:0] if array.ndim else array for name, array in case.bindings[0].feeds.items()}
    found = list(failures(Road.of(case.graph), Binding(case.bindings[0].dims, feeds)))
    assert [type(failure) for failure in found] == [Failure]
    assert found[0].stage == "interpreter"
