"""ONNX Runtime's quantized and fused layers: dequantize, compute, quantize again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.graph import Value
from ...plan.dtypes import float32, int32
from ..context import NodeBuilder
from ..registry import onnx_op
from .convolution import conv
from .linear_algebra import gemm, matmul_integer
from .quantization import dequantize_linear, limits_of, quantize_linear, saturated
from .windows import AUTO_PAD

MICROSOFT = "com.microsoft"


@onnx_op("QuantizeLinear", 1, domain=MICROSOFT)
def quantize(b: NodeBuilder, x: Value, scale: Value, zero: Value | None = None, *, axis: int = 1) -> Value:
    return quantize_linear(b, x, scale, zero, axis=axis, block_size=0, output_dtype=0)


@onnx_op("DequantizeLinear", 1, domain=MICROSOFT)
def dequantize(b: NodeBuilder, x: Value, scale: Value, zero: Value | None = None, *, axis: int = 1) -> Value:
    return dequantize_linear(b, x, scale, zero, axis=axis, block_size=0)


def _floats(b: NodeBuilder, x: Value, scale: Value, zero: Value | None) -> Value:
    number = b.cast(x, int32)
    if zero is not None:
        number = b.b("sub", number, b.reshape(b.cast(zero, int32), ()))
    return b.b("mul", b.cast(number, float32), b.reshape(scale, ()))


def _integers(b: NodeBuilder, x: Value, scale: Value, zero: Value) -> Value:
    number = b.b("round_even", b.b("div", x, b.reshape(scale, ())))
    shifted = b.b("add", number, b.reshape(b.cast(zero, float32), ()))
    return saturated(b, shifted, zero.dtype, *limits_of(zero.dtype))


def _binary(row: str) -> Callable[..., Value]:
    def layer(
        b: NodeBuilder,
        x: Value,
        x_scale: Value,
        x_zero: Value | None,
        y: Value,
        y_scale: Value,
        y_zero: Value | None,
        scale: Value,
        zero: Value,
    ) -> Value:
        return _integers(b, b.b(row, _floats(b, x, x_scale, x_zero), _floats(b, y, y_scale, y_zero)), scale, zero)

    return layer


onnx_op("QLinearAdd", 1, domain=MICROSOFT)(_binary("add"))
onnx_op("QLinearMul", 1, domain=MICROSOFT)(_binary("mul"))


@onnx_op("QLinearSigmoid", 1, domain=MICROSOFT)
def qlinear_sigmoid(b: NodeBuilder, x: Value, x_scale: Value, x_zero: Value | None, scale: Value, zero: Value) -> Value:
    return _integers(b, b.b("sigmoid", _floats(b, x, x_scale, x_zero)), scale, zero)


@onnx_op("QLinearLeakyRelu", 1, domain=MICROSOFT)
def qlinear_leaky_relu(
    b: NodeBuilder, x: Value, x_scale: Value, x_zero: Value | None, scale: Value, zero: Value, *, alpha: float = 0.01
) -> Value:
    number = _floats(b, x, x_scale, x_zero)
    return _integers(b, b.b("where", b.b("less", number, 0), b.b("mul", number, alpha), number), scale, zero)


@onnx_op("QLinearGlobalAveragePool", 1, domain=MICROSOFT)
def qlinear_global_average_pool(
    b: NodeBuilder, x: Value, x_scale: Value, x_zero: Value, scale: Value, zero: Value, *, channels_last: int = 0
) -> Value:
    axes = range(1, x.type.rank - 1) if channels_last else range(2, x.type.rank)
    return _integers(b, b.mean(_floats(b, x, x_scale, x_zero), axes, True), scale, zero)


@onnx_op("QLinearConcat", 1, domain=MICROSOFT)
def qlinear_concat(b: NodeBuilder, scale: Value, zero: Value, *inputs: Value, axis: int) -> Value:
    """The inputs come in threes: tensor, scale, zero point."""
    parts = [_floats(b, *inputs[k : k + 3]) for k in range(0, len(inputs), 3)]
    return _integers(b, b.concat(parts, b.axis(axis, parts[0].type.rank)), scale, zero)


@onnx_op("MatMulIntegerToFloat", 1, domain=MICROSOFT)
def matmul_integer_to_float(
    b: NodeBuilder,
    x: Value,
    y: Value,
    x_scale: Value,
    y_scale: Value,
    x_zero: Value | None = None,
    y_zero: Value | None = None,
    bias: Value | None = None,
) -> Value:
    total = b.cast(matmul_integer(b, x, y, x_zero, y_zero), x_scale.dtype)
    result = b.b("mul", total, b.b("mul", x_scale, y_scale))
    return result if bias is None else b.b("add", result, bias)


@onnx_op("DynamicQuantizeMatMul", 1, domain=MICROSOFT)
def dynamic_quantize_matmul(
    b: NodeBuilder, x: Value, y: Value, y_scale: Value, y_zero: Value | None = None, bias: Value | None = None
) -> Value:
    from .quantization import dynamic_quantize_linear

    quantized, scale, zero = dynamic_quantize_linear(b, x)
    return matmul_integer_to_float(b, quantized, y, scale, y_scale, zero, y_zero, bias)


_ACTIVATIONS: dict[str, Callable[[NodeBuilder, Value, Sequence[float]], Value]] = {
    "Relu": lambda b, x, p: b.b("max", x, 0),
    "Tanh": lambda b, x, p: b.b("tanh", x),
    "Sigmoid": lambda b, x, p: b.b("sigmoid", x),
    "LeakyRelu": lambda b, x, p: b.b("where", b.b("less", x, 0), b.b("mul", x, p[0]), x),
    "Clip": lambda b, x, p: b.b("min", b.b("max", x, p[0]), p[1]),
    "HardSigmoid": lambda b, x, p: b.b("max", b.b("min", b.b("add", b.b("mul", x, p[0]), p[1]), 1), 0),
}


def _activated(b: NodeBuilder, x: Value, name: str, parameters: Sequence[float] | None) -> Value:
    return _ACTIVATIONS[name](b, x, parameters or ()) if name else x


@onnx_op("FusedConv", 1, domain=MICROSOFT, only={"auto_pad": AUTO_PAD, "activation": ("", *_ACTIVATIONS)})
def fused_conv(
    b: NodeBuilder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    added: Value | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    result = conv(
        b,
        x,
        w,
        bias,
        auto_pad=auto_pad,
        group=group,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    if added is not None:
        result = b.b("add", result, added)
    return _activated(b, result, activation, activation_params)


@onnx_op("FusedGemm", 1, domain=MICROSOFT, only={"activation": ("", "Relu", "Tanh", "Sigmoid", "LeakyRelu")})
def fused_gemm(
    b: NodeBuilder,
    x: Value,
    y: Value,
    c: Value | None = None,
    *,
    activation: str = "",
    activation_alpha: float = 0.01,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    result = gemm(b, x, y, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _activated(b, result, activation, [activation_alpha])
