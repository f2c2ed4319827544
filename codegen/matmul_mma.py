"""The tensor-core schedule for matrix products of float16 or bfloat16 factors, with float32 sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.region import Region
from ..ir.region_axes import without_widening
from ..ir.schedule import MATMUL_MMA, classify_matmul, tensor_core_dtype
from ..plan.dims import Ranges, ceil_div
from ..plan.errors import LuminalError
from .kernel_text import KernelText, Lines
from .product_sides import BATCH, K, M, N, Product
from .tile_choice import Arithmetic, choose_tile

LANES = 8
# Slices in shared memory, by how many of the two sides are copied asynchronously.
STAGES = (2, 3, 4)
ARITHMETIC = Arithmetic(4.5e12, 2)


@dataclass(frozen=True)
class MmaTile:
    """Extents of a block's tile and how many warps share it along m and n; `efficiency` is relative to the largest."""

    m: int
    n: int
    k: int
    warps_m: int
    warps_n: int
    efficiency: float

    @property
    def threads(self) -> int:
        return 32 * self.warps_m * self.warps_n

    def shared_bytes(self, stages: int, fast_ka: bool, fast_kb: bool) -> int:
        """Return the shared memory of slices, or of the sums that follow them, as `mma_matmul` lays them out."""
        slices = sum(side_elements(extent, self.k, fast) for extent, fast in ((self.m, fast_ka), (self.n, fast_kb)))
        sums = 16 * (self.n // self.warps_n + 8) * self.warps_m * self.warps_n
        return max(2 * stages * slices, 4 * sums)


TILES = (
    MmaTile(128, 128, 32, 2, 4, 1.0),
    MmaTile(128, 64, 32, 4, 2, 0.8),
    MmaTile(64, 128, 32, 2, 4, 0.8),
    MmaTile(64, 64, 64, 2, 2, 0.65),
    MmaTile(32, 64, 64, 1, 4, 0.45),
    MmaTile(64, 32, 64, 4, 1, 0.45),
    MmaTile(32, 32, 64, 2, 2, 0.3),
    MmaTile(16, 64, 64, 1, 4, 0.3),
    MmaTile(64, 16, 64, 4, 1, 0.3),
)


def matmul_mma_text(region: Region, ranges: Ranges | None) -> KernelText:
    """Return the tensor-core kernel of a region that `classify_matmul` reads as a product of 16-bit factors."""
    axes = classify_matmul(region)
    dtype = None if axes is None else tensor_core_dtype(region, axes)
    if dtype is None:
        raise LuminalError(f"the region is no product for tensor cores: {region}")
    axes = replace(axes, a=without_widening(region, axes.a), b=without_widening(region, axes.b))
    product = Product(region, axes, ranges, LANES)
    tile = choose_tile(TILES, product.typical_size(), ARITHMETIC)
    product.widen_end(LANES)
    lines = Lines()
    flags: list[str] = []
    for name, side in (("load_a", product.a), ("load_b", product.b)):
        direct = side.width == LANES and product.is_direct(side)
        if direct:
            product.write_locate(lines, name, side, dtype)
        else:
            product.write_load(lines, name, side, dtype, memory=True)
        flags += [str(item).lower() for item in (side.fast_k, side.width, direct)]
    product.write_end(lines, "float")
    stages = STAGES[flags.count("true") - product.a.fast_k - product.b.fast_k]
    options = [dtype.c_type, tile.m, tile.n, tile.k, tile.warps_m, tile.warps_n, stages, *flags, product.end_width]
    counts = ", ".join(product.count(group) for group in (M, N, K))
    lines.add(f"mma_matmul<{', '.join(map(str, options))}>({counts}, load_a, load_b, store);")
    grid = product.sizes[BATCH] * ceil_div(product.sizes[M], tile.m) * ceil_div(product.sizes[N], tile.n)
    shared = tile.shared_bytes(stages, product.a.fast_k, product.b.fast_k)
    return KernelText(
        region, MATMUL_MMA, product.dims, ("memory", "matmul_mma"), grid, tile.threads, lines.text(), shared_bytes=shared
    )


def side_elements(extent: int, k: int, fast_k: bool) -> int:
    """Return the elements of a side's slice in shared memory, as `MmaSide` lays it out."""
    line, lines = (k, extent) if fast_k else (extent, k)
    return lines * (line + 8)
