"""Ranges that are cut into buckets: where a model means different programs, and where the caller asks for it."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from luminal_onnx.importer import ImportResult, load
from luminal_onnx.ir import interpreter
from luminal_onnx.plan.buckets import MOST_BUCKETS, bucket_of, cover_problem
from luminal_onnx.plan.dims import Range
from luminal_onnx.plan.errors import InvalidInput, InvalidModel, UnsupportedModel
from luminal_onnx.plan.signature import Signature
from luminal_onnx.runtime.input_dims import bind_dims
from onnx import TensorProto, helper, numpy_helper
from tolerances import ELEMENTWISE, assert_close

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name, shape=None, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, stored=(), opset=17):
    tensors = [numpy_helper.from_array(np.array(array), name) for name, array in stored]
    graph = helper.make_graph(nodes, "subject", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def array(*shape):
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def agrees_with_onnxruntime(subject, result: ImportResult, *feed_sets):
    """The program of the bucket that feeds lie in gives onnxruntime's outputs."""
    assert cover_problem(result.ranges, result.buckets) is None
    session = onnxruntime.InferenceSession(subject.SerializeToString())
    for feeds in feed_sets:
        dims = bind_dims(
            Signature(result.inputs, (), result.ranges), [feeds[port.name].shape for port in result.inputs]
        )
        graph = result.graphs[bucket_of(dims, result.buckets)]
        for got, want in zip(interpreter.run(graph, feeds), session.run(None, feeds), strict=True):
            assert_close(got, want, ELEMENTWISE)


def sizes(result, name):
    return [(bucket[name].min, bucket[name].opt, bucket[name].max) for bucket in result.buckets]


def squeezing(*names):
    nodes = [helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("Mul", ["s", "two"], ["y"])]
    return model(nodes, [value("x", [*names, 3])], [value("y")], [("two", np.float32(2))])


def test_squeeze_without_axes_over_a_batch_that_may_be_one():
    subject = squeezing("batch")
    result = load(subject, dims={"batch": (1, 4, 8)})
    assert sizes(result, "batch") == [(1, 1, 1), (2, 4, 8)]
    assert [graph.outputs[0].type.rank for graph in result.graphs] == [1, 2]
    assert "'batch' is split at 2: node '" in result.summary.splits[0]
    assert result.summary.inputs == ["x: float32[batch, 3]"]
    assert result.summary.outputs == ["y: float32[3] or float32[batch, 3]"]
    agrees_with_onnxruntime(subject, result, *({"x": array(batch, 3)} for batch in (1, 2, 7, 8)))
    with pytest.raises(Exception, match="2 programs"):
        _ = result.graph
    assert sizes(load(subject, dims={"batch": (2, 8)}), "batch") == [(2, 2, 8)]
    assert sizes(load(subject), "batch") == [(1, 1, 1), (2, 2, 4096)]


def test_two_dims_that_may_be_one_make_four_buckets_and_zero_is_not_one():
    subject = squeezing("a", "b")
    result = load(subject, dims={"a": (1, 5, 8), "b": (1, 3)})
    assert len(result.buckets) == 4
    agrees_with_onnxruntime(subject, result, *({"x": array(a, b, 3)} for a in (1, 5) for b in (1, 3)))
    assert sizes(load(squeezing("a"), dims={"a": (0, 4)}), "a") == [(0, 0, 0), (1, 1, 1), (2, 2, 4)]


def test_broadcasting_of_dims_that_may_be_one():
    subject = model(
        [helper.make_node("Add", ["x", "y"], ["z"])], [value("x", ["a", 3]), value("y", ["b", 3])], [value("z")]
    )
    result = load(subject, dims={"a": (1, 2), "b": (1, 2)})
    assert len(result.buckets) == 3
    agrees_with_onnxruntime(subject, result, *({"x": array(a, 3), "y": array(b, 3)} for a in (1, 2) for b in (1, 2)))
    assert len(load(subject, dims={"a": (1, 8), "b": 1}).buckets) == 1
    assert load(subject).graph.inputs[1].shape == load(subject).graph.inputs[0].shape  # open dims are taken to be equal
    with pytest.raises(UnsupportedModel, match=r"with a 2\.\.8, b 2\.\.8: .*do not broadcast"):
        load(subject, dims={"a": (1, 8), "b": (1, 8)})


