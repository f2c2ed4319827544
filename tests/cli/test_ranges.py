"""Ranges on the command line and in Python: buckets, trtexec's profiles, what is printed of them, and runs in each."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from luminal_onnx import InferenceSession, compile
from luminal_onnx.options import parse_dims, parse_profiles, parse_shapes
from luminal_onnx.plan.errors import InvalidInput, UnsupportedModel
from onnx import TensorProto, helper, numpy_helper
from small_models import mlp_model, one_graph
from tolerances import REDUCTION, assert_close


def test_dims_are_sizes_ranges_expressions_or_lists_of_them():
    assert parse_dims(["batch=1,2:8:32"]) == {"batch": [1, (2, 8, 32)]}
    assert parse_dims(["batch=1:1:1,2:8:32,H=32*h", "h=1:4"]) == {
        "batch": [(1, 1, 1), (2, 8, 32)],
        "H": "32*h",
        "h": (1, 4),
    }
    for wrong in ("1:2", "batch=1:2,x", "batch=1,32*h", "batch=1,=3", "batch=1,", "batch=1,9:8"):
        with pytest.raises(InvalidInput, match="--dim"):
            parse_dims([wrong])


def test_profiles_are_read_as_trtexec_reads_them():
    low, opt, high = ["x:1x3,y:scalar"], ["x:8x3,y:scalar"], ["x:32x3,y:scalar"]
    assert parse_profiles(low, opt, high) == [{"x": ([1, 3], [8, 3], [32, 3]), "y": ([], [], [])}]
    assert parse_profiles([], opt, []) == [{"x": ([8, 3], [8, 3], [8, 3]), "y": ([], [], [])}]
    assert parse_profiles([], [], []) == []
    assert parse_shapes(["'x:0':1x3"]) == {"x:0": [1, 3]}
    assert len(parse_profiles(low * 2, opt * 2, high * 2, [0, 1])) == 2
    for arguments, message in (
        ((low, [], []), "were given 1, 0 and 0 times: every profile needs all three"),
        ((low, opt * 2, high), "were given 1, 2 and 1 times"),
        ((["x:1x3"], opt, ["x:32x3"]), "profile 0 lacks input 'y' in --minShapes and --maxShapes"),
        ((["x:1by3"], opt, high), "--minShapes 'x:1by3' is not NAME:1x3x224x224"),
        ((low, opt, high, [1]), "--profile was given as 1: number the 1 profiles from 0"),
    ):
        with pytest.raises(InvalidInput, match=message):
            parse_profiles(*arguments)


def reference(model):
    return onnxruntime.InferenceSession(model.SerializeToString())


def feed(*shape):
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def test_a_batch_of_one_gets_a_plan_of_its_own(cli, model, tmp_path):
    target = tmp_path / "mlp.luminal"
    done = cli("compile", model, "-o", target, "--dim", "batch=1,2:8:32", "--arch", "sm_90")
    assert done.code == 0
    for text in ("batch 1..32 (opt 8)", "buckets  batch 1; ", "batch 2..32 (opt 8); ", "at batch=1; batch=2"):
        assert text in done.out, text
    found = cli("inspect", target, "--json").json
    assert found["format_version"] == 2 and found["dims"] == {"batch": [1, 8, 32]}
    assert [bucket["dims"] for bucket in found["buckets"]] == [{"batch": [1, 1, 1]}, {"batch": [2, 8, 32]}]
    assert [list(bucket["peak_bytes"]) for bucket in found["buckets"]] == [["min", "opt", "max"]] * 2
    assert found["buckets"][1]["peak_bytes"]["max"] == found["peak_bytes"]["max"] > found["peak_bytes"]["min"]
    assert {step["bucket"] for step in found["steps"]} == {0, 1} and found["default_dims"] == []
    expected = reference(mlp_model())
    with InferenceSession(target, device="cpu") as session:
        assert session.get_outputs()[0].shape == ["batch", 4]
        for batch in (1, 2, 31, 32):
            x = feed(batch, 16)
            assert_close(session.run(None, {"x": x})[0], expected.run(None, {"x": x})[0], REDUCTION)
        with pytest.raises(InvalidInput, match=r"Expected: batch in 1\.\.32 Got: 33"):
            session.run(None, {"x": feed(33, 16)})
    assert cli("run", target, "--device", "cpu", "--dim", "batch=7").code == 0
    assert cli("verify", target, model).code == 0


def test_profiles_are_buckets_and_the_first_that_fits_is_run(cli, model, tmp_path):
    target = tmp_path / "mlp.luminal"
    one = ["--profile=0", "--minShapes=x:1x16", "--optShapes=x:1x16", "--maxShapes=x:1x16"]
    many = ["--profile=1", "--minShapes=x:1x16", "--optShapes=x:8x16", "--maxShapes=x:32x16"]
    common = ["compile", model, "-o", target, "--arch", "sm_90", "--no-verify", "--json"]
    found = cli(*common, *one, *many).json
    assert found["dims"] == {"batch": [1, 8, 32]}
    assert [bucket["dims"]["batch"] for bucket in found["buckets"]] == [[1, 1, 1], [2, 8, 32]]
    assert cli(*common, "--optShapes", "x:8x16").json["inputs"] == ["x: float32[8, 16]"]
    assert cli(*common, *many[1:]).json["dims"] == {"batch": [1, 8, 32]}
    both = cli(*common, *many[1:], "--dim", "batch=4")
    assert both.code == 4 and "profile 0 and dims both bound 'batch'" in both.err
    partial = cli(*common, *many[1:3])
    assert partial.code == 4 and "every profile needs all three" in partial.err


def test_defaults_are_printed_with_the_way_to_bound_them(cli, model, tmp_path):
    done = cli("compile", model, "-o", tmp_path / "mlp.luminal", "--arch", "sm_90", "--no-verify")
    assert "batch 1..4096 (opt 1, default)" in done.out
    assert re.search(r"--dim batch=1:8:32 +# say which sizes to be fast at", done.out)


def changing_rank() -> onnx.ModelProto:
    """A product of a batch that may be 1, squeezed without axes, then softmax."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
        helper.make_node("Squeeze", ["h"], ["s"], name="drop"),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1, name="soft"),
    ]
    return one_graph(nodes, {"x": ("batch", 16)}, {"y": None}, {"w": 0.3 * feed(16, 5)})


