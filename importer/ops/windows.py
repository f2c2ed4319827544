"""Sizes and padding of sliding windows, which convolutions and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...plan.dims import Dim
from ..context import NodeBuilder


@dataclass(frozen=True)
class Windows:
    """Sliding windows over the last axes of a tensor: one entry per spatial axis in each list."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[Dim]
    after: list[Dim]
    out_sizes: list[Dim]


AUTO_PAD = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def windows(
    b: NodeBuilder,
    sizes: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> Windows:
    """Return the windows over axes of these sizes, as the attributes of a node describe them.

    With `ceil_mode` a last window may hang over the end, if it begins inside the operand or the padding before it.
    """
    rank = len(sizes)
    strides, dilations = list(strides or [1] * rank), list(dilations or [1] * rank)
    pads = list(pads or [0] * (2 * rank))
    for name, given, count in (("kernel", kernel, rank), ("strides", strides, rank), ("dilations", dilations, rank)):
        if len(given) != count:
            b.invalid(f"{len(given)} {name} entries for {rank} spatial axes")
    if len(pads) != 2 * rank:
        b.invalid(f"{len(pads)} pads for {rank} spatial axes, which need {2 * rank}")
    if any(type(size) is not int for size in kernel):
        b.fail("the kernel's size must be a number, not a symbolic dim")
    before, after, out = [], [], []
    for k, size in enumerate(sizes):
        reach = (kernel[k] - 1) * dilations[k] + 1
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            count = b.ceil_div(size, strides[k])
            total = b.larger((count - 1) * strides[k] + reach - size, 0)
            small, large = b.simplify(total // 2), b.simplify(total - total // 2)
            first, last = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        else:
            first, last = (0, 0) if auto_pad == "VALID" else (pads[k], pads[k + rank])
            count = _count(b, size, first, last, reach, strides[k], ceil_mode)
            if type(count) is int and count < 0:
                b.invalid(
                    f"a window that reaches over {reach} does not fit an axis of {size} padded by {first} and {last}"
                )
            b.at_least(count, 1)
        before.append(first)
        after.append(last)
        out.append(count)
    return Windows(list(kernel), strides, dilations, before, after, out)


def _count(b: NodeBuilder, size: Dim, first: Dim, last: Dim, reach: int, stride: int, ceil_mode: int) -> Dim:
    room = size + first + last - reach
    if not ceil_mode:
        return b.simplify(room // stride) + 1
    count = b.ceil_div(room, stride) + 1
    # the last window must begin before the end of the operand: at most (size + first - 1) // stride + 1 of them do
    return b.smaller(count, b.simplify((size + first - 1) // stride) + 1)
