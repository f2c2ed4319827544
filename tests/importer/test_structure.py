"""Dims and their names, shapes that models compute, local functions, and what the summary says."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from luminal_onnx.importer import load
from luminal_onnx.ir import interpreter
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.errors import InvalidInput, InvalidModel, UnsupportedModel
from onnx import TensorProto, helper, numpy_helper, parser
from tolerances import ELEMENTWISE, assert_close

FLOAT = TensorProto.FLOAT


def value(name: str, shape=None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, stored=(), opset: int = 17, functions=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "subject", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in stored])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, functions=list(functions))


def agrees_with_onnxruntime(subject: onnx.ModelProto, *feed_sets: dict) -> None:
    """The symbolic import gives onnxruntime's outputs for every set of feeds."""
    graph = load(subject).graph
    session = onnxruntime.InferenceSession(subject.SerializeToString())
    for feeds in feed_sets:
        for got, want in zip(interpreter.run(graph, feeds), session.run(None, feeds), strict=True):
            assert got.dtype == want.dtype
            assert_close(got, want, ELEMENTWISE, vacuous_ok=True)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_names_of_dims_become_safe_unique_symbols() -> None:
    names = ["p2o.DynamicDimension.0", "p2o_DynamicDimension_0", "0", "max", "batch-size"]
    inputs = [value("x", names), value("y", ["?", None, "", "-1", "batch-size"])]
    inputs[1].type.tensor_type.shape.dim[0].dim_value = -1
    graph = load(model([helper.make_node("Relu", ["x"], ["z"])], inputs, [value("z")])).graph
    first, second = ([str(dim) for dim in shape.shape] for shape in graph.inputs)
    assert first == ["p2o_DynamicDimension_0", "p2o_DynamicDimension_0_2", "x_d2", "dim_max", "batch_size"]
    assert second == ["y_d0", "y_d1", "y_d2", "y_d3", "batch_size"]
    assert all(name.isidentifier() for name in graph.ranges)
    summary = load(model([helper.make_node("Relu", ["x"], ["z"])], inputs, [value("z")])).summary
    assert summary.dims["p2o_DynamicDimension_0"] == "p2o.DynamicDimension.0"


def test_dims_are_fixed_bounded_and_identified_by_their_own_or_their_safe_name() -> None:
    inputs = [value("x", ["a.b", "c", "d"]), value("y", ["e"])]
    subject = model([helper.make_node("Relu", ["x"], ["z"])], inputs, [value("z")])
    graph = load(subject, dims={"a.b": 2, "c": (0, 7), "d": (1, 5, 9), "e": "d"}).graph
    assert graph.inputs[0].shape == (2, symbol("c"), symbol("d"))
    assert graph.inputs[1].shape == (symbol("d"),)
    assert graph.ranges == {"c": Range(0, 1, 7), "d": Range(1, 5, 9)}
    assert load(subject, dims={"a_b": 3}).graph.inputs[0].shape[0] == 3
    assert load(subject, shapes={"x": (1, 2, 3)}).graph.inputs[0].shape == (1, 2, 3)
    assert load(subject, dims={"c": (4, 4)}).graph.inputs[0].shape[1] == 4


def test_a_name_that_is_an_expression_of_other_dims_is_that_expression() -> None:
    inputs = [value("x", ["past", "seq"]), value("y", ["past + seq"]), value("z", ["past + stranger"])]
    shapes = [v.shape for v in load(model([helper.make_node("Relu", ["x"], ["o"])], inputs, [value("o")])).graph.inputs]
    assert shapes[1] == (symbol("past") + symbol("seq"),)
    assert shapes[2] == (symbol("past_stranger"),)


def test_a_dim_may_be_an_expression_of_new_ones() -> None:
    subject = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", ["H", "W"])], [value("y")])
    graph = load(subject, dims={"H": "32*h", "h": (1, 2, 5), "W": "h + 1"}).graph
    assert graph.inputs[0].shape == (32 * symbol("h"), symbol("h") + 1)
    assert graph.ranges == {"h": Range(1, 2, 5)}
    feeds = {"x": array(96, 4)}
    np.testing.assert_array_equal(interpreter.run(graph, feeds)[0], np.maximum(feeds["x"], 0))
    for shape in ((100, 4), (96, 5), (192, 7)):
        with pytest.raises(InvalidInput):
            interpreter.run(graph, {"x": array(*shape)})
    assert load(subject, dims={"H": "32*h", "h": 2}).graph.inputs[0].shape == (64, symbol("W"))
    for text in ("H + 1", "32*", "a//"):
        with pytest.raises(InvalidInput, match="dims: 'H' cannot be"):
            load(subject, dims={"H": text})


