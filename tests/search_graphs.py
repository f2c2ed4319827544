"""Graphs for the tests of the search: small, of known structure, with seeded weights and feeds."""

from __future__ import annotations

import numpy as np

from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.graph import Graph, Value
from luminal_onnx.plan.dims import Dim, Range, evaluate, symbol
from luminal_onnx.plan.dtypes import DType, float32, int64


class Net(Builder):
    """A builder with a seed, and the layers that networks are made of."""

    def __init__(self, name: str = "net", ranges: dict[str, Range] | None = None, seed: int = 0) -> None:
        super().__init__(name, ranges or {})
        self.random = np.random.default_rng(seed)

    def weight(self, *shape: int, dtype: DType = float32, scale: float | None = None) -> Value:
        scale = shape[0] ** -0.5 if scale is None else scale
        return self.constant((self.random.standard_normal(shape) * scale).astype(dtype.numpy))

    def spread(self, x: Value, like: Value) -> Value:
        return self.expand(x, like.shape)

    def linear(self, x: Value, outputs: int, bias: bool = True) -> Value:
        y = self.matmul(x, self.weight(x.shape[-1], outputs, dtype=x.dtype))
        return self("add", y, self.spread(self.weight(outputs, dtype=x.dtype, scale=0.5), y)) if bias else y

    def layer_norm(self, x: Value) -> Value:
        last, width = x.type.rank - 1, x.shape[-1]
        centred = self("sub", x, self.spread(self.mean(x, [last], True), x))
        variance = self.mean(self("mul", centred, centred), [last], True)
        scale = self("rsqrt", self("add", variance, 1e-5))
        normal = self("mul", centred, self.spread(scale, x))
        normal = self("mul", normal, self.spread(self.weight(width, dtype=x.dtype, scale=1.0), x))
        return self("add", normal, self.spread(self.weight(width, dtype=x.dtype, scale=0.5), x))

    def gelu(self, x: Value) -> Value:
        return self("mul", self("mul", x, self("add", self("erf", self("mul", x, 0.5**0.5)), 1.0)), 0.5)

    def attention(self, x: Value, heads: int) -> Value:
        *lead, width = x.shape
        size = width // heads
        q, k, v = (self.reshape(self.linear(x, width), (*lead, heads, size)) for _ in range(3))
        order = [0, 2, 1, 3] if len(lead) == 2 else [1, 0, 2]
        q, k, v = (self.transpose(y, order) for y in (q, k, v))
        flip = [*range(len(order) - 2), len(order) - 1, len(order) - 2]
        scores = self("mul", self.matmul(q, self.transpose(k, flip)), size**-0.5)
        mixed = self.matmul(self.softmax(scores, len(order) - 1), v)
        return self.linear(self.reshape(self.transpose(mixed, order), x.shape), width)

    def encoder_layer(self, x: Value, heads: int) -> Value:
        x = self.layer_norm(self("add", self.attention(x, heads), x))
        hidden = self.gelu(self.linear(x, 2 * x.shape[-1]))
        return self.layer_norm(self("add", self.linear(hidden, x.shape[-1]), x))


def encoder(
    layers: int = 1, batch: Dim = 2, length: Dim = 5, width: int = 8, heads: int = 2, ranges=None, dtype=float32
) -> Graph:
    """A transformer encoder on [batch, length, width]."""
    net = Net("encoder", ranges)
    x = net.input("x", dtype, (batch, length, width))
    for layer in range(layers):
        net.origin = (f"layer.{layer}",)
        x = net.encoder_layer(x, heads)
    net.output("y", x)
    return net.graph


def symbolic_encoder(layers: int = 1, **sizes: int) -> Graph:
    """The same with named batch and length."""
    ranges = {"batch": Range(1, 2, 8), "length": Range(1, 5, 64)}
    return encoder(layers, symbol("batch"), symbol("length"), ranges=ranges, **sizes)


def convolutional(maps: int = 4, size: int = 7) -> Graph:
    """Convolution, scale and shift, residual, pooling, a linear layer and a softmax."""
    net = Net("convolutional")
    x = net.input("x", float32, (2, 3, size, size))
    x = net.conv(x, net.weight(maps, 3, 3, 3, scale=0.3), (1, 1), (1, 1), (1, 1), (1, 1))
    scale = net.expand(net.reshape(net.weight(maps, scale=1.0), (maps, 1, 1)), x.shape)
    x = net("max", net("mul", x, scale), 0.0)
    y = net.conv(x, net.weight(maps, maps, 3, 3, scale=0.3), (1, 1), (1, 1), (1, 1), (1, 1))
    x = net("max", net("add", x, y), 0.0)
    x = net.pool_max(x, (2, 2), (2, 2), (0, 0), (0, 0), (1, 1))
    x = net.conv(x, net.weight(2 * maps, maps, 1, 1, scale=0.5), (1, 1), (0, 0), (0, 0), (1, 1))
    x = net.reshape(net.mean(x, [2, 3]), (2, 2 * maps))
    net.output("classes", net.softmax(net.linear(x, 5), 1))
    return net.graph


def indexing() -> Graph:
    """An embedding, concatenation, a scatter and integer arithmetic: what is not a matrix product."""
    net = Net("indexing")
    ids = net.input("ids", int64, (2, 4))
    x = net.take(net.weight(9, 6, scale=1.0), ids, 0)
    place = net.cast(net.iota_along(x.shape, 1), float32)
    x = net("add", x, net("sin", place))
    x = net.concat([x, net("neg", x)], 2)
    rows = net.constant(np.array([0, 5, 5, 90], dtype=np.int64))
    x = net.scatter_flat(x, rows, net.constant(np.array([1.0, 2.0, 3.0, 4.0], dtype=np.float32)), "add")
    net.output("x", x)
    net.output("total", net.reduce("sum", x, [1]))
    net.output("same", ids)
    net.output("best", net.argmax(x, 2))
    return net.graph


def feeds_for(graph: Graph, dims: dict[str, int] | None = None, seed: int = 1) -> dict[str, np.ndarray]:
    """Random feeds of O(1); integers below 9."""
    random = np.random.default_rng(seed)
    feeds = {}
    for name, value in zip(graph.input_names, graph.inputs):
        shape = tuple(int(evaluate(extent, dims or {})) for extent in value.shape)
        if value.dtype.is_float:
            feeds[name] = random.standard_normal(shape).astype(value.dtype.numpy)
        else:
            feeds[name] = random.integers(0, 9, shape).astype(value.dtype.numpy)
    return feeds
