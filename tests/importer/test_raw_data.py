"""Large weights are read where they lie in the file: the parsed model lacks them, the imported one has every bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from luminal_onnx.importer import load
from luminal_onnx.importer.protobuf import read
from luminal_onnx.importer.raw_data import LEAST_BYTES, without_large_weights
from luminal_onnx.plan.errors import InvalidModel

ROWS = LEAST_BYTES // 4


def model(*initializers: TensorProto, inner: onnx.GraphProto | None = None) -> onnx.ModelProto:
    """A model that adds up x times its initializers, and times a branch's if there is one."""
    nodes, sums = [], []
    for number, tensor in enumerate(initializers):
        nodes += times_x(tensor.name, f"sum{number}")
        sums.append(f"sum{number}")
    if inner is not None:
        condition = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
        nodes += [condition, helper.make_node("If", ["yes"], ["chosen"], then_branch=inner, else_branch=inner)]
        sums.append("chosen")
    nodes.append(helper.make_node("Sum", [*sums, "x"], ["y"]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in "xy")
    graph = helper.make_graph(nodes, "sums", [x], [y], initializer=list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="a producer")


def times_x(name: str, result: str) -> list[onnx.NodeProto]:
    times = helper.make_node("Mul", [name, "x"], [f"{result}_terms"])
    return [times, helper.make_node("ReduceSum", [f"{result}_terms"], [result], keepdims=0)]


def weight(name: str, rows: int = ROWS, seed: int = 0) -> TensorProto:
    return numpy_helper.from_array(np.random.default_rng(seed).standard_normal(rows).astype(np.float32), name)


def constants(model_or_bytes: object) -> dict[str, np.ndarray]:
    nodes = load(model_or_bytes).graph.nodes()
    return {node.origin[0]: node.attrs["data"] for node in nodes if node.op == "constant"}


def test_large_weights_are_left_out_of_what_is_parsed():
    data = model(weight("large"), weight("small", 10), weight("larger", 3 * ROWS + 1, 1)).SerializeToString()
    light, weights = without_large_weights(memoryview(data))
    assert set(weights) == {"large", "larger"} and len(weights["larger"]) == 4 * (3 * ROWS + 1)
    assert len(light) < 1000
    parsed = onnx.ModelProto.FromString(bytes(light))
    assert [len(tensor.raw_data) for tensor in parsed.graph.initializer] == [0, 40, 0]
    again = onnx.ModelProto.FromString(data)
    for tensor in again.graph.initializer:
        if tensor.name in weights:
            tensor.raw_data = b""
    assert parsed == again  # nothing else was lost or moved


@pytest.mark.parametrize("shift", range(4))
def test_every_bit_arrives_wherever_it_lies(shift: int, tmp_path):
    """Names of different lengths put the bytes at addresses that are no multiples of their size."""
    tensors = [weight("w" + "x" * shift, ROWS + 7, 3), weight("v", 2 * ROWS, 4)]
    path = tmp_path / "model.onnx"
    onnx.save(model(*tensors), path)
    for source in (path, path.read_bytes(), model(*tensors)):
        found = constants(source)
        for tensor in tensors:
            assert np.array_equal(found[tensor.name], numpy_helper.to_array(tensor))
    assert read(path).sha256 == read(path.read_bytes()).sha256


def test_a_branch_keeps_its_own_weight_of_the_same_name():
    own = weight("w", 2 * ROWS, 5)
    result = helper.make_tensor_value_info("total", TensorProto.FLOAT, [])
    inner = helper.make_graph(times_x("w", "total"), "branch", [], [result], initializer=[own])
    outer = weight("w", ROWS, 6)
    found = load(model(outer, inner=inner).SerializeToString()).graph.nodes()
    sizes = {node.attrs["data"].size: node.attrs["data"] for node in found if node.op == "constant"}
    assert np.array_equal(sizes[2 * ROWS], numpy_helper.to_array(own))
    assert np.array_equal(sizes[ROWS], numpy_helper.to_array(outer))


def test_damaged_files_are_left_to_the_parser():
    data = model(weight("large")).SerializeToString()
    for cut in (1, len(data) // 2, len(data) - 1):
        assert without_large_weights(memoryview(data[:cut])) == (data[:cut], {})
        with pytest.raises(InvalidModel, match="protobuf is damaged|holds no graph"):
            read(data[:cut])
    twice = model(weight("large"), weight("large", seed=1)).SerializeToString()
    assert without_large_weights(memoryview(twice)) == (twice, {})
    with pytest.raises(InvalidModel, match="two initializers called 'large'"):
        load(twice)


def test_too_few_bytes_are_told():
    short = weight("short")
    short.dims[0] += 1
    with pytest.raises(InvalidModel, match=f"needs {4 * ROWS + 4} bytes, {4 * ROWS} are stored"):
        load(model(short).SerializeToString())


def test_an_empty_file_is_no_model(tmp_path):
    path = tmp_path / "empty.onnx"
    path.touch()
    with pytest.raises(InvalidModel, match="holds no graph"):
        read(path)
