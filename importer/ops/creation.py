"""Operators that make tensors: constants, ranges, shapes, and matrices of ones and zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.graph import Value
from ...plan.dims import index_symbol
from ...plan.dtypes import DType, int64
from ..context import NodeBuilder, onnx_dtype
from ..registry import onnx_op
from ..shape_values import Unknown


@onnx_op("Constant", 1, 9)
def constant_9(b: NodeBuilder, *, value: np.ndarray) -> Value:
    return _constant(b, value)


@onnx_op("Constant", 11)
def constant_11(b: NodeBuilder, *, value: np.ndarray | None = None, sparse_value: np.ndarray | None = None) -> Value:
    return _only(b, value, sparse_value)


@onnx_op("Constant", 12, 13, 19, 21, 23, 24, 25)
def constant(
    b: NodeBuilder,
    *,
    value: np.ndarray | None = None,
    sparse_value: np.ndarray | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
) -> Value:
    floats = [None if given is None else np.array(given, np.float32) for given in (value_float, value_floats)]
    ints = [None if given is None else np.array(given, np.int64) for given in (value_int, value_ints)]
    return _only(b, value, sparse_value, *floats, *ints)


def _only(b: NodeBuilder, *forms: np.ndarray | None) -> Value:
    given = [form for form in forms if form is not None]
    if len(given) != 1:
        b.invalid(f"needs exactly one value attribute, has {len(given)}")
    return _constant(b, given[0])


def _constant(b: NodeBuilder, array: np.ndarray) -> Value:
    from ..convert import constant as stored

    return stored(b, array)


@onnx_op("ConstantOfShape", 9, 20, 21, 23, 24, 25)
def constant_of_shape(b: NodeBuilder, shape: Value, *, value: np.ndarray | None = None) -> Value:
    element = np.zeros((), np.float32) if value is None else np.reshape(value, ())
    return b.expand(_constant(b, element), b.extents(shape, "the shape"))


@onnx_op("Shape", 1, 13)
def shape_13(b: NodeBuilder, x: Value) -> Value:
    return b.dims_tensor(x.shape)


@onnx_op("Shape", 15, 19, 21, 23, 24, 25)
def shape(b: NodeBuilder, x: Value, *, start: int, end: int | None = None) -> Value:
    return b.dims_tensor(x.shape[start:end])


@onnx_op("Size", 1, 13, 19, 21, 23, 24, 25)
def size(b: NodeBuilder, x: Value) -> Value:
    total: Any = 1
    for dim in x.shape:
        total = total * dim
    return b.dim_value(total)


@onnx_op("Range", 11, 27, ignored=("stash_type",))
def range_(b: NodeBuilder, start: Value, limit: Value, delta: Value) -> Value:
    """Of floats, bounds and step must be constant. The length of integers may be a size that data decides."""
    if not start.dtype.is_integer:
        first, last, step = (b.numbers(v, "a bound or the step").reshape(()) for v in (start, limit, delta))
        count = max(int(np.ceil((last - first) / step)), 0)
        return b.constant((first + np.arange(count) * step).astype(start.dtype.numpy))
    ends = [b.shape_elements(value, "a bound or the step")[0] for value in (start, limit, delta)]
    if any(isinstance(end, Unknown) for end in ends):
        return _range_of_data(b, *(b.cast(b.reshape(value, ()), int64) for value in (start, limit, delta)), start.dtype)
    first, last, step = ends
    if type(step) is not int or step == 0:
        b.fail(f"the step must be a number other than 0, not {step}")
    count = b.ceil_div(last - first, step) if step > 0 else b.ceil_div(first - last, -step)
    return b.cast(b.iota((b.larger(count, 0),), first + step * index_symbol(0)), start.dtype)


def _range_of_data(b: NodeBuilder, first: Value, last: Value, step: Value, dtype: DType) -> Value:
    span, stride = b.b("sub", last, first), step
    known = b.known(step)
    if known is None or known.dtype == object or known < 0:
        is_up = b.b("greater", step, 0)
        span = b.b("where", is_up, span, b.b("sub", first, last))
        stride = b.b("where", is_up, step, b.b("neg", step))
    length = b.b("div", b.b("add", b.b("max", span, 0), b.b("sub", stride, 1)), b.b("max", stride, 1))
    length = b.b("where", b.b("equal", step, 0), -1, length)  # refused when it runs
    count = b.data_size(length, "the length")
    places = b.b("mul", b.iota((count,), index_symbol(0)), step)
    return b.cast(b.b("add", places, first), dtype)


@onnx_op("EyeLike", 9, 22)
def eye_like(b: NodeBuilder, x: Value, *, k: int, dtype: int | None = None) -> Value:
    wanted = x.dtype if dtype is None else onnx_dtype(b, dtype, "dtype")
    diagonal = b.iota(x.shape, index_symbol(1) - index_symbol(0))
    return b.cast(b.b("equal", diagonal, k), wanted)


@onnx_op("Trilu", 14)
def trilu(b: NodeBuilder, x: Value, k: Value | None = None, *, upper: int) -> Value:
    rows, columns = x.shape[-2:]
    diagonal, offset = index_symbol(1) - index_symbol(0), b.scalar(0, int64)
    if k is not None:
        (start,) = b.shape_elements(k, "k")
        if isinstance(start, Unknown):
            offset = b.scalar_of(start)
        else:
            diagonal = diagonal - start
    kept = b.b("greater_equal" if upper else "less_equal", b.iota((rows, columns), diagonal), offset)
    return b.b("where", kept, x, b.constant(np.zeros((), x.dtype.numpy)))


def _window(name: str, coefficients: tuple[float, ...]) -> None:
    """Window functions are sums of cosines, with these coefficients by default."""

    def window(b: NodeBuilder, size: Value, *, output_datatype: int, periodic: int) -> Value:
        count = int(b.numbers(size, "the size").reshape(()))
        points = np.arange(count) * (2 * np.pi / max(count if periodic else count - 1, 1))
        values = sum(c * np.cos(n * points) for n, c in enumerate(coefficients))
        return b.constant(np.asarray(values, onnx_dtype(b, output_datatype, "output_datatype").numpy))

    onnx_op(name, 17)(window)


_window("HannWindow", (0.5, -0.5))
_window("HammingWindow", (25 / 46, -21 / 46))
_window("BlackmanWindow", (0.42, -0.5, 0.08))
