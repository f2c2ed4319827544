"""What the axes and casts of a region mean to its schedules."""

from __future__ import annotations

from ..plan.dims import index_axes
from ..plan.dtypes import bfloat16, float16, float32
from .region import Elementwise, Iota, Load, Reduce, Region


def axes_used(region: Region) -> list[frozenset[int]]:
    """Return for every node the row and column axes that its value depends on (columns are numbered after rows)."""
    used: list[frozenset[int]] = []
    for node in region.nodes:
        axes = frozenset().union(*(used[arg] for arg in node.args))
        if isinstance(node, Load):
            exprs = [*node.view.index, *(bound.expr for bound in node.view.valid)]
            axes = frozenset().union(*map(index_axes, exprs))
        elif isinstance(node, Iota):
            axes = index_axes(node.expr)
        elif isinstance(node, Reduce):
            axes = frozenset(axis for axis in axes if axis < len(node.space))
        used.append(axes)
    return used


def without_widening(region: Region, at: int) -> int:
    """Step over a cast of a 16-bit float to float32: tensor cores widen their factors by themselves."""
    node = region.nodes[at]
    widens = isinstance(node, Elementwise) and node.fn == "cast" and node.dtype is float32
    return node.args[0] if widens and region.nodes[node.args[0]].dtype in (float16, bfloat16) else at


def through_casts(region: Region, at: int) -> int:
    """Step over casts of a float to a wider one: products are kept wide in registers anyway."""
    node = region.nodes[at]
    while isinstance(node, Elementwise) and node.fn == "cast":
        source = region.nodes[node.args[0]].dtype
        if not (source.is_float and node.dtype.is_float and node.dtype.bits >= source.bits):
            break
        if source.compute is not node.dtype.compute:
            break
        at = node.args[0]
        node = region.nodes[at]
    return at
