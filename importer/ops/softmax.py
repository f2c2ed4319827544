"""Softmax and its relatives. Before opset 13 they see a matrix: `axis` on is flattened into one row."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph import Value
from ...plan.dims import product
from ..context import NodeBuilder
from ..registry import onnx_op
from .precision import computed_wide


def _softmax(b: NodeBuilder, x: Value, axis: int) -> Value:
    return b.softmax(x, axis)


def _log_softmax(b: NodeBuilder, x: Value, axis: int) -> Value:
    centred = b.b("sub", x, b.reduce("max", x, [axis], True))
    return b.b("sub", centred, b.b("log", b.reduce("sum", b.b("exp", centred), [axis], True)))


def _hardmax(b: NodeBuilder, x: Value, axis: int) -> Value:
    """1 at the first greatest element, 0 elsewhere."""
    winner = b.argmax(x, axis, True)
    places = b.iota_along(x.shape, axis)
    return b.cast(b.b("equal", places, winner), x.dtype)


def _on_rows(function: Callable[[NodeBuilder, Value, int], Value]) -> Callable[..., Value]:
    def as_matrix(b: NodeBuilder, x: Value, *, axis: int) -> Value:
        split = b.axis(axis, x.type.rank) if axis != x.type.rank else axis
        if split == x.type.rank - 1:
            return function(b, x, split)
        matrix = b.reshape(x, (product(x.shape[:split]), product(x.shape[split:])))
        return b.reshape(function(b, matrix, 1), x.shape)

    return computed_wide(as_matrix)


def _on_axis(function: Callable[[NodeBuilder, Value, int], Value]) -> Callable[..., Value]:
    def along_axis(b: NodeBuilder, x: Value, *, axis: int) -> Value:
        if x.type.rank == 0:  # a row of one element
            return b.reshape(function(b, b.reshape(x, (1,)), 0), ())
        return function(b, x, b.axis(axis, x.type.rank))

    return computed_wide(along_axis)


for _operator, _function in (("Softmax", _softmax), ("LogSoftmax", _log_softmax), ("Hardmax", _hardmax)):
    onnx_op(_operator, 1, 11)(_on_rows(_function))
    onnx_op(_operator, 13)(_on_axis(_function))
