"""What a kernel moves and computes, as dims: for reports and roofline bounds, never for correctness."""

from __future__ import annotations

from ..ir.region import Elementwise, Gather, Load, Reduce, Region
from ..ir.region_axes import axes_used
from ..plan.dims import Dim, product


def bytes_moved(region: Region) -> Dim:
    """Return the bytes that must cross the memory bus: each operand's part that is read, once, and each store."""
    total: Dim = sum(product(region.nodes[at].space) * region.nodes[at].dtype.size for at in region.stores)
    for slot, operand in enumerate(region.operands):
        reads = [node for node in region.nodes if isinstance(node, Load | Gather) and node.slot == slot]
        touched = sum(product(node.space) for node in reads)
        total = total + _smaller(product(operand.shape), touched) * operand.dtype.size
    return total


def flops(region: Region) -> Dim:
    """Return the operations on elements: one a point of every scalar function, one a point of what is reduced."""
    used = [] if region.row_split() else axes_used(region)
    total: Dim = 0
    for at, node in enumerate(region.nodes):
        space = node.space + node.extents if isinstance(node, Reduce) else node.space
        if used:  # attention's nodes range over axes that they do not depend on, but are computed once
            of = at if isinstance(node, Elementwise) else node.args[0] if node.args else at
            space = tuple(extent for axis, extent in enumerate(space) if axis in used[of])
        if isinstance(node, Reduce) or (isinstance(node, Elementwise) and node.fn != "cast"):
            total = total + product(space)
    return total


def _smaller(whole: Dim, touched: Dim) -> Dim:
    """Return the smaller one where both are numbers; else the operand as a whole."""
    return min(whole, touched) if isinstance(whole, int) and isinstance(touched, int) else whole
