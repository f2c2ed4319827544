"""Graphs around one matrix product, for the tests of what a library call may take in."""

from __future__ import annotations

import math
from collections.abc import Callable

from search_graphs import Net
from search_tools import built

from luminal_onnx.ir.graph import Graph, Value
from luminal_onnx.plan.dtypes import DType, float16, float32

After = Callable[[Net, Value], Value]


def product_then(
    after: After, dtype: DType = float32, sizes: tuple[int, int, int] = (7, 11, 5), batch: int = 0
) -> tuple[Graph, Value]:
    """Return `after` of the product of two inputs; sizes are rows, columns, depth."""
    rows, columns, depth = sizes
    lead = (batch,) if batch else ()

    def make(net: Net) -> Value:
        x, y = net.input("x", dtype, (*lead, rows, depth)), net.input("y", dtype, (*lead, depth, columns))
        return after(net, net.matmul(x, y))

    graph, (result,) = built(make)
    return graph, result


def matrix(net: Net, like: Value, name: str = "c") -> Value:
    return net.input(name, like.dtype, like.shape)


def bias(net: Net, like: Value, name: str = "b") -> Value:
    return net.spread(net.input(name, like.dtype, like.shape[-1:]), like)


def relu(net: Net, x: Value) -> Value:
    return net("max", x, 0.0)


def tanh_gelu(net: Net, x: Value, half: str = "first", cube: str = "mul") -> Value:
    """The approximation by tanh as exporters spell it: where the half stands, and how the cube is made."""
    third = net("pow", x, 3.0) if cube == "pow" else net("mul", net("mul", x, x), x)
    inner = net("mul", net("add", x, net("mul", third, 0.044715)), math.sqrt(2 / math.pi))
    gate = net("add", net("tanh", inner), 1.0)
    if half == "first":
        return net("mul", net("mul", x, 0.5), gate)
    return net("mul", x, net("mul", gate, 0.5)) if half == "gate" else net("mul", net("mul", x, gate), 0.5)


def every_link() -> Graph:
    """Products in which each rule about library calls has something to do."""

    def make(net: Net) -> tuple[Value, ...]:
        def product(number: int, dtype: DType = float32) -> Value:
            return net.matmul(net.input(f"x{number}", dtype, (7, 5)), net.input(f"y{number}", dtype, (5, 11)))

        p = [product(number) for number in range(9)]
        shapes = [(7, 5), (5, 11), (5, 7), (11, 5)]
        wide = [net.cast(net.input(f"h{k}", float16, shape), float32) for k, shape in enumerate(shapes)]
        sixteen = product(9, float16)
        return (
            net("mul", p[0], 0.125),
            net("div", p[1], 8.0),
            relu(net, net("add", net("add", p[2], matrix(net, p[2], "c2")), bias(net, p[2], "b2"))),
            net("sub", p[3], matrix(net, p[3], "c3")),
            net("max", net.expand(net.scalar(0.0, float32), p[4].shape), p[4]),
            net("add", p[5], net("mul", matrix(net, p[5], "c5"), 0.5)),
            tanh_gelu(net, p[6]),
            tanh_gelu(net, p[7], "gate", "pow"),
            tanh_gelu(net, p[8], "last"),
            net.matmul(*wide[:2]),
            net.matmul(net.transpose(wide[2], (1, 0)), net.transpose(wide[3], (1, 0))),
            net("sin", wide[2]),
            net("add", net.cast(sixteen, float32), net.input("c9", float32, (7, 11))),
        )

    return built(make)[0]
