"""Recurrent layers, loops and scans whose number of steps is not known at import: one body, for any number of steps."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))

import op_table
from luminal_onnx.importer import load
from luminal_onnx.ir import interpreter
from luminal_onnx.ir.control import bodies
from luminal_onnx.ir.graph import Graph
from luminal_onnx.ir.legality import check
from luminal_onnx.ir.passes.fold import fold_constants
from luminal_onnx.ir.printer import constants_of, format_graph, parse_graph
from luminal_onnx.plan.errors import InvalidInput, UnsupportedModel
from tolerances import REDUCTION, assert_close

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
TABLE = op_table.load_all()


def value(name: str, shape=None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, stored=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "subject", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in stored])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def graph_text(name: str, nodes, inputs, outputs) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, inputs, outputs)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def control_nodes(graph: Graph) -> list[str]:
    """The kinds of loops and branches, those in bodies included."""
    found = []
    for node in graph.nodes():
        if bodies(node):
            found.append(node.op)
        for body in bodies(node):
            found.extend(control_nodes(body))
    return found


def agrees(subject: onnx.ModelProto, *feed_sets: dict, **options) -> Graph:
    """Compare with onnxruntime; check that the graph is legal, prints and reads, and folds into itself."""
    graph = load(subject, **options).graph
    check(graph)
    text = format_graph(graph)
    again = parse_graph(text, constants_of(graph))
    assert format_graph(again) == text
    assert format_graph(fold_constants(graph)) == text
    session = onnxruntime.InferenceSession(subject.SerializeToString())
    for feeds in feed_sets:
        expected = session.run(None, feeds)
        for subject_graph in (graph, again):
            for got, want in zip(interpreter.run(subject_graph, feeds), expected, strict=True):
                assert_close(got, want, REDUCTION, vacuous_ok=True)
    return graph


def recurrent_cases() -> list:
    return [
        pytest.param(name, number, id=f"{name}-{number}")
        for name in ("LSTM", "GRU", "RNN")
        for number, _ in enumerate(TABLE["", name])
    ]


@pytest.mark.parametrize("name, number", recurrent_cases())
def test_recurrent_layers_run_for_any_number_of_steps(name: str, number: int) -> None:
    case = TABLE["", name][number]
    names = ["" if a is None else f"x{k}" for k, a in enumerate(case.inputs)]
    outputs = [f"y{k}" for k in range(case.outputs)]
    node = helper.make_node(name, names, outputs, name="layer", **case.attributes)
    inputs = [value(names[0], ["T", "N", case.inputs[0].shape[2]])]
    stored = [(names[k], a) for k, a in enumerate(case.inputs) if a is not None and k in (1, 2, 3, 7)]
    fed = {names[k]: a for k, a in enumerate(case.inputs) if a is not None and k in (4, 5, 6)}
    inputs += [
        value(n, ["N"] if a.ndim == 1 else [a.shape[0], "N", a.shape[2]], helper.np_dtype_to_tensor_dtype(a.dtype))
        for n, a in fed.items()
    ]
    subject = model([node], inputs, [value(output) for output in outputs], stored)
    feeds = []
    for steps in (1, 5, 13):
        lengths = {n: np.minimum(a + (steps > 4) - 2, steps) for n, a in fed.items() if a.ndim == 1}  # one is 0
        feeds.append({**fed, **lengths, names[0]: array(steps, 3, case.inputs[0].shape[2])})
    graph = agrees(subject, *feeds)
    assert control_nodes(graph) == ["loop"] * case.inputs[1].shape[0]
    none = {**feeds[0], names[0]: np.zeros((0, *feeds[0][names[0]].shape[1:]), np.float32)}
    none |= {n: np.zeros_like(a) for n, a in fed.items() if a.ndim == 1}
    whole = interpreter.run(load(subject, dims={"T": (0, 8)}).graph, none)
    assert whole[0].shape[0] == 0
    states = [a for a in fed.values() if a.ndim == 3]
    for last, initial in zip(whole[1:], states if states and case.inputs[4] is None else [0.0] * 2):
        np.testing.assert_array_equal(last, np.broadcast_to(initial, last.shape))


def test_rolled_and_unrolled_layers_agree() -> None:
    case = TABLE["", "LSTM"][2]
    names = ["" if a is None else f"x{k}" for k, a in enumerate(case.inputs)]
    node = helper.make_node("LSTM", names, ["y", "h", "c"], **case.attributes)
    inputs = [
        value(n, ["T" if k == 0 else a.shape[0], *a.shape[1:]], helper.np_dtype_to_tensor_dtype(a.dtype))
        for k, (n, a) in enumerate(zip(names, case.inputs))
        if a is not None
    ]
    subject = model([node], inputs, [value("y"), value("h"), value("c")])
    feeds = {n: a for n, a in zip(names, case.inputs) if a is not None}
    rolled, unrolled = load(subject).graph, load(subject, dims={"T": 4}).graph
    assert control_nodes(rolled) == ["loop", "loop"] and control_nodes(unrolled) == []
    for one, other in zip(interpreter.run(rolled, feeds), interpreter.run(unrolled, feeds), strict=True):
        assert_close(one, other, REDUCTION)


def body(nodes, states=("s",), rows=("row",), again="go") -> onnx.GraphProto:
    """A loop's body over vectors of three: its states, then its rows."""
    inputs = [value("trip", [], INT64), value("go", [], BOOL), *(value(name, [3]) for name in states)]
    ends = [helper.make_node("Identity", [again], ["again"])]
    outputs = [value("again", [], BOOL), *(value(f"{name}_next", [3]) for name in states), *(value(r) for r in rows)]
    return helper.make_graph([*nodes, *ends], "body", inputs, outputs)


