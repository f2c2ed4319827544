"""Loops and branches as nodes of a graph: what they mean, what is refused, how they print, fold, and are cut and searched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.control import BRANCH, LOOP, Loop, bodies, loop_of
from luminal_onnx.ir.graph import Graph, Size, TensorType, Value
from luminal_onnx.ir.interpreter import run
from luminal_onnx.ir.legality import check
from luminal_onnx.ir.passes.fold import fold_constants
from luminal_onnx.ir.printer import constants_of, format_graph, parse_graph
from luminal_onnx.ir.program_reference import run_program
from luminal_onnx.ir.search import search
from luminal_onnx.ir.stages import stages
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import bool_, float32, int64
from luminal_onnx.plan.errors import LuminalError
from search_tools import TARGET
from tolerances import REDUCTION, assert_close

N, T = symbol("n"), symbol("t")
RANGES = {"n": Range(0, 4, 64)}
INNER = {**RANGES, "t": Range(0, 2, 63)}
WEIGHT = np.random.default_rng(3).uniform(-0.5, 0.5, (3, 3)).astype(np.float32)


def step(**more: object) -> Graph:
    """s' = tanh(s W + x[t]); the row is s' doubled, and s' + the bias. A second state stays, a third is read by nobody."""
    b = Builder("step", INNER)
    s, same, dead = (b.input(name, float32, (1, 3)) for name in ("s", "same", "dead"))
    x, w, bias = b.input("x", float32, (N, 3)), b.input("w", float32, (3, 3)), b.input("bias", float32, (3,))
    item = b.slice_axis(x, 0, T, 1)
    after = b("tanh", b("add", b.matmul(s, w), item))
    if more.get("condition"):
        b.output("go", b("less", b.reshape(b.slice_axis(after, 1, 0, 1), ()), 0.5))
    b.output("after", after)
    b.output("same_after", same)
    b.output("dead_after", b("mul", dead, 2))
    b.output("doubled", b("mul", after, 2))
    b.output("shifted", b("add", after, b("mul", same, bias)))
    return b.graph


def looped(**more: object) -> tuple[Builder, tuple[Value, ...]]:
    """The loop over x[n, 3], and its builder."""
    b = Builder("looped", RANGES)
    x, s, bias = b.input("x", float32, (N, 3)), b.input("s", float32, (1, 3)), b.input("bias", float32, (3,))
    condition = [b.input("go", bool_, ())] if more.get("condition") else []
    w = b.constant(WEIGHT)
    count = "count" if condition else None
    attrs = Loop(step(**more), "t", N, 3, bool(condition), count)
    outputs = b.control(LOOP, [*condition, s, s, s, x, w, bias], vars(attrs))
    if count:
        b.ranges[count] = Range(0, 4, 64)
        b.graph.sizes[count] = Size(outputs[-1], 0, N)
    return b, outputs