def test_expand_to_a_size_that_may_be_one():
    nodes = [helper.make_node("Shape", ["x"], ["s"], start=0, end=1), helper.make_node("Expand", ["w", "s"], ["e"])]
    nodes.append(helper.make_node("Mul", ["e", "e"], ["y"]))
    subject = model(nodes, [value("x", ["n"]), value("w", ["m"])], [value("y")])
    result = load(subject, dims={"n": (1, 2), "m": (1, 2)})
    assert len(result.buckets) == 3
    agrees_with_onnxruntime(subject, result, *({"x": array(n), "w": array(m)} for n in (1, 2) for m in (1, 2)))


def branching(compare, limit):
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Transpose")):
        branches[name] = helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [value(name)])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node(compare, ["s", "limit"], ["c"]),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    return model(nodes, [value("x", ["n", 3])], [value("y")], [("limit", np.array([limit]))])


@pytest.mark.parametrize(
    "compare, limit, starts", [("Less", 5, [1, 5]), ("Greater", 5, [1, 6]), ("Equal", 5, [1, 5, 6])]
)
def test_a_branch_chosen_by_a_dim(compare, limit, starts):
    subject = branching(compare, limit)
    result = load(subject, dims={"n": (1, 7, 9)})
    assert [low for low, _, _ in sizes(result, "n")] == starts
    agrees_with_onnxruntime(subject, result, *({"x": array(n, 3)} for n in (1, 4, 5, 6, 9)))
    assert len(load(subject, dims={"n": (7, 9)}).buckets) == 1


def test_slices_and_indices_that_count_from_the_end_for_some_sizes():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Sub", ["s", "four"], ["from"]),
        helper.make_node("Slice", ["w", "from", "end"], ["tail"]),
        helper.make_node("Gather", ["w", "from"], ["row"]),
        helper.make_node("Add", ["row", "total"], ["y"]),
    ]
    nodes.insert(3, helper.make_node("ReduceSum", ["tail"], ["total"]))
    stored = [("four", np.array([4])), ("end", np.array([7])), ("w", array(7))]
    subject = model(nodes, [value("x", ["n"])], [value("y")], stored)
    result = load(subject, dims={"n": (1, 3, 8)})
    assert [low for low, _, _ in sizes(result, "n")] == [1, 4]
    agrees_with_onnxruntime(subject, result, *({"x": array(n)} for n in (1, 3, 4, 5, 8)))


def test_sizes_that_the_model_makes_no_sense_at_are_dropped_from_open_dims_and_refused_of_others():
    nodes = [helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("Softmax", ["s"], ["y"], axis=1)]
    subject = model(nodes, [value("x", ["batch", 3])], [value("y")])
    result = load(subject)
    assert sizes(result, "batch") == [(2, 2, 4096)]
    assert any("limited to batch 2..4096: with batch 1, node" in warning for warning in result.summary.warnings)
    with pytest.raises(InvalidInput, match="the model is invalid for batch 1: node .*Softmax"):
        load(subject, dims={"batch": (1, 8)})
    with pytest.raises(InvalidModel, match="^node .*Softmax"):
        load(subject, dims={"batch": 1})


def test_there_is_a_most_number_of_buckets_and_the_dims_at_fault_are_named():
    with pytest.raises(UnsupportedModel, match=f"more than {MOST_BUCKETS} .*fix or narrow a, b, c, d, e with dims="):
        load(squeezing("a", "b", "c", "d", "e", "f"), dims={"f": 2})
    assert len(load(squeezing("a", "b", "c", "d", "e", "f"), dims={"e": 2, "f": 2}).buckets) == MOST_BUCKETS


def plain(*shape):
    return model([helper.make_node("Relu", ["x"], ["y"])], [value("x", list(shape))], [value("y")])


