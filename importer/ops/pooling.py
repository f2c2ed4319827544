"""Pooling over windows, and over whole images."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Value
from ...ir.scalars import lowest
from ...plan.dims import Dim, index_symbol, product
from ..context import NodeBuilder
from ..registry import onnx_op
from .precision import computed_wide, widened
from .windows import AUTO_PAD, Windows, windows


@onnx_op("MaxPool", 1, 8, 10, 11, 12, 22, only={"auto_pad": AUTO_PAD})
def max_pool(
    b: NodeBuilder,
    x: Value,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str,
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> tuple[Value, Value | None]:
    found = windows(b, x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    best = b.pool_max(x, found.kernel, found.strides, found.before, found.after, found.dilations, found.out_sizes)
    return best, _places(b, x, found, storage_order) if b.wants(1) else None


def _places(b: NodeBuilder, x: Value, found: Windows, storage_order: int) -> Value:
    """Return the number, in the whole tensor, of the first greatest element of each window."""
    spatial = list(range(2, x.type.rank))
    cells = _all_windows(b, x, found, lowest(x.dtype))
    flat = b.reshape(cells, (*cells.shape[: x.type.rank], product(found.kernel)))
    winner = b.argmax(flat, x.type.rank, False)
    order = spatial if storage_order == 0 else spatial[::-1]
    total = b.iota(winner.shape, (index_symbol(0) * x.shape[1] + index_symbol(1)) * product(x.shape[2:]))
    for k, axis in enumerate(spatial):
        inner = b.b("floor_mod", b.b("div", winner, product(found.kernel[k + 1 :])), found.kernel[k])
        start = b.iota(winner.shape, index_symbol(axis) * found.strides[k] - found.before[k])
        place = b.b("add", start, b.b("mul", inner, found.dilations[k]))
        below = product(x.shape[other] for other in order[order.index(axis) + 1 :])
        total = b.b("add", total, b.b("mul", place, b.dim_value(below)))
    return total


def _all_windows(b: NodeBuilder, x: Value, found: Windows, fill: int | float | bool) -> Value:
    return b.windows(
        x, range(2, x.type.rank), found.kernel, found.before, found.out_sizes, found.strides, found.dilations, fill
    )


@onnx_op("AveragePool", 7, 10, 11, 19, 22, only={"auto_pad": AUTO_PAD})
def average_pool(
    b: NodeBuilder,
    x: Value,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    found = windows(b, x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    wide = widened(b, x)
    total = b.pool_sum(wide, found.kernel, found.strides, found.before, found.after, found.dilations, found.out_sizes)
    return b.cast(_divided(b, total, x.shape[2:], found, bool(count_include_pad)), x.dtype)


def _divided(b: NodeBuilder, total: Value, sizes: Sequence[Dim], found: Windows, with_padding: bool) -> Value:
    """Divide each window's sum by how many cells it has inside the operand, or inside operand and padding."""
    counts = [_cells_inside(b, size, found, k, with_padding) for k, size in enumerate(sizes)]
    if all(type(count) is int for count in counts):
        return b.b("div", total, product(counts))
    return b.b("div", total, b.cast(b.iota(found.out_sizes, product(counts)), total.dtype))


def _cells_inside(b: NodeBuilder, size: Dim, found: Windows, k: int, with_padding: bool) -> Dim:
    """Return how many cells of a window count along one axis, as a dim of the window's place."""
    low = -found.before[k] if with_padding else 0
    high = size + found.after[k] if with_padding else size
    kernel, dilation = found.kernel[k], found.dilations[k]
    start = index_symbol(k) * found.strides[k] - found.before[k]
    last_start = (found.out_sizes[k] - 1) * found.strides[k] - found.before[k]
    if b.is_nonnegative(-found.before[k] - low) and b.is_nonnegative(high - (last_start + (kernel - 1) * dilation + 1)):
        return kernel
    until = b.larger(b.smaller(b.ceil_div(high - start, dilation), kernel), 0)
    skipped = b.smaller(b.ceil_div(b.larger(low - start, 0), dilation), kernel)
    return until - skipped


@onnx_op("LpPool", 2, 11, 18, 22, only={"auto_pad": AUTO_PAD})
@computed_wide
def lp_pool(
    b: NodeBuilder,
    x: Value,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str,
    p: int,
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    found = windows(b, x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    powers = _powers(b, x, p)
    total = b.pool_sum(powers, found.kernel, found.strides, found.before, found.after, found.dilations, found.out_sizes)
    return _root(b, total, p)


def _powers(b: NodeBuilder, x: Value, p: int) -> Value:
    if p == 2:
        return b.b("mul", x, x)
    size = b.b("abs", x)
    return size if p == 1 else b.b("pow", size, p)


def _root(b: NodeBuilder, x: Value, p: int) -> Value:
    if p == 1:
        return x
    return b.b("sqrt", x) if p == 2 else b.b("pow", x, 1 / p)


def _spatial(b: NodeBuilder, x: Value) -> list[int]:
    if x.type.rank < 3:
        b.invalid(f"needs a batch, channels and at least one more axis, got {x.type}")
    return list(range(2, x.type.rank))


@onnx_op("GlobalAveragePool", 1, 22)
def global_average_pool(b: NodeBuilder, x: Value) -> Value:
    return b.mean(x, _spatial(b, x), True)


@onnx_op("GlobalMaxPool", 1, 22)
def global_max_pool(b: NodeBuilder, x: Value) -> Value:
    return b.reduce("max", x, _spatial(b, x), True)


@onnx_op("GlobalLpPool", 2, 22)
@computed_wide
def global_lp_pool(b: NodeBuilder, x: Value, *, p: int) -> Value:
    return _root(b, b.reduce("sum", _powers(b, x, p), _spatial(b, x), True), p)
