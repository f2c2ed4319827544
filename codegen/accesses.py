"""The index expressions of a region, gathered so that axes can be merged, and how each behaves along a vector of lanes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir.region import Iota, Load, Region
from ..plan.dims import Dim, Ranges, divides, index_symbol, simplify, substitute
from ..plan.view import Bound
from .axes import Coalesced, coalesce

VECTOR = "vector"  # the lanes read neighbouring elements, the first one at a multiple of the width
UNIFORM = "uniform"  # all lanes read one element
LANES = "lanes"  # anything else


@dataclass(frozen=True)
class Access:
    """Where a load reads, or a store writes: element `offset`, provided that `valid` holds."""

    offset: Dim
    valid: tuple[Bound, ...] = ()


class Accesses:
    """The loads, iotas and stores of a region over merged axes: those among `nodes`, and `stores` by number; all by default.

    `loads[at]` and `iotas[at]` are keyed by node position, `stores[k]` by store number. Fewer of them let more axes merge.
    """

    def __init__(
        self,
        region: Region,
        groups: Sequence[Sequence[int]],
        ranges: Ranges | None,
        nodes: Iterable[int] | None = None,
        stores: Iterable[int] | None = None,
    ) -> None:
        nodes = range(len(region.nodes)) if nodes is None else sorted(nodes)
        stores = range(len(region.stores)) if stores is None else stores
        space = max((node.space for node in region.nodes), key=len)
        self.ranges = ranges
        expressions: dict[tuple, Dim] = {}
        for at in nodes:
            node = region.nodes[at]
            if isinstance(node, Load):
                expressions["load", at] = node.view.offset(ranges)
                for k, bound in enumerate(node.view.valid):
                    expressions["bound", at, k] = bound.expr
            elif isinstance(node, Iota):
                expressions["iota", at] = node.expr
        for number in stores:
            expressions["store", number] = row_major(region.nodes[region.stores[number]].space)
        self.coalesced: Coalesced = coalesce(groups, space, expressions)
        self.extents = self.coalesced.extents(len(space))
        merged = {key: simplify(expr, ranges, self.extents) for key, expr in self.coalesced.expressions.items()}
        self.loads: dict[int, Access] = {}
        self.iotas: dict[int, Dim] = {}
        for at in nodes:
            node = region.nodes[at]
            if isinstance(node, Load):
                valid = enumerate(node.view.valid)
                bounds = tuple(Bound(merged["bound", at, k], bound.low, bound.high) for k, bound in valid)
                self.loads[at] = Access(merged["load", at], bounds)
            elif isinstance(node, Iota):
                self.iotas[at] = merged["iota", at]
        self.stores = {number: Access(merged["store", number]) for number in stores}

    def dims(self) -> list[Dim]:
        """Return every dim that a kernel of this region may mention."""
        found = [*self.extents, *self.iotas.values()]
        for access in (*self.loads.values(), *self.stores.values()):
            found.append(access.offset)
            for bound in access.valid:
                found += (bound.expr, bound.low, bound.high)
        return found

    def along(self, access: Access, axis: int, width: int) -> str:
        """Say how `width` lanes along an axis, the first at a multiple of the width, see an access."""
        steady = all(self._change(bound.expr, axis, width) == 0 for bound in access.valid)
        if not steady:
            return LANES
        change = self._change(access.offset, axis, width)
        if change == 0:
            return UNIFORM
        first = self._in_lane(access.offset, axis, width, 0)
        if change == index_symbol(len(self.extents)) and divides(width, first, self.ranges):
            return VECTOR
        return LANES

    def _change(self, expr: Dim, axis: int, width: int) -> Dim:
        """Return how much expr grows from lane 0 to lane r, written with the index variable after the last axis as r."""
        lane = index_symbol(len(self.extents))
        return self._in_lane(expr, axis, width, lane) - self._in_lane(expr, axis, width, 0)

    def _in_lane(self, expr: Dim, axis: int, width: int, lane: Dim) -> Dim:
        extents = [*self.extents, width]
        extents[axis] = simplify(extents[axis] // width, self.ranges)
        return simplify(substitute(expr, {}, {axis: index_symbol(axis) * width + lane}), self.ranges, extents)


def row_major(space: Sequence[Dim]) -> Dim:
    """Return the row-major number of a point of the space, over its index variables."""
    offset: Dim = 0
    for axis, extent in enumerate(space):
        offset = offset * extent + index_symbol(axis)
    return offset