STEP = [
    helper.make_node("Gather", ["x", "trip"], ["item"], axis=0),
    helper.make_node("Mul", ["s", "half"], ["m"]),
    helper.make_node("Relu", ["w"], ["bias"]),
    helper.make_node("Add", ["m", "bias"], ["n"]),
    helper.make_node("Add", ["n", "item"], ["s_next"]),
    helper.make_node("Mul", ["s_next", "item"], ["row"]),
]
SHAPE = [
    helper.make_node("Shape", ["x"], ["shape"]),
    helper.make_node("Slice", ["shape", "zero", "one"], ["T"]),
    helper.make_node("Squeeze", ["T"], ["trips"]),
]
STORED = [("half", np.float32(0.5)), ("zero", np.array([0])), ("one", np.array([1])), ("bound", np.float32(8))]
INPUTS = [value("x", ["T", 3]), value("w", [3]), value("s0", [3])]


def test_a_loop_over_a_symbolic_number_of_trips() -> None:
    loop = helper.make_node("Loop", ["trips", "", "s0"], ["end", "rows"], name="turning", body=body(STEP))
    subject = model([*SHAPE, loop], INPUTS, [value("end"), value("rows")], STORED)
    feeds = [{"x": array(n, 3), "w": array(3), "s0": array(3)} for n in (1, 2, 7, 13)]
    graph = agrees(subject, *feeds)
    (node,) = [node for node in graph.nodes() if node.op == "loop"]
    inner = node.attrs["body"]
    assert [n.attrs["fn"] for n in inner.nodes() if n.op == "elementwise"].count("max") == 0  # Relu(w) stays outside
    assert len(node.inputs) == 3  # the state, x and Relu(w)


def test_a_loop_with_many_fixed_trips_is_rolled_and_one_with_few_is_not() -> None:
    loop = helper.make_node("Loop", ["trips", "", "s0"], ["end", "rows"], body=body(STEP))
    for trips, expected in ((100, ["loop"]), (6, [])):
        stored = [*STORED, ("trips", np.array(trips))]
        inputs = [value("x", [100, 3]), *INPUTS[1:]]
        subject = model([loop], inputs, [value("end"), value("rows")], stored)
        graph = agrees(subject, {"x": array(100, 3), "w": array(3), "s0": array(3)})
        assert control_nodes(graph) == expected


WHILE = [
    *STEP,
    helper.make_node("ReduceSum", ["s_next"], ["total"], keepdims=0),
    helper.make_node("Less", ["total", "bound"], ["small"]),
]


def test_a_condition_ends_a_loop_and_decides_how_many_rows_there_are() -> None:
    loop = helper.make_node("Loop", ["trips", "c", "s0"], ["end", "rows"], body=body(WHILE, again="small"))
    inputs = [*INPUTS, value("c", [], BOOL)]
    subject = model([*SHAPE, loop], inputs, [value("end"), value("rows")], STORED)
    feeds = [
        {"x": np.full((9, 3), 0.5, np.float32), "w": np.full(3, w, np.float32), "s0": array(3), "c": np.array(c)}
        for w in (-1, 0.9, 2, 9)
        for c in (True, False)
    ]
    graph = agrees(subject, *feeds)
    assert control_nodes(graph) == ["loop"] and len(graph.sizes) == 1
    lengths = {interpreter.run(graph, feed)[1].shape[0] for feed in feeds}
    assert len(lengths) > 2 and 0 in lengths


