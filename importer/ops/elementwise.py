"""Arithmetic, activations and other operators that work point by point."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...ir.graph import Value
from ...plan.dtypes import float64
from ..context import NodeBuilder
from ..registry import onnx_op
from .precision import computed_wide

# Operators that are one row of the scalar table: (operator, row, versions)
UNARY = (
    ("Abs", "abs", (6, 13)),
    ("Acos", "acos", (7, 22)),
    ("Acosh", "acosh", (9, 22)),
    ("Asin", "asin", (7, 22)),
    ("Asinh", "asinh", (9, 22)),
    ("Atan", "atan", (7, 22)),
    ("Atanh", "atanh", (9, 22)),
    ("Ceil", "ceil", (6, 13)),
    ("Cos", "cos", (7, 22)),
    ("Cosh", "cosh", (9, 22)),
    ("Erf", "erf", (9, 13)),
    ("Exp", "exp", (6, 13)),
    ("Floor", "floor", (6, 13)),
    ("Log", "log", (6, 13)),
    ("Neg", "neg", (6, 13)),
    ("Reciprocal", "recip", (6, 13)),
    ("Round", "round_even", (11, 22)),
    ("Sigmoid", "sigmoid", (6, 13)),
    ("Sign", "sign", (9, 13)),
    ("Sin", "sin", (7, 22)),
    ("Sinh", "sinh", (9, 22)),
    ("Sqrt", "sqrt", (6, 13)),
    ("Tan", "tan", (7, 22)),
    ("Tanh", "tanh", (6, 13)),
)
BINARY = (
    ("Add", "add", (7, 13, 14)),
    ("Sub", "sub", (7, 13, 14)),
    ("Mul", "mul", (7, 13, 14)),
    ("Div", "div", (7, 13, 14)),
)
VARIADIC = (
    ("Max", "max", (6, 8, 12, 13)),
    ("Min", "min", (6, 8, 12, 13)),
    ("Sum", "add", (6, 8, 13)),
)


def _unary(row: str) -> Callable[..., Value]:
    return lambda b, x: b.b(row, x)


def _binary(row: str) -> Callable[..., Value]:
    return lambda b, x, y: b.b(row, x, y)


def _variadic(row: str) -> Callable[..., Value]:
    def combine(b: NodeBuilder, first: Value, *others: Value) -> Value:
        total = first
        for other in others:
            total = b.b(row, total, other)
        return total

    return combine


for _operator, _row, _versions in UNARY:
    onnx_op(_operator, *_versions)(_unary(_row))
for _operator, _row, _versions in BINARY:
    onnx_op(_operator, *_versions)(_binary(_row))
for _operator, _row, _versions in VARIADIC:
    onnx_op(_operator, *_versions)(_variadic(_row))


@onnx_op("Mean", 6, 8, 13)
@computed_wide
def mean(b: NodeBuilder, first: Value, *others: Value) -> Value:
    total = first
    for other in others:
        total = b.b("add", total, other)
    return b.b("div", total, 1 + len(others))


@onnx_op("Pow", 7, 12, 13, 15)
def pow_(b: NodeBuilder, x: Value, exponent: Value) -> Value:
    known = b.known(exponent)
    if (
        x.dtype.is_float
        and known is not None
        and known.dtype != object
        and known.size == 1
        and exponent.type.rank <= x.type.rank
    ):
        by_hand = _known_power(b, x, float(known.reshape(-1)[0]))
        if by_hand is not None:
            return by_hand
    if x.dtype.is_integer and exponent.dtype.is_float:  # the result has the base's type, so it is rounded toward zero
        return b.cast(b.b("pow", b.cast(x, float64), b.cast(exponent, float64)), x.dtype)
    return b.b("pow", x, b.cast(exponent, x.dtype))


def _known_power(b: NodeBuilder, x: Value, exponent: float) -> Value | None:
    """Small powers are multiplications and roots, which are cheaper and as exact."""
    if exponent == 1:
        return x
    if exponent == 2:
        return b.b("mul", x, x)
    return b.b("sqrt", x) if exponent == 0.5 else None


@onnx_op("Mod", 28)
def mod_28(b: NodeBuilder, x: Value, y: Value, *, fmod: int) -> Value:
    return b.b("trunc_mod" if fmod else "floor_mod", x, y)


@onnx_op("Mod", 10, 13)
def mod(b: NodeBuilder, x: Value, y: Value, *, fmod: int) -> Value:
    if x.dtype.is_float and not fmod:
        b.invalid("floats need the attribute fmod=1")
    return b.b("trunc_mod" if fmod else "floor_mod", x, y)


@onnx_op("Clip", 6)
def clip_6(b: NodeBuilder, x: Value, *, min: float, max: float) -> Value:
    least, most = np.finfo(np.float32).min, np.finfo(np.float32).max
    if min > least:
        x = b.b("max", x, min)
    return b.b("min", x, max) if max < most else x


@onnx_op("Clip", 11, 12, 13)
def clip(b: NodeBuilder, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    if low is not None:
        x = b.b("max", x, low)
    return x if high is None else b.b("min", x, high)


@onnx_op("Relu", 6, 13, 14)
def relu(b: NodeBuilder, x: Value) -> Value:
    return b.b("max", x, 0)


@onnx_op("LeakyRelu", 6, 16)
@computed_wide
def leaky_relu(b: NodeBuilder, x: Value, *, alpha: float) -> Value:
    return b.b("where", b.b("less", x, 0), b.b("mul", x, alpha), x)


@onnx_op("PRelu", 7, 9, 16)
@computed_wide
def prelu(b: NodeBuilder, x: Value, slope: Value) -> Value:
    return b.b("where", b.b("less", x, 0), b.b("mul", x, slope), x)


@onnx_op("ThresholdedRelu", 10, 22)
def thresholded_relu(b: NodeBuilder, x: Value, *, alpha: float) -> Value:
    return b.b("where", b.b("greater", x, alpha), x, 0)


@onnx_op("Elu", 6, 22)
@computed_wide
def elu(b: NodeBuilder, x: Value, *, alpha: float) -> Value:
    return b.b("where", b.b("less", x, 0), b.b("mul", _exp_minus_1(b, x), alpha), x)


@onnx_op("Selu", 6, 22)
@computed_wide
def selu(b: NodeBuilder, x: Value, *, alpha: float, gamma: float) -> Value:
    negative = b.b("mul", _exp_minus_1(b, x), alpha)
    return b.b("mul", b.b("where", b.b("greater", x, 0), x, negative), gamma)


@onnx_op("Celu", 12, 28)
@computed_wide
def celu(b: NodeBuilder, x: Value, *, alpha: float) -> Value:
    negative = b.b("mul", _exp_minus_1(b, b.b("div", x, alpha)), alpha)
    return b.b("add", b.b("max", x, 0), b.b("min", negative, 0))


def _exp_minus_1(b: NodeBuilder, x: Value) -> Value:
    return b.b("sub", b.b("exp", x), 1)


@onnx_op("HardSigmoid", 6, 22)
@computed_wide
def hard_sigmoid(b: NodeBuilder, x: Value, *, alpha: float, beta: float) -> Value:
    line = b.b("add", b.b("mul", x, alpha), beta)
    return b.b("max", b.b("min", line, 1), 0)


@onnx_op("HardSwish", 14, 22)
@computed_wide
def hard_swish(b: NodeBuilder, x: Value) -> Value:
    return b.b("mul", x, hard_sigmoid(b, x, alpha=1 / 6, beta=0.5))


@onnx_op("Swish", 24)
@computed_wide
def swish(b: NodeBuilder, x: Value, *, alpha: float) -> Value:
    scaled = x if alpha == 1 else b.b("mul", x, alpha)
    return b.b("mul", x, b.b("sigmoid", scaled))


@onnx_op("SwiGLU", 28)
@computed_wide
def swiglu(b: NodeBuilder, gate: Value, x: Value, *, alpha: float) -> Value:
    return b.b("mul", swish(b, gate, alpha=alpha), x)


@onnx_op("Softplus", 1, 22)
@computed_wide
def softplus(b: NodeBuilder, x: Value) -> Value:
    tail = b.b("log", b.b("add", b.b("exp", b.b("neg", b.b("abs", x))), 1))
    return b.b("add", b.b("max", x, 0), tail)


@onnx_op("Softsign", 1, 22)
@computed_wide
def softsign(b: NodeBuilder, x: Value) -> Value:
    return b.b("div", x, b.b("add", b.b("abs", x), 1))


@onnx_op("Mish", 18, 22)
@computed_wide
def mish(b: NodeBuilder, x: Value) -> Value:
    return b.b("mul", x, b.b("tanh", softplus(b, x)))


@onnx_op("Gelu", 20, only={"approximate": ("none", "tanh")})
@computed_wide
def gelu(b: NodeBuilder, x: Value, *, approximate: str = "none") -> Value:
    if approximate == "tanh":
        cubic = b.b("mul", b.b("mul", b.b("mul", x, x), x), 0.044715)
        gate = b.b("tanh", b.b("mul", b.b("add", x, cubic), math.sqrt(2 / math.pi)))
    else:
        gate = b.b("erf", b.b("mul", x, math.sqrt(0.5)))
    return b.b("mul", b.b("mul", x, 0.5), b.b("add", gate, 1))


@onnx_op("Shrink", 9)
@computed_wide
def shrink(b: NodeBuilder, x: Value, *, lambd: float, bias: float) -> Value:
    inner = b.b("where", b.b("greater", x, lambd), b.b("sub", x, bias), 0)
    return b.b("where", b.b("less", x, -lambd), b.b("add", x, bias), inner)


@onnx_op("Identity", 1, 13, 14, 16, 19, 21, 23, 24, 25)
def identity(b: NodeBuilder, x: Value) -> Value:
    return x


@onnx_op("Dropout", 7, 10, ignored=("ratio",))
def dropout_7(b: NodeBuilder, x: Value) -> tuple[Value, Value]:
    return x, _all_true(b, x)


@onnx_op("Dropout", 12, 13, 22, ignored=("seed",))
def dropout(b: NodeBuilder, x: Value, ratio: Value | None = None, training: Value | None = None) -> tuple[Value, Value]:
    if training is not None and b.numbers(training, "training_mode").any():
        b.fail("training mode is not supported; export the model for inference")
    return x, _all_true(b, x)


def _all_true(b: NodeBuilder, x: Value) -> Value:
    return b.expand(b.constant(np.array(True)), x.shape)


@onnx_op("CumSum", 11, 14)
def cumsum(b: NodeBuilder, x: Value, axis: Value, *, exclusive: int, reverse: int) -> Value:
    return _cumulated(b, x, axis, "sum", 0, exclusive, reverse)


@onnx_op("CumProd", 26)
def cumprod(b: NodeBuilder, x: Value, axis: Value, *, exclusive: int, reverse: int) -> Value:
    return _cumulated(b, x, axis, "prod", 1, exclusive, reverse)


def _cumulated(b: NodeBuilder, x: Value, axis: Value, fn: str, outside: int, exclusive: int, reverse: int) -> Value:
    """Reduce windows that start before the first element, or end after the last."""
    which = b.axis(int(b.numbers(axis, "the axis").reshape(-1)[0]), x.type.rank)
    extent = x.shape[which]
    shift = 1 if exclusive else 0
    before = -shift if reverse else extent - 1 + shift
    rows = b.windows(x, [which], [extent], [before], [extent], fill=outside)
    return b.reduce(fn, rows, [x.type.rank], False)
