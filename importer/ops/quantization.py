"""Quantization: integers that stand for floats through a scale and a zero point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.graph import Value
from ...plan.dims import index_symbol
from ...plan.dtypes import DType, float32, int32, uint8
from ..context import NodeBuilder, onnx_dtype
from ..registry import onnx_op
from .convolution import conv_integer, with_bias
from .linear_algebra import matmul_integer
from .windows import AUTO_PAD


@onnx_op("QuantizeLinear", 10)
def quantize_linear_10(b: NodeBuilder, x: Value, scale: Value, zero: Value | None = None) -> Value:
    return _quantized(b, x, _along(b, scale, x, 1, 0), zero, 1, 0, None)


@onnx_op("QuantizeLinear", 13, 19, ignored=("saturate",))
def quantize_linear_13(b: NodeBuilder, x: Value, scale: Value, zero: Value | None = None, *, axis: int) -> Value:
    return _quantized(b, x, _along(b, scale, x, axis, 0), zero, axis, 0, None)


@onnx_op("QuantizeLinear", 21, 23, 24, 25, 28, ignored=("saturate",), only={"precision": (0, 1)})
def quantize_linear(
    b: NodeBuilder,
    x: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int,
    block_size: int,
    output_dtype: int,
    precision: int = 0,
) -> Value:
    """Computed in float32 at least, whatever `precision` asks for."""
    dtype = onnx_dtype(b, output_dtype, "output_dtype") if output_dtype else None
    return _quantized(b, x, _along(b, scale, x, axis, block_size), zero, axis, block_size, dtype)


def _quantized(
    b: NodeBuilder, x: Value, scale: Value, zero: Value | None, axis: int, block_size: int, dtype: DType | None
) -> Value:
    dtype = dtype or (uint8 if zero is None else zero.dtype)
    wide = float32 if not x.dtype.is_float else x.dtype.compute
    number = b.b("round_even", b.b("div", b.cast(x, wide), b.cast(scale, wide)))
    if zero is not None:
        number = b.b("add", number, b.cast(_along(b, zero, x, axis, block_size), wide))
    low, high = b.narrow.get(zero, limits_of(dtype)) if zero is not None else limits_of(dtype)
    result = saturated(b, number, dtype, low, high)
    if zero is not None and zero in b.narrow:
        b.narrow[result] = b.narrow[zero]
    return result


def saturated(b: NodeBuilder, number: Value, dtype: DType, low: int, high: int) -> Value:
    """Return whole floats as integers, brought into low..high."""
    return b.cast(b.b("min", b.b("max", number, low), high), dtype)


def limits_of(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def _along(b: NodeBuilder, parameter: Value, x: Value, axis: int, block_size: int) -> Value:
    """Shape a scale or zero point so that it broadcasts: one number, one an index of `axis`, or one a block of it."""
    if parameter.type.rank == 0 or (parameter.shape == (1,) and not block_size):
        return b.reshape(parameter, ())
    which = b.axis(axis, x.type.rank)
    if block_size:
        expected = [b.ceil_div(n, block_size) if k == which else n for k, n in enumerate(x.shape)]
        fits = parameter.type.rank == x.type.rank and all(map(b.agree, parameter.shape, expected))
        if not fits:
            b.invalid(f"blocks of {block_size} along axis {which} of {x.type} do not fit {parameter.type}")
        index = [index_symbol(k) // block_size if k == which else index_symbol(k) for k in range(x.type.rank)]
        return b.indexed(parameter, x.shape, index)
    return b.reshape(parameter, (parameter.shape[0], *[1] * (x.type.rank - 1 - which)))


@onnx_op("DequantizeLinear", 10)
def dequantize_linear_10(b: NodeBuilder, x: Value, scale: Value, zero: Value | None = None) -> Value:
    return dequantize_linear(b, x, scale, zero, axis=1, block_size=0, output_dtype=0)


@onnx_op("DequantizeLinear", 13, 19)
def dequantize_linear_13(b: NodeBuilder, x: Value, scale: Value, zero: Value | None = None, *, axis: int) -> Value:
    return dequantize_linear(b, x, scale, zero, axis=axis, block_size=0, output_dtype=0)


@onnx_op("DequantizeLinear", 21, 23, 24, 25, 28)
def dequantize_linear(
    b: NodeBuilder,
    x: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int,
    block_size: int,
    output_dtype: int = 0,
) -> Value:
    """(x - zero point) * scale, the difference exact in int32."""
    dtype = onnx_dtype(b, output_dtype, "output_dtype") if output_dtype else scale.dtype
    number = b.cast(x, int32)
    if zero is not None:
        number = b.b("sub", number, b.cast(_along(b, zero, x, axis, block_size), int32))
    wide = scale.dtype.compute
    product = b.b("mul", b.cast(number, wide), b.cast(_along(b, scale, x, axis, block_size), wide))
    return b.cast(product, dtype)


@onnx_op("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(b: NodeBuilder, x: Value) -> tuple[Value, Value, Value]:
    axes = range(x.type.rank)
    low = b.b("min", b.reduce("min", x, axes, False), 0)
    high = b.b("max", b.reduce("max", x, axes, False), 0)
    span = b.b("sub", high, low)
    scale = b.b("where", b.b("equal", span, 0), 1, b.b("div", span, 255))
    zero = saturated(b, b.b("round_even", b.b("sub", 0, b.b("div", low, scale))), uint8, 0, 255)
    number = b.b("add", b.b("round_even", b.b("div", x, scale)), b.cast(zero, float32))
    return saturated(b, number, uint8, 0, 255), scale, zero


@onnx_op("QLinearMatMul", 10, 21)
def qlinear_matmul(
    b: NodeBuilder,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y: Value,
    y_scale: Value,
    y_zero: Value,
    out_scale: Value,
    out_zero: Value,
) -> Value:
    total = matmul_integer(b, x, y, x_zero, y_zero)
    row = b.unsqueeze(x_scale, [1]) if x_scale.type.rank == 1 and x_scale.shape != (1,) else x_scale
    return _requantized(b, total, b.b("mul", row, y_scale), out_scale, out_zero)


def _requantized(b: NodeBuilder, total: Value, scale: Value, out_scale: Value, out_zero: Value) -> Value:
    number = b.b("mul", b.cast(total, float32), b.b("div", b.cast(scale, float32), b.cast(out_scale, float32)))
    shifted = b.b("add", b.b("round_even", number), b.cast(out_zero, float32))
    return saturated(b, shifted, out_zero.dtype, *limits_of(out_zero.dtype))


@onnx_op("QLinearConv", 10, only={"auto_pad": AUTO_PAD})
def qlinear_conv(
    b: NodeBuilder,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    out_scale: Value,
    out_zero: Value,
    bias: Value | None = None,
    *,
    auto_pad: str,
    group: int,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    total = conv_integer(
        b,
        x,
        w,
        x_zero,
        w_zero,
        auto_pad=auto_pad,
        group=group,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    if bias is not None:
        total = with_bias(b, total, bias)
    one_scale = w_scale.type.rank == 0 or w_scale.shape == (1,)
    per_map = b.reshape(w_scale, () if one_scale else (w_scale.shape[0], *[1] * (x.type.rank - 2)))
    return _requantized(
        b, total, b.b("mul", b.reshape(x_scale, ()), per_map), b.reshape(out_scale, ()), b.reshape(out_zero, ())
    )
