"""Layers that several architectures share, spelled as PyTorch's exporter spells them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import numpy_helper

from .graph import GraphWriter, Size

TO_END = np.iinfo(np.int64).max  # the exporter's "until the end" in Slice

# Linear layers


def linear(
    g: GraphWriter, name: str, x: str, inputs: int, outputs: int, *, bias: bool = True, gain: float = 1.0
) -> str:
    """A linear layer on three axes or more: MatMul by the transposed weight and Add. Outputs have the scale of x, times ``gain``."""
    with g.scope(name):
        product = g.op("MatMul", x, g.weight("weight", g.normal(inputs, outputs, std=gain * inputs**-0.5)))
        return g.op("Add", g.weight("bias", g.normal(outputs, std=0.1)), product) if bias else product


def gemm(g: GraphWriter, name: str, x: str, inputs: int, outputs: int, *, gain: float = 1.0) -> str:
    """A linear layer with bias on two axes: Gemm with the weight as it is stored."""
    with g.scope(name):
        weight = g.weight("weight", g.normal(outputs, inputs, std=gain * inputs**-0.5))
        bias = g.weight("bias", g.normal(outputs, std=0.1))
        return g.op("Gemm", x, weight, bias, alpha=1.0, beta=1.0, transB=1)


def tied_logits(g: GraphWriter, name: str, x: str, embedding: str) -> str:
    """Logits by the transposed embedding, which stays one weight."""
    with g.scope(name):
        return g.op("MatMul", x, g.op("Transpose", embedding, perm=[1, 0]))


# Activations


def gelu(g: GraphWriter, x: str) -> str:
    """x * (1 + erf(x / sqrt 2)) / 2."""
    erf = g.op("Erf", g.op("Div", x, g.constant(math.sqrt(2.0))))
    return g.op("Mul", g.op("Mul", x, g.op("Add", erf, g.constant(1.0))), g.constant(0.5))


def gelu_tanh(g: GraphWriter, x: str) -> str:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), as ``NewGELUActivation`` computes it."""
    cubed = g.op("Mul", g.op("Pow", x, g.constant(3.0)), g.constant(0.044715))
    inner = g.op("Mul", g.op("Add", x, cubed), g.constant(math.sqrt(2.0 / math.pi)))
    one_more = g.op("Add", g.op("Tanh", inner), g.constant(1.0))
    return g.op("Mul", g.op("Mul", x, g.constant(0.5)), one_more)


def silu(g: GraphWriter, x: str) -> str:
    """x * sigmoid(x)."""
    return g.op("Mul", x, g.op("Sigmoid", x))


# Normalisation


def layer_norm(g: GraphWriter, name: str, x: str, width: int, epsilon: float = 1e-5) -> str:
    """LayerNormalization over the last axis."""
    with g.scope(name):
        scale = g.weight("weight", g.normal(width, std=0.1, mean=1.0))
        shift = g.weight("bias", g.normal(width, std=0.1))
        return g.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)


def group_norm(
    g: GraphWriter, name: str, x: str, channels: int, groups: int, epsilon: float, shape: Sequence[int | str]
) -> str:
    """GroupNorm of [batch, channels, ...]: each group a row of InstanceNormalization, then scale and shift by channel.

    Where ``shape``, that of x, is all numbers, the shape to go back to is a constant.
    """
    with g.scope(name):
        rows = g.op("Reshape", x, g.constant([0, groups, -1]))
        ones, zeros = g.constant(np.ones(groups)), g.constant(np.zeros(groups))
        rows = g.op("InstanceNormalization", rows, ones, zeros, epsilon=epsilon)
        static = all(isinstance(size, int) for size in shape)
        normal = g.op("Reshape", rows, g.constant(list(shape)) if static else g.op("Shape", x))
        column = (channels, *[1] * (len(shape) - 2))
        scale = g.weight("weight", g.normal(channels, std=0.1, mean=1.0).reshape(column))
        shift = g.weight("bias", g.normal(channels, std=0.1).reshape(column))
        return g.op("Add", g.op("Mul", normal, scale), shift)


# Convolution


def conv(
    g: GraphWriter, name: str, x: str, inputs: int, outputs: int, *,
    kernel: Sequence[int], stride: int = 1, pad: int = 0, gain: float = 1.0, bias: bool = True,
) -> str:  # fmt: skip
    """A convolution over as many axes as ``kernel`` has sizes."""
    rank = len(kernel)
    std = gain * (inputs * math.prod(kernel)) ** -0.5
    with g.scope(name):
        parameters = [g.weight("weight", g.normal(outputs, inputs, *kernel, std=std))]
        if bias:
            parameters.append(g.weight("bias", g.normal(outputs, std=0.1)))
        return g.op(
            "Conv", x, *parameters,
            dilations=[1] * rank, group=1, kernel_shape=list(kernel), pads=[pad] * 2 * rank, strides=[stride] * rank,
        )  # fmt: skip


# Attention


def split_heads(g: GraphWriter, x: str, sizes: tuple[Size, Size], heads: int, width: int) -> str:
    """[batch, length, heads * width] to [batch, heads, length, width]."""
    return g.op("Transpose", g.reshape(x, *sizes, heads, width), perm=[0, 2, 1, 3])


def merge_heads(g: GraphWriter, x: str, sizes: tuple[Size, Size], hidden: int) -> str:
    """[batch, heads, length, width] to [batch, length, hidden]."""
    return g.reshape(g.op("Transpose", x, perm=[0, 2, 1, 3]), *sizes, hidden)


def scaled_dot_product_attention(g: GraphWriter, query: str, key: str, value: str, width: int, *, static: bool) -> str:
    """``F.scaled_dot_product_attention`` on [batch, heads, length, width]: queries and keys each take the root of the scale.

    Unless ``static``, the exporter computes the scale from the shape of the queries, as a float.
    """
    if static:
        root = g.constant([width**-0.25])
    else:
        last = g.slice(g.op("Shape", query), g.constant([-1]), g.constant([TO_END]), 0)
        scale = g.op("Div", g.constant([1.0], np.float32), g.op("Sqrt", g.cast(last, np.float32)))
        root = g.op("Sqrt", scale if g.dtype == np.float32 else g.cast(scale, g.dtype))
    scores = g.op("MatMul", g.op("Mul", query, root), g.op("Mul", g.op("Transpose", key, perm=[0, 1, 3, 2]), root))
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), value)


def expand_batch(g: GraphWriter, x: str, batch: Size, rest: Sequence[int]) -> str:
    """``x.expand(batch, -1, ...)`` of [1, *rest]: with a batch that is computed, the exporter also replaces the -1 by computing."""
    if isinstance(batch, int):
        return g.op("Expand", x, g.constant([batch, *rest]))
    wanted = g.shape(batch, *[-1] * len(rest))
    ones = g.op("ConstantOfShape", g.constant([1 + len(rest)]), value=numpy_helper.from_array(np.array([1])))
    minus = g.op("Mul", ones, g.constant(-1))
    return g.op("Expand", x, g.op("Where", g.op("Equal", wanted, minus), ones, wanted))