def test_a_trip_count_may_be_data() -> None:
    loop = helper.make_node("Loop", ["trips", "", "s0"], ["end", "rows"], name="turning", body=body(STEP))
    inputs = [value("x", [9, 3]), *INPUTS[1:], value("trips", [], INT64)]
    subject = model([loop], inputs, [value("end"), value("rows")], STORED)
    feeds = {"x": array(9, 3), "w": array(3), "s0": array(3)}
    agrees(subject, *({**feeds, "trips": np.array(n)} for n in (0, 1, 5)))
    result = load(subject)
    assert any("'turning'" in warning and "trip count is data" in warning for warning in result.summary.warnings)
    with pytest.raises(InvalidInput, match="outside of 0..4096"):
        interpreter.run(result.graph, {**feeds, "trips": np.array(5000)})


def test_loops_that_cannot_be_rolled_are_refused() -> None:
    loop = helper.make_node("Loop", ["", "c", "s0"], ["end", "rows"], name="turning", body=body(WHILE, again="small"))
    with pytest.raises(UnsupportedModel, match="'turning'.*state a trip count"):
        load(model([loop], [*INPUTS, value("c", [], BOOL)], [value("end"), value("rows")], STORED))
    grows = [helper.make_node("Concat", ["s", "w"], ["s_next"], axis=0), helper.make_node("Neg", ["w"], ["row"])]
    loop = helper.make_node("Loop", ["trips", "", "s0"], ["end", "rows"], name="turning", body=body(grows))
    with pytest.raises(UnsupportedModel, match="'turning'.*state 's_next' after a trip is float32.6."):
        load(model([*SHAPE, loop], INPUTS, [value("end"), value("rows")], STORED))
    fixed = model([loop], INPUTS[1:], [value("end"), value("rows")], [*STORED, ("trips", np.array(4))])
    assert load(fixed).graph.outputs[0].shape == (15,)  # unrolled


@pytest.mark.parametrize("backward", [0, 1])
def test_a_scan_over_a_symbolic_axis(backward: int) -> None:
    nodes = [helper.make_node("Add", ["sum", "item"], ["next"]), helper.make_node("Mul", ["next", "item"], ["row"])]
    inner = helper.make_graph(
        nodes, "body", [value("sum", [2]), value("item", [2])], [value("next", [2]), value("row", [2])]
    )
    attributes = {
        "scan_input_axes": [1],
        "scan_output_axes": [1],
        "scan_input_directions": [backward],
        "scan_output_directions": [1 - backward],
    }
    node = helper.make_node("Scan", ["s", "x"], ["end", "rows"], body=inner, num_scan_inputs=1, **attributes)
    subject = model([node], [value("s", [2]), value("x", [2, "T"])], [value("end"), value("rows")])
    graph = agrees(subject, *({"s": array(2), "x": array(2, n)} for n in (1, 5, 11)))
    assert control_nodes(graph) == ["loop"]


def wide(x: str, y: str) -> list[onnx.NodeProto]:
    """Work that is too much to be done for nothing."""
    return [helper.make_node("MatMul", ["big", x], [f"{y}_m"]), helper.make_node("Tanh", [f"{y}_m"], [y])]


BIG = ("big", np.random.default_rng(5).standard_normal((3, 3)).astype(np.float32))


