"""The schedule for attention: `softmax(f(q k)) v` in one kernel, on tensor cores, without a score in memory."""

from __future__ import annotations

from ..ir.attention import AttentionAxes, classify_attention, scores_region, values_region
from ..ir.region import Region
from ..ir.schedule import ATTENTION, MatmulAxes
from ..plan.dims import Dim, Ranges, ceil_div, product
from ..plan.errors import LuminalError
from .accesses import Accesses
from .dim_writer import DimWriter, needs_wide_index
from .kernel_text import KernelText, Lines
from .matmul_mma import LANES, side_elements
from .points import PointWriter, needed
from .positions import write_position
from .product_sides import BATCH, NAMES, K, M, N, Product, Side
from .tile_choice import MULTIPROCESSORS, typical

STAGES = 2
FRAGMENT = 16
TILE_N = 64
FEW_KEYS = 32  # for no more keys than this, smaller tiles
MOST_WARPS, USUAL_WARPS = 8, 4


def attention_text(region: Region, ranges: Ranges | None) -> KernelText:
    """Return the kernel of a region that `classify_attention` reads as attention."""
    axes = classify_attention(region)
    if axes is None:
        raise LuminalError(f"the region is no attention for tensor cores: {region}")
    return _Attention(region, axes, ranges).text()


class _Attention:
    """The two products, sharing one numbering of batches and queries, and the logits between them."""

    def __init__(self, region: Region, axes: AttentionAxes, ranges: Ranges | None) -> None:
        self.region, self.axes, self.ranges = region, axes, ranges
        self.first, self.logit, self.sum = self._first()
        self.second = self._second()
        after = needed(self.first.region, [self.logit], {self.sum: ""})
        groups = self.first.axes
        self.between = Accesses(
            self.first.region, [groups.batch, groups.m, groups.n, groups.k], ranges, after, ()
        )
        self.dims = self._dims()
        self.first.dims = self.second.dims = self.dims
        self.lines = Lines()

    def _first(self) -> tuple[Product, int, int]:
        """Return the product of queries and keys, and the places of the logits and of the sum they are made of."""
        axes = self.axes
        region, place = scores_region(self.region, axes, self.ranges)
        kept = [axis for axis in range(axes.k[-1] + 1) if axis not in axes.d]
        number = {axis: at for at, axis in enumerate(kept)}

        def renumbered(group: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(number[axis] for axis in group)

        groups = MatmulAxes(
            batch=renumbered(axes.batch), m=renumbered(axes.m), n=renumbered((axes.n,)), k=renumbered(axes.k),
            a=place[axes.q], b=place[axes.key], product=-1, reduce=place[axes.scores],
        )  # fmt: skip
        return Product(region, groups, self.ranges, LANES), place[axes.logits], place[axes.scores]

    def _second(self) -> Product:
        """Return the product of probabilities and values."""
        axes = self.axes
        region, place = values_region(self.region, axes, self.ranges)
        groups = MatmulAxes(
            batch=axes.batch, m=axes.m, n=axes.d, k=(axes.n,), a=0, b=place[axes.v], product=-1, reduce=place[axes.out]
        )
        found = Product(region, groups, self.ranges, LANES)
        found.widen_end(LANES)
        return found

    def _dims(self) -> DimWriter:
        parts = (self.first.a, self.first.b, self.second.b)
        accesses = [*(side.accesses for side in parts), self.between, self.second.end]
        held = [dim for operand in self.region.operands for dim in operand.shape]
        mentioned = [dim for access in accesses for dim in access.dims()]
        counts = [product(operand.shape) for operand in self.region.operands]
        counts.append(product(self.region.nodes[self.axes.out].space))
        sizes: list[Dim] = [*self.first.sizes, *self.second.sizes]
        return DimWriter(needs_wide_index(counts, self.ranges), self.ranges, (), [*mentioned, *sizes, *held])

    def text(self) -> KernelText:
        lines, dtype = self.lines, self.axes.dtype
        warps, tile_n = self._warps(), self._tile_n()
        tile_k, tile_d = (-(-size // FRAGMENT) * FRAGMENT for size in (self.first.sizes[K], self.second.sizes[N]))
        flags = [
            *self._write_side("load_q", self.first, self.first.a),
            *self._write_side("load_k", self.first, self.first.b),
            *self._write_side("load_v", self.second, self.second.b),
        ]
        self._write_logit()
        self.second.write_end(lines, "float")
        options = [dtype.c_type, warps, tile_n, tile_k, tile_d, *flags, self.second.end_width]
        counts = [self.first.count(group) for group in (M, N, K)]
        counts.append(self.second.count(N))
        lines.add(
            f"flash_attention<{', '.join(map(str, options))}>({', '.join(counts)}, load_q, load_k, load_v, logit, store);"
        )
        slices = side_elements(tile_n, tile_k, self.first.b.fast_k) + side_elements(tile_d, tile_n, self.second.b.fast_k)
        factors = side_elements(FRAGMENT * warps, tile_k, self.first.a.fast_k) + STAGES * slices
        sums = FRAGMENT * warps * (tile_d + 8)
        grid = self.first.sizes[BATCH] * ceil_div(self.first.sizes[M], FRAGMENT * warps)
        return KernelText(
            self.region, ATTENTION, self.dims, ("memory", "matmul_mma", "attention"), grid, 32 * warps, lines.text(),
            shared_bytes=max(2 * factors, 4 * sums),
        )  # fmt: skip

    def _warps(self) -> int:
        """Return the warps of a block: no more than there are queries for, many only if enough blocks are left."""
        batch, queries = (typical(self.first.sizes[group], self.ranges) for group in (BATCH, M))
        blocks = batch * -(-queries // (FRAGMENT * MOST_WARPS))
        warps = MOST_WARPS if blocks >= 2 * MULTIPROCESSORS else USUAL_WARPS
        while warps > 1 and FRAGMENT * warps >= 2 * queries:
            warps //= 2
        return warps

    def _tile_n(self) -> int:
        return FEW_KEYS if typical(self.first.sizes[N], self.ranges) <= FEW_KEYS else TILE_N

    def _write_side(self, name: str, part: Product, side: Side) -> list[str]:
        """Write how a factor is fetched; return its template arguments."""
        direct = side.width == LANES and part.is_direct(side)
        if direct:
            part.write_locate(self.lines, name, side, self.axes.dtype)
        else:
            part.write_load(self.lines, name, side, self.axes.dtype, memory=True)
        return [str(item).lower() for item in (side.fast_k, side.width, direct)]

    def _write_logit(self) -> None:
        """Write what becomes of a score before the softmax."""
        dims = self.dims.over(self.between.extents)
        points = PointWriter(self.first.region, self.between, dims)
        with self.lines.block("auto logit = [&](Index batch, Index m, Index n, float score) -> float", "};"):
            for group in (BATCH, M, N):
                write_position(self.lines, dims, f"UIndex({NAMES[group]})", self.between.coalesced.groups[group])
            names = points.values(self.lines, [self.logit], {self.sum: "score"})
            self.lines.add(f"return {names[self.logit]};")