SHAPE_PROGRAM = """
<ir_version: 8, opset_import: ["" : 17]>
shapes (float[B, S, 12] x) => (float y, float z, int64 n, float t)
<int64 zero = {0}, int64 one = {1}, int64[1] two = {2}, int64[1] heads = {3}, int64[1] rest = {-1},
 int64[1] axis0 = {0}>
{
    shape = Shape(x)
    batch = Gather(shape, zero)
    length = Gather(shape, one)
    batch1 = Unsqueeze(batch, axis0)
    length1 = Unsqueeze(length, axis0)
    split = Concat <axis = 0> (batch1, length1, heads, rest)
    heads4 = Reshape(x, split)
    turned = Transpose <perm = [0, 2, 1, 3]> (heads4)
    width = Slice(shape, two, heads)
    merged = Concat <axis = 0> (batch1, rest, width)
    y = Reshape(turned, merged)
    total = Mul(batch, length)
    total1 = Unsqueeze(total, axis0)
    half = Div(total1, two)
    filled = ConstantOfShape(half)
    steps = Range(zero, length, one)
    stepsf = Cast <to = 1> (steps)
    grown = Unsqueeze(stepsf, axis0)
    wanted = Concat <axis = 0> (batch1, length1)
    known = Equal(wanted, rest)
    ones = ConstantOfShape <value = int64[1] {1}> (two)
    chosen = Where(known, ones, wanted)
    z = Expand(grown, chosen)
    n = Size(filled)
    fraction = Cast <to = 1> (length)
    four = Constant <value_float = 4.0> ()
    quarter = Div(fraction, four)
    upward = Ceil(quarter)
    count = Cast <to = 7> (upward)
    count1 = Unsqueeze(count, axis0)
    t = ConstantOfShape <value = float[1] {2.5}> (count1)
}
"""


def test_shapes_that_the_model_computes_are_known_at_import() -> None:
    subject = parser.parse_model(SHAPE_PROGRAM)
    graph = load(subject).graph
    y, z, n, t = (output.shape for output in graph.outputs)
    batch, length = symbol("B"), symbol("S")
    assert (y, z, n) == ((batch, length, 12), (batch, length), ())
    assert t == ((length + 3) // 4,)
    agrees_with_onnxruntime(subject, *({"x": array(b, s, 12)} for b, s in ((1, 1), (2, 4), (3, 5), (2, 8))))


def test_local_functions_are_inlined_with_their_attributes_and_optional_inputs() -> None:
    inner = helper.make_function(
        "local",
        "Scaled",
        ["v"],
        ["w"],
        [helper.make_node("LeakyRelu", ["v"], ["w"])],
        [helper.make_opsetid("", 17)],
        ["alpha"],
    )
    reference = inner.node[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    assert reference.ref_attr_name == "slope"
    inner.attribute[:] = ["slope"]
    outer = helper.make_function(
        "local",
        "Twice",
        ["v", "limit"],
        ["w"],
        [
            helper.make_node("Scaled", ["v"], ["a"], domain="local", slope=0.25),
            helper.make_node("Clip", ["a", "", "limit"], ["w"]),
        ],
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
    )
    nodes = [
        helper.make_node("Twice", ["x", "most"], ["y"], domain="local", name="limited"),
        helper.make_node("Twice", ["x"], ["z"], domain="local", name="free"),
    ]
    subject = model(
        nodes, [value("x", [4, 3])], [value("y"), value("z")], [("most", np.float32(0.5))], functions=[inner, outer]
    )
    agrees_with_onnxruntime(subject, {"x": array(4, 3)})
    origins = {name for node in load(subject).graph.nodes() for name in node.origin}
    assert "limited/Scaled_0/LeakyRelu_0" in origins


def test_a_function_that_calls_itself_is_refused() -> None:
    body = [helper.make_node("Loops", ["v"], ["w"], domain="local")]
    function = helper.make_function("local", "Loops", ["v"], ["w"], body, [helper.make_opsetid("local", 1)])
    subject = model(
        [helper.make_node("Loops", ["x"], ["y"], domain="local")], [value("x", [2])], [value("y")], functions=[function]
    )
    with pytest.raises(InvalidModel, match="calls itself"):
        load(subject)


def test_a_table_cut_to_the_length_of_the_input_limits_an_open_dim() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Slice", ["table", "zero", "s"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["y"]),
    ]
    subject = model(nodes, [value("x", ["S", 2])], [value("y")], [("table", array(8, 2)), ("zero", np.array([0]))])
    result = load(subject)
    assert result.graph.ranges["S"] == Range(1, 1, 8)
    assert "'S' is limited to 8" in result.summary.warnings[0]
    agrees_with_onnxruntime(subject, {"x": array(3, 2)}, {"x": array(8, 2)})
    with pytest.raises(InvalidInput, match="the model is invalid for S 9: .*do not broadcast"):
        load(subject, dims={"S": (1, 9)})


def test_open_dims_that_must_be_equal_become_one() -> None:
    nodes = [
        helper.make_node("Add", ["x", "y"], ["s"]),
        helper.make_node("Concat", ["s", "past"], ["all"], axis=1),
        helper.make_node("Mul", ["all", "mask"], ["z"]),
    ]
    inputs = [
        value("x", [None, None]),
        value("y", [None, None]),
        value("past", [None, "P"]),
        value("mask", [None, "T"]),
    ]
    result = load(model(nodes, inputs, [value("z")]))
    batch, steps, past = symbol("x_d0"), symbol("x_d1"), symbol("P")
    assert [v.shape for v in result.graph.inputs] == [
        (batch, steps),
        (batch, steps),
        (batch, past),
        (batch, past + steps),
    ]
    assert "dim 'T' is taken to be P + x_d1: in node 'Mul_2'" in " ".join(result.summary.warnings)
    agrees_with_onnxruntime(
        model(nodes, inputs, [value("z")]),
        {"x": array(2, 3), "y": array(2, 3), "past": array(2, 4), "mask": array(2, 7)},
    )
    with pytest.raises(UnsupportedModel, match="not known to be equal"):  # P would be T - x_d1, which may be negative
        load(model(nodes, inputs, [value("z")]), dims={"T": (1, 9)})


def test_open_dims_that_must_have_some_size_are_narrowed() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "four"], ["r"]),
        helper.make_node("MaxPool", ["y"], ["p"], kernel_shape=[4], strides=[4]),
        helper.make_node("Squeeze", ["p", "last"], ["q"]),
    ]
    stored = [("four", np.array([4, 3])), ("last", np.array([2]))]
    inputs = [value("x", ["N", 3]), value("y", [1, 2, "L"])]
    result = load(model(nodes, inputs, [value("r"), value("q")], stored))
    assert result.graph.inputs[0].shape == (4, 3)
    assert result.graph.ranges == {"L": Range(4, 4, 7)}
    assert len(result.summary.warnings) == 3  # N, and L twice: at least 4, then 4 to 7
    with pytest.raises(UnsupportedModel, match="is squeezed; fix"):
        load(model(nodes, inputs, [value("r"), value("q")], stored), dims={"L": (4, 8)})