def test_branches_and_loops_nest(monkeypatch) -> None:
    """An If in a Loop in an If; each reads what stands outside of all of them."""
    monkeypatch.setattr("luminal_onnx.importer.ops.control.MOST_CHOSEN_WORK", 0)
    choice = helper.make_node(
        "If",
        ["positive"],
        ["chosen"],
        then_branch=graph_text("then", wide("item", "t"), [], [value("t")]),
        else_branch=graph_text("else", [helper.make_node("Sub", ["w", "s"], ["e"])], [], [value("e")]),
    )
    nodes = [
        *STEP[:1],
        helper.make_node("ReduceSum", ["item"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "none"], ["positive"]),
        choice,
        helper.make_node("Add", ["chosen", "outer"], ["s_next"]),
        helper.make_node("Mul", ["s_next", "item"], ["row"]),
    ]
    loop = helper.make_node("Loop", ["trips", "", "s0"], ["end", "rows"], name="turning", body=body(nodes))
    other = [helper.make_node("Neg", ["s0"], ["end2"]), helper.make_node("Mul", ["x", "outer"], ["rows2"])]
    outermost = helper.make_node(
        "If",
        ["c"],
        ["y", "ys"],
        then_branch=graph_text("loops", [loop], [], [value("end"), value("rows")]),
        else_branch=graph_text("does_not", other, [], [value("end2"), value("rows2")]),
    )
    outer = helper.make_node("Mul", ["w", "half"], ["outer"])
    inputs = [*INPUTS, value("c", [], BOOL)]
    subject = model(
        [*SHAPE, outer, outermost], inputs, [value("y"), value("ys")], [*STORED, BIG, ("none", np.float32(0))]
    )
    feeds = [
        {"x": array(n, 3), "w": array(3), "s0": array(3), "c": np.array(c)} for n in (1, 6, 11) for c in (True, False)
    ]
    graph = agrees(subject, *feeds)
    assert control_nodes(graph) == ["branch", "loop", "branch"]


def test_branches_are_run_where_they_are_work_and_chosen_between_where_not() -> None:
    for size, expected in ((8, []), (160, ["branch"])):
        big = ("big", np.eye(size, dtype=np.float32))
        node = helper.make_node(
            "If",
            ["c"],
            ["y"],
            then_branch=graph_text("then", wide("x", "t"), [], [value("t")]),
            else_branch=graph_text("else", [helper.make_node("Neg", ["x"], ["e"])], [], [value("e")]),
        )
        subject = model([node], [value("x", [size, size]), value("c", [], BOOL)], [value("y")], [big])
        graph = agrees(subject, *({"x": array(size, size), "c": np.array(c)} for c in (True, False)))
        assert control_nodes(graph) == expected


def test_a_weight_of_a_body_is_a_constant_there_and_the_same_array() -> None:
    case = TABLE["", "LSTM"][1]
    names = ["" if a is None else f"x{k}" for k, a in enumerate(case.inputs)]
    node = helper.make_node("LSTM", names, ["y", "h", "c"], **case.attributes)
    stored = [(names[k], case.inputs[k]) for k in (1, 2, 3)]
    inputs = [value(names[0], ["T", 3, 5]), *(value(names[k], case.inputs[k].shape) for k in (5, 6))]
    graph = load(model([node], inputs, [value("y"), value("h"), value("c")], stored)).graph
    (loop,) = [node for node in graph.nodes() if node.op == "loop"]
    assert len(loop.inputs) == 3  # both states and the projected input
    assert sum(data.size > 8 for data in constants_of(graph).values()) == 2  # W and R, once each; the biases are folded


def test_a_state_that_counts_is_known_as_a_function_of_the_trip() -> None:
    """Slices that begin where a counter stands, as exporters write them, are views, not copies by data."""
    nodes = [
        helper.make_node("Unsqueeze", ["i", "zero"], ["from"]),
        helper.make_node("Add", ["i", "step"], ["i_next"]),
        helper.make_node("Unsqueeze", ["i_next", "zero"], ["to"]),
        helper.make_node("Slice", ["x", "from", "to", "zero"], ["items"]),
        helper.make_node("ReduceSum", ["items", "zero"], ["item"], keepdims=0),
        helper.make_node("Add", ["s", "item"], ["s_next"]),
        helper.make_node("Mul", ["s_next", "item"], ["row"]),
    ]
    inside = body(nodes)
    inside.input.insert(3, value("i", [], INT64))
    inside.output.insert(2, value("i_next", [], INT64))
    loop = helper.make_node("Loop", ["trips", "", "s0", "first"], ["end", "i_end", "rows"], body=inside)
    stored = [*STORED, ("first", np.array(3)), ("step", np.array(2)), ("trips", np.array(100))]
    inputs = [value("x", [300, 3]), INPUTS[2]]
    subject = model([loop], inputs, [value("end"), value("i_end", [], INT64), value("rows")], stored)
    graph = agrees(subject, {"x": array(300, 3), "s0": array(3)})
    (node,) = [node for node in graph.nodes() if node.op == "loop"]
    inner = [n.op for n in node.attrs["body"].nodes()]
    assert "gather" not in inner and not graph.sizes and not node.attrs["body"].sizes
