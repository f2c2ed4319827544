"""What is wrong with a model, or with what the caller asks for, is named in the error."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from luminal_onnx.importer import check, load
from luminal_onnx.ir import interpreter
from luminal_onnx.plan.errors import InvalidInput, InvalidModel, UnsupportedModel
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def value(name: str, shape=(2, 3), dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, stored=(), opset: int = 17, **options) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "subject", inputs, outputs, list(stored))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **options)


def relu(source: str = "x", result: str = "y", name: str = "r") -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [result], name=name)


def test_all_unsupported_operators_are_reported_at_once() -> None:
    nodes = [
        helper.make_node("TfIdfVectorizer", ["x"], ["a"], name="first"),
        helper.make_node("Bogus", ["x"], ["b"], name="second", domain="com.example"),
        helper.make_node("TfIdfVectorizer", ["x"], ["c"], name="third"),
    ]
    subject = model(nodes, [value("x")], [value(n, None, TensorProto.INT64) for n in "abc"])
    with pytest.raises(UnsupportedModel, match=r"(?s)TfIdfVectorizer, opset 17.*2×: first, third.*com.example.Bogus.*second"):
        load(subject)
    report = check(subject)
    assert not report.ok
    assert [(f.op, f.names) for f in report.findings] == [("TfIdfVectorizer", ["first", "third"]), ("Bogus", ["second"])]
    assert report.to_json()["unsupported"][0]["opset"] == 17


def test_unsupported_nodes_that_no_output_needs_do_not_matter() -> None:
    nodes = [relu(), helper.make_node("TfIdfVectorizer", ["x"], ["unused"], name="n")]
    subject = model(nodes, [value("x")], [value("y")])
    assert check(subject).ok
    assert len(load(subject).graph.outputs) == 1


def test_an_attribute_value_that_is_not_supported_is_named() -> None:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], name="r", mode="linear", antialias=1)
    scales = numpy_helper.from_array(np.array([2, 2], np.float32), "s")
    with pytest.raises(UnsupportedModel, match="Resize, opset 18: attribute antialias=1.*r"):
        load(model([node], [value("x")], [value("y", None)], [scales], opset=18))


def test_an_unknown_attribute_is_named() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="r", slope=0.5)
    with pytest.raises(UnsupportedModel, match="Relu.*attribute 'slope'"):
        load(model([node], [value("x")], [value("y")]))


def test_an_attribute_of_the_wrong_type_is_named() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], name="s", axis=1.5)
    with pytest.raises(InvalidModel, match="'s'.*attribute 'axis' must be of type INT, not float"):
        load(model([node], [value("x")], [value("y")]))


def test_a_missing_required_attribute_is_named() -> None:
    node = helper.make_node("Concat", ["x", "x"], ["y"], name="joined")
    with pytest.raises(InvalidModel, match="'joined'.*required attribute 'axis'"):
        load(model([node], [value("x")], [value("y", None)]))


def test_an_opset_newer_than_onnx_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="opset 999 is newer"):
        load(model([relu()], [value("x")], [value("y")], opset=999))


def test_a_cycle_is_named() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="one"), relu("a", "b", "two")]
    with pytest.raises(InvalidModel, match="'two', 'one'.*cycle"):
        load(model(nodes, [value("x")], [value("b")]))


def test_nodes_in_any_order_are_sorted() -> None:
    graph = load(model([relu("a", "y", "second"), relu("x", "a", "first")], [value("x")], [value("y")])).graph
    array = np.array([[-1, 2, 3]] * 2, np.float32)
    np.testing.assert_array_equal(interpreter.run(graph, {"x": array})[0], np.maximum(array, 0))


@pytest.mark.parametrize(
    "nodes, message",
    [
        ([relu(), relu(name="again")], "'y' is made twice, by node 'again' and by node 'r'"),
        ([relu("x", "x")], "'x' is made twice, by node 'r' and by an input"),
        ([relu("missing")], "node 'r' reads the tensor 'missing'"),
        ([relu("x", "z")], "output 'y' is made by no node"),
    ],
)
def test_tensors_that_are_missing_or_made_twice_are_named(nodes, message: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        load(model(nodes, [value("x")], [value("y")]))


def test_names_that_stand_twice_in_the_signature_are_refused() -> None:
    with pytest.raises(InvalidModel, match="two inputs called 'x'"):
        load(model([relu()], [value("x"), value("x")], [value("y")]))
    with pytest.raises(InvalidModel, match="two outputs called 'y'"):
        load(model([relu()], [value("x")], [value("y"), value("y")]))
    weight = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    with pytest.raises(InvalidModel, match="two initializers called 'w'"):
        load(model([relu("w")], [], [value("y")], [weight, weight]))


@pytest.mark.parametrize(
    "dtype, name",
    [(TensorProto.STRING, "STRING"), (TensorProto.COMPLEX64, "COMPLEX64"), (TensorProto.FLOAT8E4M3FN, "FLOAT8E4M3FN")],
)
def test_element_types_that_kernels_cannot_hold_are_named(dtype: int, name: str) -> None:
    node = helper.make_node("Identity", ["x"], ["y"], name="i")
    with pytest.raises(UnsupportedModel, match=f"input.*{name}.*x"):
        load(model([node], [value("x", dtype=dtype)], [value("y", dtype=dtype)], opset=19))


def test_a_shape_that_only_data_decides_and_nothing_bounds_is_explained() -> None:
    node = helper.make_node("ConstantOfShape", ["s"], ["y"], name="shaped")
    subject = model([node], [value("s", (2,), TensorProto.INT64)], [value("y", None)])
    with pytest.raises(UnsupportedModel, match="'shaped'.*axis 0 of the shape is a number that data decides.*clip it"):
        load(subject)


def test_a_recurrent_input_of_the_wrong_rank_is_invalid_even_where_dims_are_open() -> None:
    weights = [
        numpy_helper.from_array(np.zeros(shape, np.float32), name)
        for name, shape in (("w", (1, 8, 3)), ("r", (1, 8, 2)))
    ]
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="cells", hidden_size=2)
    with pytest.raises(
        InvalidModel, match=r"'cells'.*three axes of sequence, batch and features, not be float32\[5, 3\]"
    ):
        load(model([node], [value("x", (5, 3))], [value("y", None)], weights))
    with pytest.raises(InvalidModel, match="'cells'.*three axes"):
        load(model([node], [value("x", ("steps", 3))], [value("y", None)], weights))


def test_shapes_that_do_not_fit_are_explained() -> None:
    node = helper.make_node("Add", ["x", "z"], ["y"], name="sum")
    with pytest.raises(InvalidModel, match=r"'sum'.*float32\[2, 3\], float32\[2, 4\]"):
        load(model([node], [value("x"), value("z", (2, 4))], [value("y", None)]))
    symbolic = model([node], [value("x", ("A", 3)), value("z", ("B", 3))], [value("y", None)])
    with pytest.raises(UnsupportedModel, match="A and B are not known to be equal"):
        load(symbolic, dims={"A": (1, 5), "B": (1, 7)})

    assert set(load(symbolic, dims={"B": "A"}).graph.ranges) == {"A"}


@pytest.mark.parametrize("data", [b"not a model", b"", b"\xff" * 100])
def test_bytes_that_are_no_model_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidModel):
        load(data)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="nowhere.onnx"):
        load(tmp_path / "nowhere.onnx")


def test_a_model_without_opset_or_outputs_is_refused() -> None:
    subject = model([relu()], [value("x")], [value("y")])
    del subject.opset_import[:]
    with pytest.raises(InvalidModel, match="opset"):
        load(subject)
    with pytest.raises(InvalidModel, match="no outputs"):
        load(model([relu()], [value("x")], []))


def test_a_truncated_initializer_is_named() -> None:
    weight = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    weight.raw_data = weight.raw_data[:-4]
    with pytest.raises(InvalidModel, match="'w'.*needs 24 bytes, 20 are stored"):
        load(model([relu("w")], [], [value("y")], [weight]))


def test_dims_and_shapes_that_do_not_fit_are_refused() -> None:
    subject = model([relu()], [value("x", ("batch", 3))], [value("y", None)])
    with pytest.raises(InvalidInput, match="no dim 'bach'; they have: batch"):
        load(subject, dims={"bach": 3})
    with pytest.raises(InvalidInput, match="no input 'z'"):
        load(subject, shapes={"z": (1, 3)})
    with pytest.raises(InvalidInput, match="has the shape"):
        load(subject, shapes={"x": (1, 4)})
    with pytest.raises(InvalidInput, match="2 axes"):
        load(subject, shapes={"x": (1,)})
    with pytest.raises(InvalidInput, match="min <= opt <= max"):
        load(subject, dims={"batch": (5, 2)})


@pytest.mark.parametrize("thing", [None, 3, ["model.onnx"]])
def test_what_is_no_model_at_all_is_refused(thing: object) -> None:
    with pytest.raises(InvalidInput, match=f"path, the bytes .* not {type(thing).__name__}"):
        load(thing)


def external(location: str, offset: int = 0, length: int = 24) -> TensorProto:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


def saved(folder: Path, tensor: TensorProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model([relu("w")], [], [value("y")], [tensor]).SerializeToString())
    return path


def test_external_data_is_found_beside_the_model_and_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights dir").mkdir()
    array = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    (tmp_path / "weights dir" / "w.bin").write_bytes(b"padding." + array.tobytes())
    monkeypatch.chdir("/")
    graph = load(saved(tmp_path, external("weights dir/w.bin", offset=8))).graph
    np.testing.assert_array_equal(interpreter.run(graph, {})[0], np.maximum(array, 0))


@pytest.mark.parametrize(
    "tensor, message",
    [
        (external("gone.bin"), "does not exist"),
        (external("../outside.bin"), "outside the model's folder"),
        (external("/etc/hostname"), "outside the model's folder"),
        (external("link.bin"), "outside the model's folder"),
        (external("w.bin", offset=8), "which has only 24"),
        (external("w.bin", length=20), "needs 24 bytes, its external data has 20"),
        (external("w.bin", offset=-8), "not a number of bytes"),
        (external(""), "no location"),
    ],
)
def test_external_data_that_is_missing_or_elsewhere_is_refused(
    tmp_path: Path, tensor: TensorProto, message: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(24))
    (folder / "w.bin").write_bytes(bytes(24))
    os.symlink(tmp_path / "outside.bin", folder / "link.bin")
    with pytest.raises(InvalidModel, match=message):
        load(saved(folder, tensor))


def test_external_data_needs_a_path() -> None:
    with pytest.raises(InvalidModel, match="load the model from its path"):
        load(model([relu("w")], [], [value("y")], [external("w.bin")]))


def test_contradicting_output_declarations_only_warn() -> None:
    result = load(model([relu()], [value("x")], [value("y", (2, 4))]))
    assert len(result.summary.warnings) == 1
    assert "declared float[2, 4], but the model computes float32[2, 3]" in result.summary.warnings[0]


def test_a_known_index_outside_the_tensor_is_refused() -> None:
    for index in (3, -4, -(2**40)):
        node = helper.make_node("Gather", ["x", "i"], ["y"], name="taken", axis=1)
        with pytest.raises(InvalidModel, match="'taken'.*outside axis 1"):
            stored = [numpy_helper.from_array(np.array(index), "i")]
            load(model([node], [value("x", ("N", 3))], [value("y", None)], stored))


def test_damaged_files_give_errors_of_ours_only() -> None:
    folder = Path(__file__).parent.parent / "cases"
    sources = [path.read_bytes() for path in sorted(folder.glob("*/model.onnx"))]
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(400):
        data = bytearray(sources[rng.integers(len(sources))])
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        if rng.random() < 0.1:
            del data[rng.integers(len(data)) :]
        try:
            load(bytes(data))
        except (InvalidModel, UnsupportedModel):
            refused += 1
    assert refused > 100


def test_names_that_are_no_text_are_refused() -> None:
    data = model([relu()], [value("x")], [value("y")]).SerializeToString().replace(b"Relu", b"\xff\xfe\xfd\xfc")
    with pytest.raises(InvalidModel, match="not UTF-8"):
        load(data)
