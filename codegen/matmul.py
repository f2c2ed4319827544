"""The tiled schedule for regions that are matrix products in disguise: products, convolutions, both halves of attention.

Operands are read through whatever views and elementwise prologues the region has, into tiles in shared memory; what follows the
sum is computed on each element before it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.region import Region
from ..ir.schedule import MATMUL_TILED, classify_matmul
from ..plan.dims import Ranges, bounds, ceil_div
from ..plan.errors import LuminalError
from .kernel_text import KernelText, Lines
from .product_sides import BATCH, VECTOR_BYTES, K, M, N, Product
from .tile_choice import Arithmetic, choose_tile

# Sums of more terms than this are added up in runs.
LONG_SUM = 4096
STATIC_SHARED_BYTES = 48 << 10
ARITHMETIC = Arithmetic(0.4e12, 4)


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

    def shared_bytes(self, size: int) -> int:
        """Return the shared memory that slices of elements of `size` bytes take."""
        padding = VECTOR_BYTES // size
        return 2 * self.k * (self.m + self.n + 2 * padding) * size


TILES = (
    Tile(128, 128, 8, 8, 8, 1.0),
    Tile(128, 64, 16, 8, 4, 0.85),
    Tile(64, 128, 16, 4, 8, 0.85),
    Tile(64, 64, 16, 4, 4, 0.7),
    Tile(32, 64, 32, 4, 4, 0.65),
    Tile(64, 32, 32, 4, 4, 0.65),
    Tile(32, 32, 32, 4, 2, 0.45),
    Tile(16, 64, 32, 2, 4, 0.45),
    Tile(64, 16, 32, 4, 2, 0.45),
    Tile(16, 32, 32, 2, 2, 0.3),
)


def matmul_text(region: Region, ranges: Ranges | None) -> KernelText:
    """Return the tiled kernel of a region that `classify_matmul` reads as a matrix product."""
    axes = classify_matmul(region)
    if axes is None:
        raise LuminalError(f"the region is no matrix product: {region}")
    dtype = region.nodes[axes.reduce].dtype
    lanes = VECTOR_BYTES // dtype.compute.size
    product = Product(region, axes, ranges, min(lanes, 4))
    fitting = [tile for tile in TILES if tile.shared_bytes(dtype.compute.size) <= STATIC_SHARED_BYTES]
    tile = choose_tile(fitting, product.typical_size(), ARITHMETIC)
    product.widen_end(min(lanes, tile.per_n, 4))
    most = bounds(product.sizes[K], ranges)[1]
    long_sum = dtype.is_float and (most is None or most > LONG_SUM)
    acc = dtype.compute.c_type
    lines = Lines()
    product.write_load(lines, "load_a", product.a, dtype, memory=False)
    product.write_load(lines, "load_b", product.b, dtype, memory=False)
    product.write_end(lines, acc)
    flags = [str(item).lower() for side in (product.a, product.b) for item in (side.fast_k, side.width)]
    flags += [str(product.end_width), str(long_sum).lower()]
    options = [acc, tile.m, tile.n, tile.k, tile.per_m, tile.per_n, *flags]
    counts = ", ".join(product.count(group) for group in (M, N, K))
    lines.add(f"tiled_matmul<{', '.join(map(str, options))}>({counts}, load_a, load_b, store);")
    grid = product.sizes[BATCH] * ceil_div(product.sizes[M], tile.m) * ceil_div(product.sizes[N], tile.n)
    return KernelText(region, MATMUL_TILED, product.dims, ("memory", "matmul_tiled"), grid, tile.threads, lines.text())
