"""How a matrix product's kernels fetch their two factors, finish their sums, and in which order they number the terms.

Both tiled schedules share this: the factors are functions of (batch, m or n, k) that give a vector of neighbouring lanes, the end
is a function that takes a vector of sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir.region import Load, Region
from ..ir.schedule import MatmulAxes
from ..plan.dims import Ranges, divides, linear_terms, product
from ..plan.dtypes import DType
from .accesses import VECTOR, Accesses
from .dim_writer import DimWriter, counts_of, needs_wide_index
from .kernel_text import Lines
from .points import PointWriter, Vector, needed
from .positions import write_position
from .tile_choice import Size, typical

VECTOR_BYTES = 16
BATCH, M, N, K = range(4)
NAMES = ("batch", "m", "n", "k")

WHOLE_VECTORS = 1000.0  # how much better these are than any run of single elements
FAR = 64  # elements between neighbours that share nothing in a cache


@dataclass(frozen=True)
class Side:
    """One factor: node `root`, over groups (batch, m or n, k). Lanes run along k if `fast_k`, else along the other group."""

    root: int
    group: int
    accesses: Accesses
    fast_k: bool
    width: int
    direct: bool = False  # plain vectors in memory, or zeros: nothing has to be computed

    @property
    def fast_group(self) -> int:
        return K if self.fast_k else self.group


class Product:
    """A region read as a matrix product, ready to be written."""

    def __init__(self, region: Region, axes: MatmulAxes, ranges: Ranges | None, widest: int) -> None:
        self.region, self.axes, self.ranges = region, axes, ranges
        rows, columns = region.row_split()
        groups = (axes.batch, axes.m, axes.n)
        self.sizes = [*(product(rows[axis] for axis in group) for group in groups), product(columns)]
        self.a, self.b = self._sides(widest)
        after = needed(region, region.stores, {axes.reduce: ""})
        self.end = self._accesses(axes.k, after, range(len(region.stores)))
        self.end_width = 1
        parts = (self.a.accesses, self.b.accesses, self.end)
        mentioned = [dim for part in parts for dim in part.dims()]
        gathered = [dim for operand in region.operands for dim in operand.shape]
        wide = needs_wide_index(counts_of(region), ranges)
        self.dims = DimWriter(wide, ranges, (), [*mentioned, *rows, *columns, *gathered])

    def count(self, group: int) -> str:
        return self.dims.c(self.sizes[group])

    def typical_size(self) -> Size:
        """Return the product's extents at the dims' usual values."""
        return Size(*(typical(size, self.ranges) for size in self.sizes))

    def widen_end(self, widest: int) -> None:
        """Let the end take vectors of sums, as wide as its stores allow but no wider than this."""
        self.end_width = self._width(self.end, N, widest)

    def is_direct(self, side: Side) -> bool:
        """Say whether a side's vectors lie in memory just so, with zeros where its view reads its fill."""
        node = self.region.nodes[side.root]
        if not isinstance(node, Load) or side.width == 1 or (node.view.fill is not None and not _is_zero(node.view.fill)):
            return False
        axis = side.accesses.coalesced.groups[side.fast_group][-1][0]
        return side.accesses.along(side.accesses.loads[side.root], axis, side.width) == VECTOR

    # ---- layout

    def _accesses(self, k: Sequence[int], nodes: Iterable[int], stores: Iterable[int]) -> Accesses:
        axes = self.axes
        return Accesses(self.region, [axes.batch, axes.m, axes.n, k], self.ranges, nodes, stores)

    def _sides(self, widest: int) -> tuple[Side, Side]:
        """Choose the order of the terms, the same for both factors, and for each the direction of its lanes."""
        k = self.axes.k
        orders = [k, *((*(other for other in k if other != axis), axis) for axis in k[:-1])]
        return max((self._sides_in_order(order, widest) for order in orders), key=lambda pair: pair[0])[1]

    def _sides_in_order(self, k: Sequence[int], widest: int) -> tuple[float, tuple[Side, Side]]:
        total, sides = 0.0, []
        for root, group in ((self.axes.a, M), (self.axes.b, N)):
            accesses = self._accesses(k, needed(self.region, [root]), ())
            choices = [self._side(root, group, accesses, fast_k, widest) for fast_k in (True, False)]
            score, side = max(choices, key=lambda choice: choice[0])
            total += score
            sides.append(side)
        return total, (sides[0], sides[1])

    def _side(self, root: int, group: int, accesses: Accesses, fast_k: bool, widest: int) -> tuple[float, Side]:
        """Return a way to fetch and how good it is: whole vectors, then long runs of neighbours that lie close."""
        fast = K if fast_k else group
        width = self._width(accesses, fast, widest)
        side = Side(root, group, accesses, fast_k, width)
        if not accesses.loads or not accesses.coalesced.groups[fast]:
            return 0, side
        main = max(accesses.loads, key=lambda at: len(self.region.operands[self.region.nodes[at].slot].shape))
        axis, extent = accesses.coalesced.groups[fast][-1]
        access = accesses.loads[main]
        if width > 1 and accesses.along(access, axis, width) == VECTOR:
            return WHOLE_VECTORS * width, side
        linear = linear_terms(access.offset, [axis])
        stride = typical(linear[1][axis], self.ranges) if linear is not None else FAR
        run = min(typical(extent, self.ranges), FAR) / max(1, abs(stride))
        return run + width / FAR, side

    def _width(self, accesses: Accesses, group: int, widest: int) -> int:
        """Return the widest vector that divides the group's last axis and makes no access wider than 16 bytes."""
        axes = accesses.coalesced.groups[group]
        if not axes:
            return 1
        axis, extent = axes[-1]
        touched = [(access, self.region.nodes[at].dtype.size) for at, access in accesses.loads.items()]
        for number, access in accesses.stores.items():
            touched.append((access, self.region.nodes[self.region.stores[number]].dtype.size))
        width = widest
        while width > 1:
            wide = [access for access, size in touched if size * width > VECTOR_BYTES]
            fits = all(accesses.along(access, axis, width) != VECTOR for access in wide)
            if fits and divides(width, extent, self.ranges):
                break
            width //= 2
        return width

    # ---- text

    def write_load(self, lines: Lines, name: str, side: Side, dtype: DType, memory: bool) -> None:
        """Write the function that reads a vector of a factor: a Pack of what registers hold, or with `memory` memory."""
        dims = self.dims.over(side.accesses.extents)
        points = PointWriter(self.region, side.accesses, dims)
        c_type = dtype.c_type if memory else dtype.compute.c_type
        result = f"Pack<{c_type}, {side.width}>"
        groups = side.accesses.coalesced.groups
        other = NAMES[side.group]
        vector = self._vector(side, groups)
        with lines.block(f"auto {name} = [&](Index batch, Index {other}, Index k) -> {result}", "};"):
            for group in (BATCH, side.group, K):
                is_fast = group == side.fast_group and vector.width > 1
                write_position(lines, dims, f"UIndex({NAMES[group]})", groups[group], is_fast)
            node = self.region.nodes[side.root]
            if memory and isinstance(node, Load) and points.kind(side.root, vector) == VECTOR:
                lines.add(f"return {points.pack_load(side.root, vector)};")
                return
            lines.add(f"{result} fetched;")
            raw = memory and isinstance(node, Load)
            roots = [] if raw else [side.root]

            def each(names: dict[int, str]) -> Iterable[str]:
                value = points.element_load(side.root) if raw else names[side.root]
                if memory and not raw:
                    value = f"convert<{c_type}>({value})"
                yield f"fetched[{'lane' if vector.width > 1 else '0'}] = {value};"

            points.vector(lines, vector, roots, {}, each)
            lines.add("return fetched;")

    def write_locate(self, lines: Lines, name: str, side: Side, dtype: DType) -> None:
        """Write the function that says where a vector of a direct side lies."""
        dims = self.dims.over(side.accesses.extents)
        groups = side.accesses.coalesced.groups
        access, axis = side.accesses.loads[side.root], groups[side.fast_group][-1][0]
        first = {axis: f"first{axis}"}
        other = NAMES[side.group]
        with lines.block(f"auto {name} = [&](Index batch, Index {other}, Index k) -> Source<{dtype.c_type}>", "};"):
            for group in (BATCH, side.group, K):
                write_position(lines, dims, f"UIndex({NAMES[group]})", groups[group], group == side.fast_group)
            place = f"in{self.region.nodes[side.root].slot} + ({dims.c(access.offset, first)})"
            lines.add(f"return {{{place}, {dims.condition(access.valid, first)}}};")

    def _vector(self, side: Side, groups: Sequence) -> Vector:
        if side.width == 1:
            return Vector()
        return Vector(groups[side.fast_group][-1][0], side.width)

    def write_end(self, lines: Lines, acc: str) -> None:
        """Write the function that stores what the region makes of a vector of sums, neighbours along n."""
        dims = self.dims.over(self.end.extents)
        points = PointWriter(self.region, self.end, dims)
        groups = self.end.coalesced.groups
        width = self.end_width
        vector = Vector(groups[N][-1][0], width) if width > 1 else Vector()
        known = {self.axes.reduce: "sums[lane]" if width > 1 else "sums[0]"}
        with lines.block(f"auto store = [&](Index batch, Index m, Index n, const {acc}* sums)", "};"):
            for group in (BATCH, M, N):
                write_position(lines, dims, f"UIndex({NAMES[group]})", groups[group], group == N and width > 1)
            stores = dict(enumerate(self.region.stores))
            points.vector(lines, vector, self.region.stores, known, lambda names: (), stores)


def _is_zero(fill: float) -> bool:
    return fill == 0 and math.copysign(1.0, fill) > 0
