"""NonMaxSuppression: the very boxes that onnxruntime picks, in its order."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from luminal_onnx.importer import load
from luminal_onnx.ir import interpreter
from luminal_onnx.ir.graph import Graph
from onnx import TensorProto, helper, numpy_helper


def subject(boxes: list, scores: list, by_center: bool = False, most: int | None = None, **stored: float) -> onnx.ModelProto:
    """A model of one node; `most` is stored, or an input if None; thresholds that are not given are left out."""
    names = ["boxes", "scores", "most", *(name if name in stored else "" for name in ("iou", "score"))]
    node = helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=int(by_center))
    inputs = [
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, boxes),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, scores),
    ]
    tensors = [numpy_helper.from_array(np.array([value], np.float32), name) for name, value in stored.items()]
    if most is None:
        inputs.append(helper.make_tensor_value_info("most", TensorProto.INT64, [1]))
    else:
        tensors.append(numpy_helper.from_array(np.array([most]), "most"))
    graph = helper.make_graph([node], "nms", inputs, [onnx.ValueInfoProto(name="y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def feeds(batch: int, classes: int, count: int, seed: int = 0, by_center: bool = False) -> dict[str, np.ndarray]:
    """Boxes around few places, so that many overlap; scores on a grid, so that many are equal."""
    rng = np.random.default_rng(seed)
    middle = rng.integers(0, 3, (batch, count, 2)) + rng.uniform(-0.3, 0.3, (batch, count, 2))
    size = rng.uniform(0.2, 1.2, (batch, count, 2))
    boxes = np.concatenate([middle, size] if by_center else [middle - size / 2, middle + size / 2], 2)
    if not by_center:  # any two opposite corners will do
        flipped = rng.random((batch, count)) < 0.3
        boxes[flipped] = boxes[flipped][:, [2, 3, 0, 1]]
    scores = rng.integers(0, 12, (batch, classes, count)) / 12
    return {"boxes": boxes.astype(np.float32), "scores": scores.astype(np.float32)}


def check(model: onnx.ModelProto, *feed_sets: dict, least: int = 1) -> Graph:
    graph = load(model).graph
    session = onnxruntime.InferenceSession(model.SerializeToString())
    found = 0
    for fed in feed_sets:
        (got,), (want,) = interpreter.run(graph, fed), session.run(None, fed)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
        found += len(want)
    assert found >= least
    return graph


@pytest.mark.parametrize("by_center", [False, True])
@pytest.mark.parametrize("iou", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("score", [None, 0.4, 2.0])
def test_thresholds(by_center: bool, iou: float, score: float | None) -> None:
    given = {"iou": iou} if score is None else {"iou": iou, "score": score}
    model = subject([2, 11, 4], [2, 3, 11], by_center, 4, **given)
    graph = check(model, *(feeds(2, 3, 11, seed, by_center) for seed in range(4)), least=0 if score == 2.0 else 30)
    (size,) = graph.sizes.values()
    assert size.most == 2 * 3 * 4


def test_more_than_there_are_boxes_and_boxes_without_area() -> None:
    model = subject([1, 5, 4], [1, 1, 5], most=1000, iou=0.5)
    fed = feeds(1, 1, 5)
    fed["boxes"][0, 2:, 2:] = fed["boxes"][0, 2:, :2]
    check(model, fed)


def test_none_are_picked_where_no_number_is_given() -> None:
    model = subject([1, 5, 4], [1, 1, 5], most=1, iou=0.5)
    del model.graph.node[0].input[2:]
    assert interpreter.run(load(model).graph, feeds(1, 1, 5))[0].shape == (0, 3)
