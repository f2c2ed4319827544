"""A small convolutional network for scikit-learn's 8x8 handwritten digits, and the trained one that ships with the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from .config import BaseConfig, flag, require
from .graph import GraphWriter
from .inputs import sample_inputs

__all__ = ["FULL", "Config", "build", "load_digits", "load_digits_samples", "random_weights", "sample_inputs"]

FULL: dict[str, object] = {}

PIXEL_MAX = 16.0
EPSILON = 1e-5
IMAGE = 8
CLASSES = 10

_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the network; the defaults are those of the trained one."""

    width: int = flag(16, "channels of the first convolution; the second has twice as many")
    hidden: int = flag(64, "width of the fully connected layer")
    dynamic: bool = flag(True, "named batch dim instead of a fixed one")


def build(
    *, weights: Mapping[str, np.ndarray] | None = None, metadata: Mapping[str, object] | None = None, **flags: object
) -> onnx.ModelProto:
    """The network with ``Config(**flags)``: ``image`` [batch, 1, 8, 8] of pixels 0..16 to ``logits`` and ``probabilities`` [batch, 10].

    Without ``weights`` they are random; ``load_digits()`` is the trained model. ``metadata`` is added to ``metadata_props``.
    """
    config = Config(**flags)
    g = GraphWriter("digits", dtype=config.dtype, opset=config.opset, seed=config.seed)
    if weights is None:
        weights = random_weights(g.rng, config.width, config.hidden)
    for name, like in random_weights(np.random.default_rng(0), config.width, config.hidden).items():
        require(name in weights, f"weight {name!r} is missing")
        shape = weights[name].shape
        require(shape == like.shape, f"weight {name!r} has shape {shape}: expected {like.shape}")

    batch = "batch" if config.dynamic else config.batch
    x = g.input("image", g.dtype, [batch, 1, IMAGE, IMAGE])
    x = g.op("Div", x, g.constant(PIXEL_MAX))
    x = _conv(g, "conv1", x, weights["conv1.weight"])
    with g.scope("bn1"):
        fields = ("weight", "bias", "running_mean", "running_var")
        parameters = [g.weight(field, weights[f"bn1.{field}"]) for field in fields]
        x = g.op("BatchNormalization", x, *parameters, epsilon=EPSILON, momentum=0.9)
    x = _pool(g, g.op("Relu", x))
    x = _conv(g, "conv2", x, weights["conv2.weight"], weights["conv2.bias"])
    x = _pool(g, g.op("Relu", x))
    x = g.op("Flatten", x, axis=1)
    x = g.op("Relu", _linear(g, "fc1", x, weights))
    logits = _linear(g, "fc2", x, weights)
    probabilities = g.op("Softmax", logits, axis=1)
    g.output("logits", logits, g.dtype, [batch, CLASSES])
    g.output("probabilities", probabilities, g.dtype, [batch, CLASSES])
    return g.model(batch=config.batch, **(metadata or {}))


def random_weights(rng: np.random.Generator, width: int = 16, hidden: int = 64) -> dict[str, np.ndarray]:
    """He-initialised weights by name: where training starts."""

    def he(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5).astype(np.float32)

    def edges(*shape: int) -> np.ndarray:
        # Filters that sum to zero see strokes rather than brightness, which all images share.
        weight = he(*shape)
        return weight - weight.mean(axis=(1, 2, 3), keepdims=True)

    def small(size: int, mean: float = 0.0) -> np.ndarray:
        return (mean + 0.1 * rng.standard_normal(size)).astype(np.float32)

    features = 2 * width * (IMAGE // 4) ** 2
    return {
        "conv1.weight": edges(width, 1, 3, 3),
        "bn1.weight": small(width, 1.0), "bn1.bias": small(width),
        "bn1.running_mean": small(width), "bn1.running_var": small(width, 0.5) ** 2 + 0.1,
        "conv2.weight": edges(2 * width, width, 3, 3), "conv2.bias": small(2 * width),
        "fc1.weight": he(hidden, features), "fc1.bias": small(hidden),
        "fc2.weight": he(CLASSES, hidden), "fc2.bias": small(CLASSES),
    }  # fmt: skip


def load_digits() -> onnx.ModelProto:
    """The trained model. Its ``metadata_props`` hold the accuracy on the held-out images and how it was trained."""
    return onnx.load(_HERE / "digits.onnx")


def load_digits_samples() -> tuple[np.ndarray, np.ndarray]:
    """Held-out images, float32 [n, 1, 8, 8], and their labels, int64 [n]: none of them was trained on."""
    with np.load(_HERE / "digits_samples.npz") as samples:
        return samples["images"], samples["labels"]


def _conv(g: GraphWriter, name: str, x: str, weight: np.ndarray, bias: np.ndarray | None = None) -> str:
    with g.scope(name):
        parameters = [g.weight("weight", weight)] + ([] if bias is None else [g.weight("bias", bias)])
        return g.op(
            "Conv", x, *parameters, dilations=[1, 1], group=1, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]
        )


def _pool(g: GraphWriter, x: str) -> str:
    return g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=0)


def _linear(g: GraphWriter, name: str, x: str, weights: Mapping[str, np.ndarray]) -> str:
    with g.scope(name):
        parameters = [g.weight(part, weights[f"{name}.{part}"]) for part in ("weight", "bias")]
        return g.op("Gemm", x, *parameters, alpha=1.0, beta=1.0, transB=1)
