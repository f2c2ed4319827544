"""Weights for the light zoo models, whose own are all one number and prove nothing: seeded, He-normal.

Those models fill weights by ConstantOfShape nodes. Each such node is replaced by an initializer that suits what reads it, and so
are the few weights that are stored, which were made to go with others.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

FLOAT = onnx.TensorProto.FLOAT

# What a parameter of BatchNormalization is, by its place among the inputs: scale, bias, mean, variance.
_NORMALIZATION = {1: (1.0, 0.1), 2: (0.0, 0.1), 3: (0.0, 0.1), 4: (1.0, 0.1)}
_THROUGH = ("Unsqueeze", "Reshape")  # a weight may be reshaped on its way

# What belongs to a layer besides its product, and by what its weights make up for what comes after: a Relu halves squares; sums
# of branches of full size would grow from block to block until one class takes the whole softmax.
_LAYER = ("Conv", "Gemm", "BatchNormalization", "Mul", "Add")
_GAINS = {"Relu": 2.0, "Sum": 0.25}


def with_seeded_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """Return a copy of the model in which no weight is constant-filled."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, place))
    rng = np.random.default_rng(seed)
    weights = {
        tensor.name: tensor.dims for tensor in graph.initializer if tensor.data_type == FLOAT and tensor.name in readers
    }
    kept = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            weights[node.output[0]] = shapes[node.input[0]]
        else:
            kept.append(node)
    others = [tensor for tensor in graph.initializer if tensor.name not in weights]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(others)
    for name, sizes in weights.items():
        values = _values(rng, tuple(map(int, sizes)), *_reader(readers, name), _gain(readers, name))
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    return changed


def _reader(readers: dict[str, list[tuple[onnx.NodeProto, int]]], name: str) -> tuple[str, int]:
    """Return the operator that a weight is for and its place there, looking through reshapes."""
    node, place = readers[name][0]
    if node.op_type in _THROUGH and place == 0:
        return _reader(readers, node.output[0])
    return node.op_type, place


def _gain(readers: dict[str, list[tuple[onnx.NodeProto, int]]], weight: str) -> float:
    """Return how much the layer with this weight shall grow variances: as much as what comes after it takes away."""
    name = weight
    while len(readers.get(name, ())) == 1:
        (node, _) = readers[name][0]
        if node.op_type in _GAINS:
            return _GAINS[node.op_type]
        if node.op_type not in _LAYER:
            break
        name = node.output[0]
    return 1.0


def _values(rng: np.random.Generator, shape: tuple[int, ...], operator: str, place: int, gain: float) -> np.ndarray:
    if operator == "BatchNormalization":
        mean, deviation = _NORMALIZATION[place]
        return mean + deviation * rng.uniform(-1, 1, shape)
    if operator == "Mul":
        return 1 + 0.1 * rng.uniform(-1, 1, shape)
    if len(shape) == 1:  # a bias
        return 0.1 * rng.uniform(-1, 1, shape)
    return np.sqrt(gain / np.prod(shape[1:])) * rng.standard_normal(shape)
