"""The tiled schedule for regions that are matrix products in disguise: products, convolutions, both halves of attention.

Operands are read through whatever views and elementwise prologues the region has, into tiles in shared memory; what follows the
sum is computed on each element before it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..ir.region import Region
from ..ir.schedule import MATMUL_TILED, MatmulAxes, classify_matmul
from ..plan.dims import Dim, Ranges, bounds, ceil_div, evaluate, linear_terms, product, symbols
from ..plan.errors import LuminalError
from .accesses import Accesses
from .dim_writer import DimWriter, counts_of, needs_wide_index
from .elementwise import gathered, write_position
from .kernel_text import KernelText, Lines
from .points import PointWriter, needed

# Sums of more terms than this are added up in runs.
LONG_SUM = 4096
MULTIPROCESSORS = 132


@dataclass(frozen=True)
class Tile:
    """Extents of a block's tile and of a thread's part of it; `efficiency` is the share of peak that it can reach."""

    m: int
    n: int
    k: int
    per_m: int
    per_n: int
    efficiency: float

    @property
    def threads(self) -> int:
        return (self.m // self.per_m) * (self.n // self.per_n)


TILES = (
    Tile(128, 128, 8, 8, 8, 1.0),
    Tile(128, 64, 16, 8, 4, 0.85),
    Tile(64, 128, 16, 4, 8, 0.85),
    Tile(64, 64, 16, 4, 4, 0.7),
    Tile(32, 64, 16, 4, 4, 0.65),
    Tile(64, 32, 16, 4, 4, 0.65),
    Tile(32, 32, 16, 4, 2, 0.45),
    Tile(16, 64, 16, 2, 4, 0.45),
    Tile(64, 16, 16, 4, 2, 0.45),
    Tile(16, 32, 32, 2, 2, 0.3),
)


def choose_tile(m: int, n: int, batch: int) -> Tile:
    """Return the tile that finishes first when every multiprocessor works through its tiles one by one."""

    def time(tile: Tile) -> float:
        tiles = -(-m // tile.m) * -(-n // tile.n) * batch
        return -(-tiles // MULTIPROCESSORS) * tile.m * tile.n / tile.efficiency

    return min(TILES, key=time)


def matmul_text(region: Region, ranges: Ranges | None) -> KernelText:
    """Return the tiled kernel of a region that `classify_matmul` reads as a matrix product."""
    axes = classify_matmul(region)
    if axes is None:
        raise LuminalError(f"the region is no matrix product: {region}")
    return _Matmul(region, axes, ranges).text()


class _Matmul:
    def __init__(self, region: Region, axes: MatmulAxes, ranges: Ranges | None) -> None:
        self.region, self.axes, self.ranges = region, axes, ranges
        rows, columns = region.row_split()
        self.sizes = {
            name: product(rows[axis] for axis in group)
            for name, group in (("batch", axes.batch), ("m", axes.m), ("n", axes.n))
        }
        self.sizes["k"] = product(columns)
        parts = [self._accesses(needed(region, [root]), ()) for root in (axes.a, axes.b)]
        after = needed(region, region.stores, {axes.reduce: ""})
        self.a, self.b, self.end = *parts, self._accesses(after, range(len(region.stores)))
        mentioned = [dim for part in (self.a, self.b, self.end) for dim in part.dims()]
        wide = needs_wide_index(counts_of(region), ranges)
        self.dims = DimWriter(wide, ranges, (), [*mentioned, *rows, *columns, *gathered(region)])

    def _accesses(self, nodes: Iterable[int], stores: Iterable[int]) -> Accesses:
        axes = self.axes
        return Accesses(self.region, [axes.batch, axes.m, axes.n, axes.k], self.ranges, nodes, stores)

    def text(self) -> KernelText:
        region, axes = self.region, self.axes
        batch, m, n = (_typical(self.sizes[name], self.ranges) for name in ("batch", "m", "n"))
        tile = choose_tile(m, n, batch)
        acc = region.nodes[axes.reduce].dtype.compute.c_type
        lines = Lines()
        self._write_load(lines, "load_a", acc, self.a, axes.a, "m")
        self._write_load(lines, "load_b", acc, self.b, axes.b, "n")
        self._write_store(lines, acc)
        flags = (self._is_fast(self.a, 1), self._is_fast(self.b, 2), self._is_long())
        sizes = (tile.m, tile.n, tile.k, tile.per_m, tile.per_n, *(str(flag).lower() for flag in flags))
        counts = ", ".join(self.dims.c(self.sizes[name]) for name in ("m", "n", "k"))
        lines.add(f"tiled_matmul<{acc}, {', '.join(map(str, sizes))}>({counts}, load_a, load_b, store);")
        grid = self.sizes["batch"] * ceil_div(self.sizes["m"], tile.m) * ceil_div(self.sizes["n"], tile.n)
        return KernelText(
            region, MATMUL_TILED, self.dims, ("memory", "matmul_tiled"), grid, tile.threads, lines.text()
        )

    def _write_load(self, lines: Lines, name: str, acc: str, part: Accesses, root: int, side: str) -> None:
        """Write the function that reads one factor of the product."""
        dims = self.dims.over(part.extents)
        points = PointWriter(self.region, part, dims)
        groups = part.coalesced.groups
        with lines.block(f"auto {name} = [&](Index batch, Index {side}, Index k) -> {acc}", "};"):
            for index, group in (("batch", groups[0]), (side, groups[1 if side == "m" else 2]), ("k", groups[3])):
                write_position(lines, dims, f"UIndex({index})", group)
            lines.add(f"return {points.values(lines, [root], {})[root]};")

    def _write_store(self, lines: Lines, acc: str) -> None:
        """Write the function that takes a sum and stores what the region makes of it."""
        dims = self.dims.over(self.end.extents)
        points = PointWriter(self.region, self.end, dims)
        total = f"v{self.axes.reduce}"
        with lines.block(f"auto store = [&](Index batch, Index m, Index n, {acc} {total})", "};"):
            for index, group in zip(("batch", "m", "n"), self.end.coalesced.groups):
                write_position(lines, dims, f"UIndex({index})", group)
            names = points.values(lines, self.region.stores, {self.axes.reduce: total})
            for number, at in enumerate(self.region.stores):
                lines.add(f"{points.target(number)} = {points.narrowed(at, names[at])};")

    def _is_fast(self, part: Accesses, side: int) -> bool:
        """Say whether the largest load of a factor steps through memory more finely along k than along m or n."""
        other, k = part.coalesced.groups[side], part.coalesced.groups[3]
        if not part.loads or not k:
            return False
        if not other:
            return True
        largest = max(part.loads, key=lambda at: len(self.region.operands[self.region.nodes[at].slot].shape))
        axes = [k[-1][0], other[-1][0]]
        linear = linear_terms(part.loads[largest].offset, axes)
        return linear is not None and linear[1][axes[0]] == 1 and linear[1][axes[1]] != 1

    def _is_long(self) -> bool:
        most = bounds(self.sizes["k"], self.ranges)[1]
        return self.region.nodes[self.axes.reduce].dtype.is_float and (most is None or most > LONG_SUM)


def _typical(size: Dim, ranges: Ranges | None) -> int:
    """Return the size at the dims' usual values; 1024 for each dim that has no range."""
    known = {name: ranges[name].opt if ranges and name in ranges else 1024 for name in symbols(size)}
    return max(1, evaluate(size, known))
