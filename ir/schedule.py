"""Which schedules can run a region, and what its axes mean to a matrix product. No CUDA here: search reads it too."""

from __future__ import annotations

from dataclasses import dataclass

from ..plan.dims import Ranges, bounds, product
from ..plan.dtypes import DType, bfloat16, float16, float32
from .attention import classify_attention
from .region import Elementwise, Reduce, Region
from .region_axes import axes_used, through_casts, without_widening

ELEMENTWISE = "elementwise"
ROW_THREAD = "row_thread"
ROW_WARP = "row_warp"
ROW_BLOCK = "row_block"
ROW_SLICES = "row_slices"  # 32 neighbouring rows for a block, whose warps share out the columns
ROW_SCHEDULES = (ROW_THREAD, ROW_WARP, ROW_BLOCK, ROW_SLICES)
MATMUL_TILED = "matmul_tiled"
MATMUL_MMA = "matmul_mma"  # on tensor cores
MATMULS = (MATMUL_TILED, MATMUL_MMA)
ATTENTION = "attention"  # both products and the softmax between them, on tensor cores

# A warp or a block for a row leaves most of its threads idle when the row is shorter than this.
LEAST_WARP_COLUMNS = 17
LEAST_BLOCK_COLUMNS = 257
LEAST_SLICED_COLUMNS = 64


@dataclass(frozen=True)
class MatmulAxes:
    """A region read as a (batched) matrix product: `out[batch, m, n] = epilogue(sum over k of a[batch, m, k] * b[batch, n, k])`.

    `batch`, `m`, `n` hold row axes of the region (each row axis is in exactly one, in its order there), `k` its column
    axes. `a` and `b` are the positions of the factors, `product` of the multiplication, `reduce` of the sum. `a` and `b`
    are ordered so that the last row axis that matters is in `n` (or in `batch`). `m` or `n` may be empty: a product of a
    matrix and a vector.
    """

    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    a: int
    b: int
    product: int
    reduce: int


def schedules(region: Region, ranges: Ranges | None = None) -> tuple[str, ...]:
    """Return every schedule worth considering for this region; () if no kernel template fits it."""
    split = region.row_split()
    if split is None:
        return (ATTENTION,) if classify_attention(region) is not None else ()
    rows, columns = split
    if not region.reductions:
        return (ELEMENTWISE,)
    _, most = bounds(product(columns), ranges)
    found = [ROW_THREAD]
    if most is None or most >= LEAST_WARP_COLUMNS:
        found.append(ROW_WARP)
    if most is None or most >= LEAST_BLOCK_COLUMNS:
        found.append(ROW_BLOCK)
    if rows and (most is None or most >= LEAST_SLICED_COLUMNS):
        found.append(ROW_SLICES)
    axes = classify_matmul(region)
    if axes is not None and axes.m and axes.n:
        found.append(MATMUL_TILED)
        if tensor_core_dtype(region, axes) is not None:
            found.append(MATMUL_MMA)
    return tuple(found)


def classify_matmul(region: Region) -> MatmulAxes | None:
    """Read the region as a matrix product; None if it is not `epilogue(sum(prologue * prologue))` stored row by row."""
    split = region.row_split()
    if split is None or len(region.reductions) != 1:
        return None
    rows, columns = split
    reduce = next(at for at, node in enumerate(region.nodes) if isinstance(node, Reduce))
    if region.nodes[reduce].fn != "sum" or any(region.nodes[at].space != rows for at in region.stores):
        return None
    product_at = through_casts(region, region.nodes[reduce].args[0])
    multiplication = region.nodes[product_at]
    if not (isinstance(multiplication, Elementwise) and multiplication.fn == "mul"):
        return None
    a, b = multiplication.args
    used = axes_used(region)
    k = tuple(range(len(rows), len(rows) + len(columns)))
    row_axes = range(len(rows))
    only_a = [axis for axis in row_axes if axis in used[a] and axis not in used[b]]
    only_b = [axis for axis in row_axes if axis in used[b] and axis not in used[a]]
    if not only_a and not only_b:
        return None
    if max(only_a, default=-1) > max(only_b, default=-1):
        a, b, only_a, only_b = b, a, only_b, only_a
    batch = tuple(axis for axis in row_axes if axis not in only_a and axis not in only_b)
    return MatmulAxes(batch, tuple(only_a), tuple(only_b), k, a, b, product_at, reduce)


def tensor_core_dtype(region: Region, axes: MatmulAxes) -> DType | None:
    """Return float16 or bfloat16 if both factors are exactly of that type and sums are float32 wide; else None."""
    a, b = (region.nodes[without_widening(region, at)].dtype for at in (axes.a, axes.b))
    wide = region.nodes[axes.reduce].dtype.compute is float32
    return a if wide and a is b and a in (float16, bfloat16) else None


def levels(region: Region) -> list[int]:
    """Return for every node how many reductions, one depending on the other, come before its value is known."""
    found: list[int] = []
    for node in region.nodes:
        level = max((found[arg] for arg in node.args), default=0)
        found.append(level + 1 if isinstance(node, Reduce) else level)
    return found


def is_row_level(region: Region, at: int, row_rank: int) -> bool:
    """Say whether the node is computed once a row (rather than once an element of a row)."""
    return len(region.nodes[at].space) == row_rank

