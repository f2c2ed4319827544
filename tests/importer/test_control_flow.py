"""If, Loop and Scan written out: branches chosen at import or computed both, short loops unrolled."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from luminal_onnx.importer import load
from luminal_onnx.ir import interpreter
from luminal_onnx.plan.errors import UnsupportedModel
from onnx import TensorProto, helper, numpy_helper
from tolerances import REDUCTION, assert_close

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, shape=None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, stored=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "subject", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in stored])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def agrees_with_onnxruntime(subject: onnx.ModelProto, *feed_sets: dict) -> None:
    graph = load(subject).graph
    session = onnxruntime.InferenceSession(subject.SerializeToString())
    for feeds in feed_sets:
        for got, want in zip(interpreter.run(graph, feeds), session.run(None, feeds), strict=True):
            assert_close(got, want, REDUCTION, vacuous_ok=True)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_a_branch_with_a_known_condition_replaces_the_if() -> None:
    then = helper.make_graph([helper.make_node("Relu", ["x"], ["t"])], "then", [], [value("t")])
    unsupported = [  # the axis must be constant
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["i"], to=TensorProto.INT64),
        helper.make_node("CumSum", ["x", "i"], ["e"]),
    ]
    bad = helper.make_graph(unsupported, "else", [], [value("e")])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["d"]),
        helper.make_node("Equal", ["d", "three"], ["c"]),
        helper.make_node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=bad),
    ]
    stored = [("one", np.array(1)), ("three", np.array(3))]
    agrees_with_onnxruntime(model(nodes, [value("x", ["N", 3])], [value("y")], stored), {"x": array(2, 3)})
    with pytest.raises(UnsupportedModel, match="CumSum"):
        load(model(nodes, [value("x", ["N", 4])], [value("y")], stored))
    with pytest.raises(UnsupportedModel, match="CumSum"):
        load(model(nodes[3:], [value("x", [2, 3]), value("c", [], BOOL)], [value("y")]))


def branches(then_nodes, else_nodes) -> dict:
    return {
        "then_branch": helper.make_graph(then_nodes, "then", [], [value("t")]),
        "else_branch": helper.make_graph(else_nodes, "else", [], [value("e")]),
    }


def test_both_branches_are_computed_where_data_chooses() -> None:
    attributes = branches([helper.make_node("Relu", ["x"], ["t"])], [helper.make_node("Neg", ["x"], ["e"])])
    node = helper.make_node("If", ["c"], ["y"], name="choice", **attributes)
    subject = model([node], [value("x", ["N", 3]), value("c", [1], BOOL)], [value("y")])
    agrees_with_onnxruntime(subject, *({"x": array(2, 3), "c": np.array([flag])} for flag in (True, False)))


def test_branches_of_different_shapes_give_a_size_that_is_known_when_the_model_runs() -> None:
    attributes = branches([helper.make_node("Transpose", ["x"], ["t"])], [helper.make_node("Neg", ["x"], ["e"])])
    nodes = [
        helper.make_node("If", ["c"], ["y"], name="choice", **attributes),
        helper.make_node("ReduceMax", ["y"], ["top"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["y", "top"], ["z"]),
        helper.make_node("Shape", ["z"], ["shape"]),
    ]
    subject = model(nodes, [value("x", ["N", 3]), value("c", [], BOOL)], [value("z"), value("shape", None, INT64)])
    agrees_with_onnxruntime(
        subject, *({"x": array(n, 3), "c": np.array(flag)} for n in (1, 2, 5) for flag in (True, False))
    )


def test_branches_of_different_ranks_are_refused_where_data_chooses() -> None:
    attributes = branches(
        [helper.make_node("Flatten", ["x"], ["t"])], [helper.make_node("Unsqueeze", ["x", "zero"], ["e"])]
    )
    node = helper.make_node("If", ["c"], ["y"], name="choice", **attributes)
    with pytest.raises(UnsupportedModel, match="'choice'.*different types"):
        load(model([node], [value("x", [2, 3]), value("c", [], BOOL)], [value("y")], [("zero", np.array([0]))]))


def test_a_branch_that_is_invalid_at_these_shapes_leaves_the_other_with_a_warning() -> None:
    attributes = branches([helper.make_node("MatMul", ["x", "x"], ["t"])], [helper.make_node("Neg", ["x"], ["e"])])
    node = helper.make_node("If", ["c"], ["y"], name="choice", **attributes)
    result = load(model([node], [value("x", [2, 3]), value("c", [], BOOL)], [value("y")]))
    assert "'choice'" in result.summary.warnings[0] and "only one of its branches" in result.summary.warnings[0]
    feeds = {"x": array(2, 3), "c": np.array(False)}
    np.testing.assert_array_equal(interpreter.run(result.graph, feeds)[0], -feeds["x"])


def loop_body(condition: list[onnx.NodeProto]) -> onnx.GraphProto:
    """state = state * 0.5 + w; row = state + trip."""
    nodes = [
        helper.make_node("Mul", ["state", "half"], ["m"]),
        helper.make_node("Add", ["m", "w"], ["next"]),
        helper.make_node("Cast", ["trip"], ["number"], to=FLOAT),
        helper.make_node("Add", ["next", "number"], ["row"]),
        *condition,
    ]
    inputs = [value("trip", [], INT64), value("go", [], BOOL), value("state", [3])]
    return helper.make_graph(nodes, "body", inputs, [value("again", [], BOOL), value("next", [3]), value("row", [3])])


ALWAYS = [helper.make_node("Identity", ["go"], ["again"])]
WHILE_SMALL = [
    helper.make_node("ReduceSum", ["next"], ["total"], keepdims=0),
    helper.make_node("Less", ["total", "bound"], ["again"]),
]
WEIGHTS = [("half", np.float32(0.5)), ("w", np.array([1, 2, 3], np.float32)), ("bound", np.float32(8))]


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_of_a_known_number_of_trips_is_unrolled(trips: int) -> None:
    node = helper.make_node("Loop", ["trips", "", "x"], ["end", "rows"], body=loop_body(ALWAYS))
    subject = model([node], [value("x", [3])], [value("end"), value("rows")], [*WEIGHTS, ("trips", np.array(trips))])
    agrees_with_onnxruntime(subject, {"x": array(3)})


def test_a_loop_that_data_may_end_keeps_its_states_from_then_on() -> None:
    body = loop_body(WHILE_SMALL)
    del body.output[2]
    node = helper.make_node("Loop", ["trips", "c", "x"], ["end"], body=body)
    inputs = [value("x", [3]), value("c", [], BOOL)]
    subject = model([node], inputs, [value("end")], [*WEIGHTS, ("trips", np.array(6))])
    feeds = [{"x": np.full(3, start, np.float32), "c": np.array(c)} for start in (-9, 0, 9) for c in (True, False)]
    agrees_with_onnxruntime(subject, *feeds)


@pytest.mark.parametrize("backward", [0, 1])
def test_a_scan_is_unrolled_over_its_axis(backward: int) -> None:
    nodes = [helper.make_node("Add", ["sum", "item"], ["next"]), helper.make_node("Mul", ["next", "item"], ["row"])]
    body = helper.make_graph(
        nodes, "body", [value("sum", [2]), value("item", [2])], [value("next", [2]), value("row", [2])]
    )
    attributes = {"scan_input_axes": [1], "scan_output_axes": [1], "scan_input_directions": [backward]}
    node = helper.make_node("Scan", ["s", "x"], ["end", "rows"], body=body, num_scan_inputs=1, **attributes)
    subject = model([node], [value("s", [2]), value("x", [2, 5])], [value("end"), value("rows")])
    agrees_with_onnxruntime(subject, {"s": array(2), "x": array(2, 5)})
