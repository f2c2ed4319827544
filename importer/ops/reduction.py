"""Reductions. The axes moved from an attribute to an input, for most in opset 18, for ReduceSum in opset 13."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.graph import Value
from ...plan.dims import product
from ...plan.dtypes import bool_, float64, uint8
from ..context import NodeBuilder
from ..registry import onnx_op
from .precision import computed_wide

Reducer = Callable[[NodeBuilder, Value, Sequence[int], bool], Value]


def _plain(fn: str) -> Reducer:
    def reduce(b: NodeBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
        if x.dtype is bool_:
            return b.cast(b.reduce(fn, b.cast(x, uint8), axes, keepdims), bool_)
        return b.reduce(fn, x, axes, keepdims)

    return reduce


def _mean(b: NodeBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    if x.dtype.is_float:
        return b.mean(x, axes, keepdims)
    count = b.cast(b.dim_value(product(x.shape[axis] for axis in axes)), x.dtype)
    return b.b("div", b.reduce("sum", x, axes, keepdims), count)


def _l1(b: NodeBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    return b.reduce("sum", b.b("abs", x), axes, keepdims)


def _sum_square(b: NodeBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    return b.reduce("sum", b.b("mul", x, x), axes, keepdims)


def _l2(b: NodeBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    return _in_floats(b, "sqrt", _sum_square(b, x, axes, keepdims))


def _in_floats(b: NodeBuilder, row: str, x: Value) -> Value:
    """Integers go through float64 and are rounded toward zero."""
    return b.b(row, x) if x.dtype.is_float else b.cast(b.b(row, b.cast(x, float64)), x.dtype)


def _log_sum(b: NodeBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    return _in_floats(b, "log", b.reduce("sum", x, axes, keepdims))


def _log_sum_exp(b: NodeBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """Shifted by the maximum, so that nothing overflows; an infinite maximum shifts by 0."""
    peak = b.reduce("max", x, axes, True)
    shift = b.b("where", b.b("isinf", peak), 0, peak)
    total = b.reduce("sum", b.b("exp", b.b("sub", x, shift)), axes, True)
    result = b.b("add", b.b("log", total), shift)
    return result if keepdims else b.squeeze(result, axes)


# (operator, meaning, versions with an attribute, versions with an input, works in float32 on 16-bit floats)
TABLE: tuple[tuple[str, Reducer, tuple[int, ...], tuple[int, ...]], ...] = (
    ("ReduceSum", _plain("sum"), (1, 11), (13,)),
    ("ReduceProd", _plain("prod"), (1, 11, 13), (18,)),
    ("ReduceMax", _plain("max"), (1, 11, 12, 13), (18, 20)),
    ("ReduceMin", _plain("min"), (1, 11, 12, 13), (18, 20)),
    ("ReduceMean", _mean, (1, 11, 13), (18,)),
    ("ReduceL1", _l1, (1, 11, 13), (18,)),
    ("ReduceL2", _l2, (1, 11, 13), (18,)),
    ("ReduceSumSquare", _sum_square, (1, 11, 13), (18,)),
    ("ReduceLogSum", _log_sum, (1, 11, 13), (18, 28)),
    ("ReduceLogSumExp", _log_sum_exp, (1, 11, 13), (18, 28)),
)


def _with_attribute(reducer: Reducer) -> Callable[..., Value]:
    def reduce(b: NodeBuilder, x: Value, *, axes: Sequence[int] = (), keepdims: int) -> Value:
        over = b.axes(axes, x.type.rank) if axes else list(range(x.type.rank))
        return reducer(b, x, over, bool(keepdims))

    return computed_wide(reduce)


def _with_input(reducer: Reducer) -> Callable[..., Value]:
    def reduce(
        b: NodeBuilder, x: Value, axes: Value | None = None, *, keepdims: int, noop_with_empty_axes: int
    ) -> Value:
        given = [] if axes is None else list(b.ints(axes, "the axes"))
        everything = [] if noop_with_empty_axes else list(range(x.type.rank))
        return reducer(b, x, b.axes(given, x.type.rank) if given else everything, bool(keepdims))

    return computed_wide(reduce)


for _operator, _reducer, _attribute_versions, _input_versions in TABLE:
    onnx_op(_operator, *_attribute_versions)(_with_attribute(_reducer))
    onnx_op(_operator, *_input_versions)(_with_input(_reducer))


def _arg(name: str) -> Callable[..., Value]:
    def arg(b: NodeBuilder, x: Value, *, axis: int, keepdims: int, select_last_index: int = 0) -> Value:
        find = b.argmax if name == "ArgMax" else b.argmin
        return find(x, b.axis(axis, x.type.rank), bool(keepdims), bool(select_last_index))

    return arg


for _operator in ("ArgMax", "ArgMin"):
    onnx_op(_operator, 1, 11)(_arg(_operator))
    onnx_op(_operator, 12, 13)(_arg(_operator))
