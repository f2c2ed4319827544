"""Operators whose output sizes data decides: values against onnxruntime at several such sizes, none and all included."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from luminal_onnx.importer import load
from luminal_onnx.ir import interpreter
from luminal_onnx.ir.graph import Graph
from luminal_onnx.ir.legality import violations
from luminal_onnx.plan.dims import symbol
from luminal_onnx.plan.errors import InvalidInput
from onnx import TensorProto, helper, numpy_helper
from tolerances import REDUCTION, assert_close

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model(nodes: str, inputs: dict, outputs: str, opset: int = 18, **stored: object) -> onnx.ModelProto:
    """A model from lines such as "y = Add(a, b) axis=1"; inputs map names to (type, shape)."""
    made = []
    for line in filter(None, map(str.strip, nodes.splitlines())):
        results, rest = line.split(" = ")
        op, rest = rest.split("(", 1)
        operands, attributes = rest.split(")", 1)
        given = dict(pair.split("=") for pair in attributes.split())
        names = [name.strip() for name in operands.split(",")] if operands.strip() else []
        outs = [name.strip() for name in results.split(",")]
        made.append(helper.make_node(op, names, outs, **{k: int(v) for k, v in given.items()}))
    graph = helper.make_graph(
        made, "subject",
        [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
        [onnx.ValueInfoProto(name=name.strip()) for name in outputs.split(",")],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(subject: onnx.ModelProto, *feed_sets: dict, vacuous_ok: bool = False, **options: object) -> Graph:
    """The import is legal and gives onnxruntime's outputs for every set of feeds; at least one of them shows something."""
    graph = load(subject, **options).graph
    assert violations(graph) == []
    session = onnxruntime.InferenceSession(subject.SerializeToString())
    for feeds in feed_sets:
        results = interpreter.run(graph, feeds)
        for got, want in zip(results, session.run(None, feeds), strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            assert_close(got, want, REDUCTION, vacuous_ok=True)
    assert vacuous_ok or graph.sizes
    return graph


def sparse(*shape: int, share: float = 0.5, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.uniform(0.5, 1.5, shape) * (rng.random(shape) < share)).astype(np.float32)


SHARES = (0.0, 0.3, 1.0)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (0, 3), (1, 1), (13, 41)])
def test_nonzero(shape: tuple[int, ...]) -> None:
    names = [f"d{axis}" for axis in range(len(shape))]
    subject = model("y = NonZero(x)", {"x": (FLOAT, names)}, "y")
    ranges = {name: (0, 8, 64) for name in names}
    graph = check(subject, *({"x": sparse(*shape, share=share)} for share in SHARES), dims=ranges)
    assert graph.outputs[0].shape == (len(shape), symbol("nonzero"))
    size = graph.sizes["nonzero"]
    assert size.least == 0 and str(size.most) == "*".join(sorted(names))


def test_nonzero_of_many_elements_counts_in_blocks() -> None:
    subject = model("y = NonZero(x)", {"x": (BOOL, [101, 57])}, "y")
    graph = check(subject, *({"x": sparse(101, 57, share=share) > 0} for share in SHARES))
    widest = max(len(node.types[0].shape) for node in graph.nodes())
    assert widest >= 3 and graph.sizes["nonzero"].most == 101 * 57


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(axis: int | None) -> None:
    spelled = "" if axis is None else f" axis={axis}"
    subject = model(f"y = Compress(x, c){spelled}", {"x": (FLOAT, [5, 7]), "c": (BOOL, [5])}, "y")
    x = np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)
    graph = check(subject, *({"x": x, "c": sparse(5, share=share) > 0} for share in SHARES))
    assert graph.sizes["compress"].most == 5


def test_rows_picked_multiplied_and_normalised_over_how_many_there_are() -> None:
    subject = model(
        """places = NonZero(mask)
        column = Transpose(places)
        rows = GatherND(x, column)
        product = MatMul(rows, w)
        y = Softmax(product) axis=0
        shape = Shape(rows)
        s = ReduceSum(product, axes) keepdims=0""",
        {"mask": (BOOL, ["n"]), "x": (FLOAT, ["n", 4])}, "y, shape, s",
        w=np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32), axes=np.array([1]),
    )
    feeds = []
    for n in (1, 5, 11):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        feeds += [{"mask": sparse(n, share=share) > 0, "x": x} for share in SHARES]
    graph = check(subject, *feeds)
    assert set(graph.sizes) == {"nonzero"} and graph.outputs[0].shape == (symbol("nonzero"), 3)


def test_one_mask_used_twice_is_one_size_and_two_masks_are_two() -> None:
    subject = model(
        """a = Compress(x, c) axis=0
        b = Compress(y, c) axis=0
        both = Add(a, b)
        d = Compress(x, e) axis=0
        joined = Concat(both, d) axis=0""",
        {"x": (FLOAT, ["n"]), "y": (FLOAT, ["n"]), "c": (BOOL, ["n"]), "e": (BOOL, ["n"])}, "both, joined",
    )
    rng = np.random.default_rng(3)
    feeds = [
        {"x": rng.standard_normal(6).astype(np.float32), "y": rng.standard_normal(6).astype(np.float32),
         "c": sparse(6, share=first) > 0, "e": sparse(6, share=second, seed=9) > 0}
        for first in SHARES for second in SHARES
    ]
    graph = check(subject, *feeds)
    assert set(graph.sizes) == {"compress", "compress_2"}
    assert graph.outputs[1].shape == (symbol("compress") + symbol("compress_2"),)


def test_taking_an_element_of_what_may_be_nothing_is_an_error_when_it_is_nothing() -> None:
    subject = model(
        "a = Compress(x, c) axis=0\ny = Gather(a, last) axis=0", {"x": (FLOAT, ["n"]), "c": (BOOL, ["n"])}, "y", last=-1
    )
    x = np.arange(5, dtype=np.float32)
    graph = check(subject, {"x": x, "c": x > 2})
    with pytest.raises(InvalidInput, match="'compress'.* is 0, outside of 1..5"):
        interpreter.run(graph, {"x": x, "c": x > 9})