def feeds(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    return {
        name: rng.uniform(-1, 1, shape).astype(np.float32)
        for name, shape in (("x", (n, 3)), ("s", (1, 3)), ("bias", (3,)))
    }


def by_hand(fed: dict[str, np.ndarray], condition: bool | None = None) -> list[np.ndarray]:
    """The last state, and both collections of rows, in float64."""
    fed = {name: array.astype(np.float64) for name, array in fed.items()}
    s, rows, goes_on = fed["s"], [], condition in (None, True)
    for item in fed["x"]:
        if not goes_on:
            break
        s = np.tanh(s @ WEIGHT + item)
        rows.append(s)
        goes_on = condition is None or s[0, 0] < 0.5
    made = np.stack(rows) if rows else np.zeros((0, 1, 3))
    return [s, made * 2, made + (fed["s"] * fed["bias"])[None]]


def whole(**more: object) -> Graph:
    b, outputs = looped(**more)
    for name, number in (("last", 0), ("doubled", 3), ("shifted", 4)):
        b.output(name, outputs[number])
    return b.graph


@pytest.mark.parametrize("n", [0, 1, 2, 7, 13])
def test_a_loop_does_what_it_says(n: int) -> None:
    graph = whole()
    check(graph)
    folded = fold_constants(graph)
    check(folded)
    again = parse_graph(format_graph(folded), constants_of(folded))
    expected = by_hand(feeds(n))
    for subject, wide in ((graph, True), (graph, False), (folded, False), (again, False)):
        for got, want in zip(run(subject, feeds(n), wide=wide), expected, strict=True):
            assert got.dtype == (np.float64 if wide else np.float32)
            assert_close(got, want, REDUCTION, vacuous_ok=want.size == 0)


@pytest.mark.parametrize("n", [0, 1, 5, 13])
@pytest.mark.parametrize("go", [True, False])
def test_a_condition_ends_a_loop(n: int, go: bool) -> None:
    graph = fold_constants(whole(condition=True))
    check(graph)
    assert format_graph(parse_graph(format_graph(graph), constants_of(graph))) == format_graph(graph)
    fed = {**feeds(n), "go": np.array(go)}
    for got, want in zip(run(graph, fed), by_hand(feeds(n), go), strict=True):
        assert_close(got, want, REDUCTION, vacuous_ok=want.size == 0)


def test_folding_drops_what_nobody_reads_and_brings_constants_in() -> None:
    b, outputs = looped()
    b.output("doubled", outputs[3])
    (loop,) = [node for node in fold_constants(b.graph).nodes() if node.op == LOOP]
    made = loop_of(loop)
    assert made.states == 1 and len(loop.types) == 2  # the state is needed for the row
    assert made.body.input_names == ["s", "x"]  # neither the states that stay or are dead, nor w, nor the bias
    weights = [node.attrs["data"] for node in made.body.nodes() if node.op == "constant" and node.attrs["data"].ndim]
    assert [array.size for array in weights] == [WEIGHT.size]
    assert format_graph(fold_constants(fold_constants(b.graph))) == format_graph(fold_constants(b.graph))


def branching(**wrong: object) -> Graph:
    b = Builder("branching", RANGES)
    x, go = b.input("x", float32, (N, 3)), b.input("go", bool_, ())
    sides = []
    for name in ("then", "otherwise"):
        inner = Builder(name, RANGES)
        given = inner.input("given", float32, (N, 3))
        if name in wrong:
            inner.output("y", wrong[name](inner, given))
        elif name == "then":
            inner.output("y", inner("exp", given))
        else:
            inner.output("y", inner("mul", given, inner.scalar(-2, float32)))
        sides.append(inner.graph)
    attrs = {"then": sides[0], "otherwise": sides[1], "types": (TensorType(float32, (N, 3)),)}
    (y,) = b.control(BRANCH, [go, x], attrs)
    b.output("y", b("add", y, 1))
    return b.graph


def test_a_branch_runs_one_body() -> None:
    graph = branching()
    check(graph)
    again = parse_graph(format_graph(graph), constants_of(graph))
    x = feeds(5)["x"]
    for subject in (graph, fold_constants(graph), again):
        for go, want in ((True, np.exp(x) + 1), (False, -2 * x + 1)):
            assert_close(run(subject, {"x": x, "go": np.array(go)})[0], want)


def either_length() -> Graph:
    """Of x[n, 3], either all rows, or the first two columns as rows: how many rows there are, the branch says."""
    b = Builder("either", {**RANGES, "rows": Range(0, 4, 64)})
    x, go = b.input("x", float32, (N, 3)), b.input("go", bool_, ())
    sides = []
    for name, pick in (("then", lambda i, x: x), ("otherwise", lambda i, x: i.slice_axis(x, 0, 0, 1))):
        inner = Builder(name, RANGES)
        picked = pick(inner, inner("exp", inner.input("given", float32, (N, 3))))
        inner.output("y", picked)
        inner.output("rows", inner.dim_value(picked.shape[0]))
        sides.append(inner.graph)
    types = (TensorType(float32, (symbol("rows"), 3)), TensorType(int64, ()))
    y, rows = b.control(BRANCH, [go, x], {"then": sides[0], "otherwise": sides[1], "types": types})
    b.graph.sizes["rows"] = Size(rows, 0, N)
    b.output("y", b("add", y, 1))
    b.output("total", b.reduce("sum", y, [0]))
    return b.graph


def test_branches_may_give_different_shapes() -> None:
    graph = either_length()
    check(graph)
    again = parse_graph(format_graph(graph), constants_of(graph))
    folded = fold_constants(graph)
    check(folded)
    program = search(folded, TARGET).program
    for n, go in ((1, True), (7, True), (7, False)):
        fed = {"x": feeds(n)["x"], "go": np.array(go)}
        picked = np.exp(fed["x"] if go else fed["x"][:1])
        for subject in (graph, again, folded):
            y, total = run(subject, fed)
            assert_close(y, picked + 1)
            assert_close(total, picked.sum(axis=0), REDUCTION)
        for got, want in zip(run_program(program, fed, {"n": n}), run(graph, fed), strict=True):
            assert_close(got, want, REDUCTION)
    del graph.sizes["rows"]
    with pytest.raises(LuminalError, match="differ in the dim 'rows', which none of its results gives"):
        check(graph)


def changed(**changes: object) -> None:
    """The loop with other attributes."""
    b, outputs = looped()
    b.control(LOOP, outputs[0].node.inputs, {**outputs[0].node.attrs, **changes})


def body_with(change) -> Graph:
    made = step()
    change(made)
    return made


WRONG = {
    "7 operands, expected 6|6 operands, expected 7": lambda: changed(conditional=True),
    "it has neither a number of trips nor a condition": lambda: changed(trips=None),
    "it counts its trips, which only a loop with a condition does": lambda: changed(count="count"),
    "the body has 6 inputs and 5 outputs for 7 states": lambda: changed(states=7),
    "operand 0 is float32.1, 3., expected float32.n, 3.": lambda: changed(
        body=body_with(lambda g: g.inputs.insert(0, g.inputs.pop(3)))
    ),
    "result 0 of otherwise is int64.n, 3., expected float32.n, 3.": lambda: branching(
        otherwise=lambda b, x: b.cast(x, int64)
    ),
    "result 0 of otherwise is float32.3, n., expected float32.n, 3.": lambda: branching(
        otherwise=lambda b, x: b.transpose(x, (1, 0))
    ),
    "loop has the attributes": lambda: changed(more=1),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_together_is_refused(message: str) -> None:
    with pytest.raises(LuminalError, match=message):
        WRONG[message]()


def broken(change) -> Graph:
    graph = whole()
    change(next(node for node in graph.nodes() if node.op == LOOP), graph)
    return graph


ILLEGAL = {
    "body 'step': the dim 't' is not one of the graph around it": lambda node, graph: node.attrs.update(trip="u"),
    "types .*expected": lambda node, graph: object.__setattr__(node, "types", node.types[:-1] + node.types[:1]),
    "the body's dim|body 'step': .*view.*shape": lambda node, graph: object.__setattr__(
        next(n for n in node.attrs["body"].nodes() if n.op == "view"), "types", node.types[:1]
    ),
    "attributes .*expected": lambda node, graph: node.attrs.pop("count"),
    "the size 'made', which it counts, is not one of the graph's sizes": lambda node, graph: node.attrs.update(
        count="made"
    ),
}


@pytest.mark.parametrize("message", ILLEGAL)
def test_an_illegal_loop_is_named(message: str) -> None:
    with pytest.raises(LuminalError, match=message):
        check(broken(ILLEGAL[message]))


def test_text_that_is_cut_off_is_refused_with_its_line() -> None:
    text = format_graph(whole())
    with pytest.raises(LuminalError, match="line 7 .*the body 'body' is missing"):
        lines = text.splitlines()
        at = next(number for number, line in enumerate(lines) if line == "body {")
        assert at == 7
        parse_graph("\n".join(lines[:at]), constants_of(whole()))
    with pytest.raises(LuminalError, match="the body 'body' does not end"):
        parse_graph("\n".join(lines[: at + 4]), constants_of(whole()))


def test_stages_put_work_where_it_is_read() -> None:
    b, outputs = looped()
    x, s = b.graph.inputs[0], b.graph.inputs[1]
    late = b("exp", x)  # read after the loop only
    b.output("y", b("add", outputs[0], b("mul", s, 3)))
    b.output("z", late)
    second = b.control(
        LOOP, [outputs[0], s, s, b("neg", x), b.constant(WEIGHT), b.graph.inputs[2]], vars(Loop(step(), "t", N, 3))
    )
    b.output("w", b("mul", second[0], 2))
    graph = b.graph
    nodes = [node for node in graph.nodes() if node.op not in ("input", "constant")]
    found = stages(graph, nodes)
    kinds = [item.op if not isinstance(item, list) else sorted(n.attrs.get("fn", n.op) for n in item) for item in found]
    assert kinds[:3] == [LOOP, ["neg"], LOOP] or kinds[:3] == [["neg"], LOOP, LOOP]
    place = {id(node): at for at, item in enumerate(found) for node in (item if isinstance(item, list) else [item])}
    assert len(place) == len(nodes)
    for node in nodes:
        assert all(place[id(value.node)] <= place[id(node)] for value in node.inputs if id(value.node) in place)
    assert place[id(late.node)] == len(found) - 1


@pytest.mark.parametrize("n", [0, 1, 7])
def test_programs_of_loops_and_branches(n: int) -> None:
    for graph, fed in (
        (fold_constants(whole()), feeds(n)),
        (fold_constants(whole(condition=True)), {**feeds(n), "go": np.array(True)}),
        (branching(), {"x": feeds(n)["x"], "go": np.array(False)}),
    ):
        expected = run(graph, fed)
        result = search(graph, TARGET)
        assert sum(result.report.kernels.values()) == len(list(result.program.all_kernels()))
        assert result.report.cost > 0
        for got, want in zip(run_program(result.program, fed, {"n": n}), expected, strict=True):
            assert_close(got, want, REDUCTION, vacuous_ok=want.size == 0)


def test_equal_bodies_with_other_weights_are_searched_once() -> None:
    b = Builder("two", RANGES)
    x, s, bias = b.input("x", float32, (N, 3)), b.input("s", float32, (1, 3)), b.input("bias", float32, (3,))
    for number in range(2):
        w = b.constant(WEIGHT * np.float32(number + 1))
        outputs = b.control(LOOP, [s, s, s, x, w, bias], vars(Loop(step(), "t", N, 3)))
        b.output(f"y{number}", outputs[3])
    graph = fold_constants(b.graph)
    result = search(graph, TARGET)
    one = search(fold_constants(whole()), TARGET)
    assert result.report.saturation.nodes < 1.5 * one.report.saturation.nodes
    for got, want in zip(run_program(result.program, feeds(5), {"n": 5}), run(graph, feeds(5)), strict=True):
        assert_close(got, want, REDUCTION)


def test_bodies_are_found_in_nodes_that_have_some() -> None:
    graph = whole()
    assert [len(bodies(node)) for node in graph.nodes() if node.op == LOOP] == [1]
    assert not any(bodies(node) for node in graph.nodes() if node.op != LOOP)
    assert replace(loop_of(graph.outputs[0].node), count="k", conditional=True).made == symbol("k")
