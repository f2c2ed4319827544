"""What the command line says of a model whose run decides what comes next."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def halving_model() -> onnx.ModelProto:
    """Halve x as long as its maximum is above 0.1, at most 20 times; collect what there is in between."""
    float_, bool_, int64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
    vector = [helper.make_tensor_value_info(name, float_, ["n"]) for name in ("s", "h", "row")]
    nodes = [
        helper.make_node("Mul", ["s", "half"], ["h"]),
        helper.make_node("ReduceMax", ["h"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "limit"], ["go"]),
        helper.make_node("Identity", ["h"], ["row"]),
    ]
    trip, before, go = (
        helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", int64), ("c", bool_), ("go", bool_))
    )
    body = helper.make_graph(nodes, "body", [trip, before, vector[0]], [go, *vector[1:]])
    loop = helper.make_node("Loop", ["trips", "true", "x"], ["last", "rows"], body=body)
    stored = {"trips": np.int64(20), "true": np.bool_(True), "half": np.float32(0.5), "limit": np.float32(0.1)}
    outputs = [helper.make_tensor_value_info(name, float_, None) for name in ("last", "rows")]
    graph = helper.make_graph(
        [loop], "halving", [helper.make_tensor_value_info("x", float_, ["n"])], outputs,
        [numpy_helper.from_array(np.array(value), name) for name, value in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("control")
    onnx.save(halving_model(), folder / "halving.onnx")
    np.savez(folder / "x.npz", x=np.array([1.0, 0.5, -3.0], np.float32))
    return folder


def test_decisions_are_shown_from_compile_to_run(cli, folder):
    compiled = cli("compile", folder / "halving.onnx", "--arch", "sm_90", "--dim", "n=1:3:8")
    assert compiled.code == 0 and "read back  the condition of loop" in compiled.out, compiled.out
    artifact = folder / "halving.luminal"
    shown = cli("inspect", artifact, "--json").json
    (decision,) = shown["decisions"]
    assert decision.startswith("the condition of loop ") and decision.endswith(" < 20 while true")
    assert shown["format_version"] == 2 and shown["host_ops"] == 0
    assert all(row["inside"] == [decision.removeprefix("the condition of loop ")] for row in shown["steps"])
    told = cli("inspect", artifact).out
    assert "< 20 while true" in told and "read back" in told
    ran = cli("run", artifact, "--device", "cpu", "--loadInputs", folder / "x.npz", "--json")
    found = ran.json
    assert found["read_backs"] == 5  # before the first trip and after each of four: 0.5, 0.25, 0.125, 0.0625
    shapes = {row["name"]: row["shape"] for row in found["outputs"]}
    assert shapes == {"last": [3], "rows": [4, 3]}
    assert "5 scalars read back" in cli("run", artifact, "--device", "cpu", "--loadInputs", folder / "x.npz").out