def branching() -> onnx.ModelProto:
    """Short inputs are squared and long ones summed up."""
    branches = {
        "then_branch": ([helper.make_node("Mul", ["x", "x"], ["a"])], "a"),
        "else_branch": ([helper.make_node("ReduceSum", ["x", "axis"], ["b"])], "b"),
    }
    graphs = {
        name: helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)])
        for name, (nodes, output) in branches.items()
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["size"], start=0, end=1),
        helper.make_node("Less", ["size", "limit"], ["short"]),
        helper.make_node("If", ["short"], ["y"], **graphs),
    ]
    model = one_graph(nodes, {"x": ("n", 6)}, {"y": None})
    for name, array in (("axis", np.array([0])), ("limit", np.array([5]))):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def adding() -> onnx.ModelProto:
    return one_graph([helper.make_node("Add", ["x", "z"], ["y"])], {"x": ("a", 7), "z": ("b", 7)}, {"y": None})


CHANGING = {
    "squeeze": (changing_rank(), {"batch": (1, 4, 8)}, [{"x": (batch, 16)} for batch in (1, 2, 7, 8)], None),
    "if": (branching(), {"n": (1, 3, 11)}, [{"x": (n, 6)} for n in (1, 4, 5, 11)], [None, 6]),
    "broadcast": (
        adding(),
        {"a": (1, 2), "b": (1, 2)},
        [{"x": (a, 7), "z": (b, 7)} for a in (1, 2) for b in (1, 2)],
        [None, 7],
    ),
}


@pytest.mark.parametrize("model, dims, shapes, told", CHANGING.values(), ids=CHANGING)
def test_models_that_mean_other_programs_at_other_sizes_run_right_at_all_of_them(model, dims, shapes, told):
    expected = reference(model)
    with compile(model, dims=dims, arches=["sm_90"]) as artifact:
        assert artifact.manifest["verification"]["status"] == "passed"
        assert len(artifact.buckets) > 1
        with InferenceSession(artifact, device="cpu") as session:
            assert session.get_outputs()[0].shape == told
            for case in shapes:
                feeds = {name: feed(*shape) for name, shape in case.items()}
                (got,), (want,) = session.run(None, feeds), expected.run(None, feeds)
                assert got.shape == want.shape
                assert_close(got, want, REDUCTION)


def test_buckets_share_weights_and_kernels_of_equal_text():
    with compile(mlp_model(), dims={"batch": [(1, 4, 8), (9, 10, 64)]}, arches=["sm_90"], verify=False) as artifact:
        small, large = artifact.plans("sm_90")
        weights = [{b.name for b in plan.buffers if b.kind == "weight"} for plan in (small, large)]
        assert weights[0] == weights[1] == set(artifact.weights)
        sources = {step.kernel.source for plan in (small, large) for step in plan.steps() if hasattr(step, "kernel")}
        assert len([name for name in artifact.sections if name.startswith("src/")]) == len(sources)


def test_too_many_programs_name_the_dims_to_fix(cli, tmp_path):
    names = ["a", "b", "c", "d", "e"]
    subject = one_graph([helper.make_node("Squeeze", ["x"], ["y"])], {"x": (*names, 3)}, {"y": None})
    onnx.save(subject, tmp_path / "many.onnx")
    done = cli("compile", tmp_path / "many.onnx", "--no-verify")
    assert done.code == UnsupportedModel.exit_code
    assert "more than 16 different programs over its range; fix or narrow a, b, c, d, e with dims=" in done.err
