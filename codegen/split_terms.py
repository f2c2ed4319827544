"""Splits the sum of a matrix product into parts that other blocks compute: one region becomes two.

A product with few tiles and many terms leaves most of a GPU idle. The first region computes the sum of every part, as a
batched product; the second adds the parts up in order, the same on every run, and goes on as the region did.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import TensorType
from ..ir.region import Elementwise, Load, Reduce, Region, RegionNode
from ..ir.region_moves import moved
from ..ir.schedule import MatmulAxes
from ..plan.dims import Ranges, index_symbol
from ..plan.view import select
from .points import needed


def split_axis(region: Region) -> tuple[int, int] | None:
    """Return (number, extent) of the column axis to split: the first of known extent above 1."""
    columns = region.row_split()[1]
    return next(((at, extent) for at, extent in enumerate(columns) if isinstance(extent, int) and extent > 1), None)


def split_terms(region: Region, axes: MatmulAxes, parts: int, ranges: Ranges | None) -> tuple[Region, Region]:
    """Return (first, second) for a region that `classify_matmul` read as `axes`; parts divides the split axis's extent.

    The first stores the sums of the parts, of shape (parts, *rows), in the type they accumulate in. The second reads
    that as its operand 0, then what the region reads after the sum, in the order of `second_operands`.
    """
    return _first(region, axes, parts, ranges), _second(region, axes, parts, ranges)


def second_operands(region: Region, axes: MatmulAxes) -> list[int]:
    """Return the region's slots that the second region reads, as its operands 1, 2, ..."""
    after = needed(region, region.stores, {axes.reduce: ""})
    slots = [region.nodes[at].slot for at in after if hasattr(region.nodes[at], "slot")]
    return list(dict.fromkeys(slots))


def first_operands(region: Region, axes: MatmulAxes) -> list[int]:
    """Return the region's slots that the first region reads, in its order."""
    before = needed(region, [axes.product])
    slots = [region.nodes[at].slot for at in before if hasattr(region.nodes[at], "slot")]
    return list(dict.fromkeys(slots))


def _first(region: Region, axes: MatmulAxes, parts: int, ranges: Ranges | None) -> Region:
    rows, columns = region.row_split()
    split, extent = split_axis(region)
    left = extent // parts
    short = tuple(left if at == split else size for at, size in enumerate(columns))
    new_rows = (parts, *rows)
    # Axis 0 is the part; every other axis moves one up.
    index = [index_symbol(axis + 1) for axis in range(len(rows) + len(columns))]
    index[len(rows) + split] = index_symbol(0) * left + index[len(rows) + split]
    spaces = {
        rows: select(rows, new_rows, index[: len(rows)], ranges),
        rows + columns: select(rows + columns, new_rows + short, index, ranges),
    }
    slots = {slot: number for number, slot in enumerate(first_operands(region, axes))}
    nodes: list[RegionNode] = []
    place: dict[int, int] = {}
    for at in needed(region, [axes.product]):
        place[at] = len(nodes)
        nodes.append(moved(region.nodes[at], place, spaces, slots, ranges))
    total = region.nodes[axes.reduce].dtype.compute
    product = len(nodes) - 1
    if nodes[product].dtype is not total:
        nodes.append(Elementwise("cast", (product,), total, new_rows + short))
    nodes.append(Reduce("sum", (len(nodes) - 1,), short, total, new_rows))
    return Region(tuple(nodes), (len(nodes) - 1,), tuple(region.operands[slot] for slot in slots))


def _second(region: Region, axes: MatmulAxes, parts: int, ranges: Ranges | None) -> Region:
    rows = region.row_split()[0]
    reduce = region.nodes[axes.reduce]
    total = reduce.dtype.compute
    stored = (parts, *rows)
    space = (*rows, parts)
    index = [index_symbol(len(rows)), *(index_symbol(axis) for axis in range(len(rows)))]
    nodes: list[RegionNode] = [
        Load(0, select(stored, space, index, ranges), total, space),
        Reduce("sum", (0,), (parts,), total, rows),
    ]
    if reduce.dtype is not total:
        nodes.append(Elementwise("cast", (1,), reduce.dtype, rows))
    place = {axes.reduce: len(nodes) - 1}
    slots = {slot: number + 1 for number, slot in enumerate(second_operands(region, axes))}
    for at in needed(region, region.stores, {axes.reduce: ""}):
        node = region.nodes[at]
        place[at] = len(nodes)
        changes: dict = {"args": tuple(place[arg] for arg in node.args)}
        if hasattr(node, "slot"):
            changes["slot"] = slots[node.slot]
        nodes.append(replace(node, **changes))
    operands = (TensorType(total, stored), *(region.operands[slot] for slot in slots))
    return Region(tuple(nodes), tuple(place[at] for at in region.stores), operands)
