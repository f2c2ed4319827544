"""Operators made of several steps are computed in float32 when their inputs are 16-bit floats, and rounded once."""

from __future__ import annotations

import functools
from collections.abc import Callable

from ...ir.graph import Value
from ...plan.dtypes import DType, float32
from ..context import NodeBuilder


def widened(b: NodeBuilder, x: Value) -> Value:
    """Return x in the type that it is computed in."""
    return b.cast(x, x.dtype.compute)


def computed_wide(function: Callable[..., Value]) -> Callable[..., Value]:
    """Cast 16-bit float inputs of an operator function to float32, and its result back to the first input's type."""

    @functools.wraps(function)
    def wide(b: NodeBuilder, *inputs: Value | None, **attributes: object) -> Value:
        narrow = inputs[0].dtype
        if narrow.compute is narrow:
            return function(b, *inputs, **attributes)
        cast = [x if x is None or not x.dtype.is_float else b.cast(x, float32) for x in inputs]
        return b.cast(function(b, *cast, **attributes), narrow)

    return wide


def common(b: NodeBuilder, dtype: DType, *values: Value) -> tuple[Value, ...]:
    """Return the values cast to one dtype."""
    return tuple(b.cast(value, dtype) for value in values)