def test_the_caller_cuts_a_dim_into_buckets():
    result = load(plain("batch", "length"), dims={"batch": [(2, 8, 32), 1], "length": [(1, 128), (129, 256, 512)]})
    assert [tuple(bucket.values()) for bucket in result.buckets] == [
        (Range(low, opt, high), length)
        for low, opt, high in ((1, 1, 1), (2, 8, 32))
        for length in (Range(1, 1, 128), Range(129, 256, 512))
    ]
    assert result.ranges == {"batch": Range(1, 8, 32), "length": Range(1, 256, 512)}
    assert [str(dim) for dim in result.graphs[0].inputs[0].shape] == ["1", "length"]


@pytest.mark.parametrize("spec, message", [
    ([1, (3, 8, 32)], "the buckets of 'batch' leave out 2;"),
    ([(1, 4), (9, 32)], r"the buckets of 'batch' leave out 5\.\.8;"),
    ([(1, 4), (4, 32)], "the buckets of 'batch' overlap at 4;"),
    ([(1, 8), (4, 32)], r"the buckets of 'batch' overlap at 4\.\.8;"),
    ([size for size in range(1, MOST_BUCKETS + 2)], "'batch' needs a size"),
    ([(size, size) for size in range(1, MOST_BUCKETS + 2)], f"make {MOST_BUCKETS + 1} buckets, more than the {MOST_BUCKETS}"),
])  # fmt: skip
def test_buckets_that_are_no_range_are_refused(spec, message):
    with pytest.raises(InvalidInput, match=message):
        load(plain("batch", 3), dims={"batch": spec})


def profile(low, opt, high):
    return {"x": (low, opt, high)}


def test_profiles_bound_the_dims_of_inputs_by_their_shapes():
    result = load(plain("batch", 3, "w"), profiles=[profile((1, 3, 5), (8, 3, 7), (32, 3, 9))])
    assert result.buckets == ({"batch": Range(1, 8, 32), "w": Range(5, 7, 9)},)
    fixed = load(plain("batch", 3), profiles=[profile((4, 3), (4, 3), (4, 3))])
    assert fixed.graph.inputs[0].shape == (4, 3) and fixed.ranges == {}
    scaled = load(plain("32*h", "h"), profiles=[profile((32, 1), (64, 2), (320, 10))])
    assert scaled.ranges == {"h": Range(1, 2, 10)}


def test_of_profiles_that_overlap_the_first_keeps_its_sizes():
    profiles = [profile((1, 3), (1, 3), (1, 3)), profile((1, 3), (8, 3), (32, 3))]
    result = load(plain("batch", 3), profiles=profiles)
    assert sizes(result, "batch") == [(1, 1, 1), (2, 8, 32)]
    assert result.ranges == {"batch": Range(1, 8, 32)}


@pytest.mark.parametrize("profiles, message", [
    ([{"z": ((1,), (1,), (1,))}], "profile 0: the model has no input 'z'; it has: x"),
    ([profile((1, 3), (8, 3), (32, 3, 1))], "needs a min, an opt and a max shape of 2 axes"),
    ([profile((1, 3), (8, 4), (32, 4))], "axis 1 of input 'x' is 3 in the model, not 3, 4, 4"),
    ([profile((9, 3), (8, 3), (32, 3))], "must not fall from min to opt to max, got 9, 8, 32"),
    ([profile((1, 3), (2, 3), (2, 3)), profile((4, 3), (8, 3), (8, 3))], "leave a gap: no bucket holds batch 3"),
])  # fmt: skip
def test_profiles_that_do_not_fit_are_refused(profiles, message):
    with pytest.raises(InvalidInput, match=message):
        load(plain("batch", 3), profiles=profiles)


def test_one_dim_has_one_range_and_is_bounded_once():
    with pytest.raises(InvalidInput, match="gives dim 'n' 1:2:9, another axis 1:2:8"):
        load(plain("n", "n"), profiles=[profile((1, 1), (2, 2), (8, 9))])
    with pytest.raises(InvalidInput, match="profile 0 and dims both bound 'n'"):
        load(plain("n", "m"), profiles=[profile((1, 1), (2, 2), (8, 9))], dims={"n": (1, 4)})
    with pytest.raises(InvalidInput, match="axis 0 of input 'x' is 32.h, which is never 40"):
        load(plain("32*h", "h"), profiles=[profile((32, 1), (40, 2), (320, 10))])