def test_a_reshape_that_may_not_fit_is_refused_unless_an_open_dim_can_be_a_multiple() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    subject = model(nodes, [value("x", ["N", 12])], [value("y")], [("shape", np.array([-1, 8]))])
    with pytest.raises(UnsupportedModel, match="as many elements"):
        load(subject, dims={"N": (1, 64)})
    result = load(subject)
    half = symbol("N_by_2")
    assert (result.graph.inputs[0].shape, result.graph.outputs[0].shape) == ((2 * half, 12), (3 * half, 8))
    assert result.ranges == {"N_by_2": Range(1, 1, 2048)}
    assert "dim 'N' is taken to be 2*N_by_2: in node" in result.summary.warnings[0]
    assert load(subject, dims={"N": "2*n"}).graph.outputs[0].shape == (3 * symbol("n"), 8)


def test_initializers_that_are_inputs_too_are_constants() -> None:
    subject = model(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [value("x", [2]), value("w", [2])],
        [value("y")],
        [("w", array(2))],
    )
    assert load(subject).graph.input_names == ["x"]


def test_the_summary_states_the_facts_of_the_file(tmp_path) -> None:
    subject = model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [value("x", ["N", 2])], [value("y")], [("w", array(2))]
    )
    subject.producer_name = "tester"
    path = tmp_path / "m.onnx"
    path.write_bytes(subject.SerializeToString())
    facts = load(path).summary.to_json()
    assert (facts["name"], facts["opset"], facts["nodes"], facts["operators"]) == ("m", 17, 1, {"Add": 1})
    assert (facts["producer"], facts["ir_version"], facts["weight_bytes"]) == ("tester", 9, 8)
    assert facts["inputs"] == ["x: float32[N, 2]"] and facts["outputs"] == ["y: float32[N, 2]"]
    assert len(facts["sha256"]) == 64 and facts["sha256"] == load(path.read_bytes()).summary.sha256
    before = subject.SerializeToString()
    load(subject)
    assert subject.SerializeToString() == before
