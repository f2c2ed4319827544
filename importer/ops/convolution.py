"""Convolutions. Windows are views; a transposed convolution is one over an operand spread out by its strides."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Value
from ...plan.dims import Dim, index_symbol
from ...plan.dtypes import int32
from ...plan.view import Bound
from ..context import NodeBuilder
from ..registry import onnx_op
from .windows import AUTO_PAD, windows


@onnx_op("Conv", 1, 11, 22, only={"auto_pad": AUTO_PAD})
def conv(
    b: NodeBuilder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    auto_pad: str,
    group: int,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    _check_kernel(b, w, kernel_shape)
    found = windows(b, x.shape[2:], w.shape[2:], strides, pads, dilations, auto_pad)
    result = b.conv(x, w, found.strides, found.before, found.after, found.dilations, group)
    return result if bias is None else with_bias(b, result, bias)


def with_bias(b: NodeBuilder, x: Value, bias: Value) -> Value:
    """Add one number per channel."""
    return b.b("add", x, b.reshape(bias, (bias.shape[0], *[1] * (x.type.rank - 2))))


def _check_kernel(b: NodeBuilder, w: Value, kernel_shape: Sequence[int] | None) -> None:
    if kernel_shape and tuple(kernel_shape) != w.shape[2:]:
        b.invalid(f"kernel_shape {list(kernel_shape)} contradicts the weights {w.type}")


@onnx_op("ConvInteger", 10, only={"auto_pad": AUTO_PAD})
def conv_integer(
    b: NodeBuilder,
    x: Value,
    w: Value,
    x_zero: Value | None = None,
    w_zero: Value | None = None,
    *,
    auto_pad: str,
    group: int,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """Exact in int32. Padding holds the zero point, so it adds nothing."""
    x, w = b.cast(x, int32), b.cast(w, int32)
    if x_zero is not None:
        x = b.b("sub", x, b.reshape(b.cast(x_zero, int32), ()))
    if w_zero is not None:
        zero = b.cast(w_zero, int32)
        shape = () if zero.type.rank == 0 or zero.shape == (1,) else (zero.shape[0], *[1] * (w.type.rank - 1))
        w = b.b("sub", w, b.reshape(zero, shape))
    return conv(
        b,
        x,
        w,
        auto_pad=auto_pad,
        group=group,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@onnx_op("ConvTranspose", 1, 11, 22, only={"auto_pad": AUTO_PAD})
def conv_transpose(
    b: NodeBuilder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    auto_pad: str,
    group: int,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    _check_kernel(b, w, kernel_shape)
    rank = x.type.rank - 2
    strides, dilations = list(strides or [1] * rank), list(dilations or [1] * rank)
    extra = list(output_padding or [0] * rank)
    reach = [(w.shape[2 + k] - 1) * dilations[k] for k in range(rank)]
    first, last = _transposed_pads(b, x, reach, strides, extra, auto_pad, pads, output_shape)
    spread = _spread(b, x, strides)
    before = [reach[k] - first[k] for k in range(rank)]
    after = [reach[k] - last[k] + extra[k] for k in range(rank)]
    result = b.conv(spread, _flipped(b, w, group), [1] * rank, before, after, dilations, group)
    return result if bias is None else with_bias(b, result, bias)


def _transposed_pads(
    b: NodeBuilder,
    x: Value,
    reach: Sequence[int],
    strides: Sequence[int],
    extra: Sequence[int],
    auto_pad: str,
    pads: Sequence[int] | None,
    output_shape: Sequence[int] | None,
) -> tuple[list[Dim], list[Dim]]:
    """Return what is cut off before and after. A wanted output shape, or SAME, says how much in all.

    Less than nothing is cut off at the end of an output that is wanted larger.
    """
    rank = len(reach)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER") and not output_shape:
        pads = list(pads or [0] * 2 * rank) if auto_pad == "NOTSET" else [0] * 2 * rank
        return pads[:rank], pads[rank:]
    sizes = output_shape[-rank:] if output_shape else [x.shape[2 + k] * strides[k] for k in range(rank)]
    first, last = [], []
    for k in range(rank):
        surplus = b.simplify((x.shape[2 + k] - 1) * strides[k] + extra[k] + reach[k] + 1 - sizes[k])
        total = b.larger(surplus, 0)
        half = b.simplify(total // 2)
        first.append(half if auto_pad == "SAME_UPPER" else b.simplify(total - half))
        last.append(b.simplify(surplus - first[-1]))
    return first, last


def _spread(b: NodeBuilder, x: Value, strides: Sequence[int]) -> Value:
    """Put `stride - 1` zeros between neighbours along each spatial axis."""
    shape, index, valid = list(x.shape), [index_symbol(axis) for axis in range(x.type.rank)], []
    for axis, stride in enumerate(strides, 2):
        if stride == 1:
            continue
        shape[axis] = (x.shape[axis] - 1) * stride + 1
        valid.append(Bound(index_symbol(axis) % stride, 0, 1))
        index[axis] = index_symbol(axis) // stride
    return b.indexed(x, shape, index, valid, 0) if valid else x


def _flipped(b: NodeBuilder, w: Value, group: int) -> Value:
    """Turn weights [C, M/group, ...] into [M, C/group, ...], each kernel mirrored."""
    channels, maps, *kernel = w.shape
    rank = len(kernel)
    mirrored = b.slice(w, [0, 0, *(size - 1 for size in kernel)], [1, 1, *[-1] * rank], w.shape)
    grouped = b.reshape(mirrored, (group, channels // group, maps, *kernel))
    swapped = b.transpose(grouped, (0, 2, 1, *range(3, 3 + rank)))
    return b.reshape(swapped, (group * maps, channels // group, *kernel))
