"""ONNX models of a few nodes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def mlp_model() -> onnx.ModelProto:
    """Gemm, Relu, MatMul over a symbolic batch."""
    rng = np.random.default_rng(5)
    weights = {"w1": (16, 32), "b1": (32,), "w2": (32, 4)}
    return one_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="fc1"),
            helper.make_node("Relu", ["h"], ["a"], name="act"),
            helper.make_node("MatMul", ["a", "w2"], ["y"], name="fc2"),
        ],
        {"x": ("batch", 16)},
        {"y": ("batch", 4)},
        {name: 0.3 * rng.standard_normal(shape).astype(np.float32) for name, shape in weights.items()},
    )


def gemm_relu_model(rows: int, width: int) -> onnx.ModelProto:
    """Gemm with a bias and Relu."""
    rng = np.random.default_rng(6)
    weights = {"w": (width, width), "b": (width,)}
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in weights.items()}
    return one_graph(nodes, {"x": (rows, width)}, {"y": (rows, width)}, arrays)


def one_graph(nodes, inputs, outputs, weights=None) -> onnx.ModelProto:
    """A float32 model of opset 17."""
    values = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports.items()]
        for ports in (inputs, outputs)
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "small", *values, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
