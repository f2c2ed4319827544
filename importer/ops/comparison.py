"""Comparisons, logic, bits, choice and conversions."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph import Value
from ...plan.dtypes import bool_
from ..context import NodeBuilder, onnx_dtype
from ..registry import onnx_op

BINARY = (
    ("Less", "less", (7, 9, 13)),
    ("LessOrEqual", "less_equal", (12, 16)),
    ("Greater", "greater", (7, 9, 13)),
    ("GreaterOrEqual", "greater_equal", (12, 16)),
    ("Equal", "equal", (7, 11, 13, 19)),
    ("And", "and", (7,)),
    ("Or", "or", (7,)),
    ("Xor", "xor", (7,)),
    ("BitwiseAnd", "bit_and", (18,)),
    ("BitwiseOr", "bit_or", (18,)),
    ("BitwiseXor", "bit_xor", (18,)),
)


def _binary(row: str) -> Callable[..., Value]:
    return lambda b, x, y: b.b(row, x, y)


for _operator, _row, _versions in BINARY:
    onnx_op(_operator, *_versions)(_binary(_row))


@onnx_op("Not", 1)
def not_(b: NodeBuilder, x: Value) -> Value:
    return b.b("not", x)


@onnx_op("BitwiseNot", 18)
def bitwise_not(b: NodeBuilder, x: Value) -> Value:
    return b.b("bit_not", x)


@onnx_op("BitShift", 11, 28, only={"direction": ("LEFT", "RIGHT")})
def bit_shift(b: NodeBuilder, x: Value, count: Value, *, direction: str) -> Value:
    return b.b("shift_left" if direction == "LEFT" else "shift_right", x, count)


@onnx_op("IsNaN", 9, 13, 20)
def is_nan(b: NodeBuilder, x: Value) -> Value:
    return b.b("isnan", x)


@onnx_op("IsInf", 10, 20)
def is_inf(b: NodeBuilder, x: Value, *, detect_negative: int, detect_positive: int) -> Value:
    infinite = b.b("isinf", x)
    if not detect_negative:
        infinite = b.b("and", infinite, b.b("greater", x, 0))
    return infinite if detect_positive else b.b("and", infinite, b.b("less", x, 0))


@onnx_op("Where", 9, 16)
def where(b: NodeBuilder, condition: Value, x: Value, y: Value) -> Value:
    return b.b("where", condition, x, y)


@onnx_op("Cast", 6, 9, 13, 19, 21, 23, 24, 25, 28, ignored=("saturate", "round_mode"))
def cast(b: NodeBuilder, x: Value, *, to: int) -> Value:
    return _converted(b, x, onnx_dtype(b, to, "the type to cast to"))


@onnx_op("CastLike", 15, 19, 21, 23, 24, 25, ignored=("saturate", "round_mode"))
def cast_like(b: NodeBuilder, x: Value, like: Value) -> Value:
    return _converted(b, x, like.dtype)


def _converted(b: NodeBuilder, x: Value, dtype: object) -> Value:
    if dtype is bool_ and x.dtype is not bool_:
        return b.b("not_equal", x, 0)
    return b.cast(x, dtype)
