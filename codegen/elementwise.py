"""The elementwise schedule: one thread computes one vector of neighbouring elements of one space."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.region import Load, Region
from ..plan.dims import Dim, Ranges, bounds, ceil_div, divides, product
from .accesses import Accesses
from .dim_writer import DimWriter, counts_of, needs_wide_index
from .kernel_text import KernelText, Lines
from .points import PointWriter, Vector
from .positions import exact_chunks, write_vector_position

BLOCK = 256
SMALL_BLOCK = 128
VECTOR_BYTES = 16
# Below this many threads, vectors would leave most of a large GPU idle.
FEW_THREADS = 2 * 132 * 256


def elementwise_text(region: Region, ranges: Ranges | None) -> KernelText:
    """Return the kernel of a region without reductions, all of whose nodes share one space."""
    space = region.nodes[region.stores[0]].space
    accesses = Accesses(region, [range(len(space))], ranges)
    (group,) = accesses.coalesced.groups
    dims = DimWriter(
        needs_wide_index(counts_of(region), ranges), ranges, accesses.extents, [*accesses.dims(), *gathered(region)]
    )
    points = PointWriter(region, accesses, dims)
    total = product(space)
    width = _width(region, points, group, total, ranges)
    exact = width == 1 or divides(width, group[-1][1], ranges)
    chunks = exact_chunks(total, width) if exact else ceil_div(total, width)
    most = bounds(chunks, ranges)[1]
    block = SMALL_BLOCK if most is not None and most <= FEW_THREADS else BLOCK
    lines = Lines()
    lines.add(f"const UIndex chunk = UIndex(blockIdx.x) * {block}u + threadIdx.x;")
    with lines.block(f"if (chunk < UIndex({dims.c(chunks)}))"):
        if exact:
            write_vector_position(lines, dims, "chunk", group, width)
            _write_vector(lines, points, region, Vector(group[-1][0], width) if width > 1 else Vector())
        else:
            _write_vector_and_rest(lines, points, region, group[0], width)
    return KernelText(region, "elementwise", dims, ("memory",), ceil_div(chunks, block), block, lines.text())


def gathered(region: Region) -> list[Dim]:
    """Return the dims that gathers clamp by."""
    return [dim for operand in region.operands for dim in operand.shape]


def _write_vector(lines: Lines, points: PointWriter, region: Region, vector: Vector) -> None:
    points.vector(lines, vector, region.stores, {}, lambda names: (), dict(enumerate(region.stores)))


def _write_vector_and_rest(
    lines: Lines, points: PointWriter, region: Region, axis: tuple[int, Dim], width: int
) -> None:
    """Write a kernel over one axis whose extent is no multiple of the width: the last thread goes element by element."""
    number, extent = axis
    size = points.dims.c(extent)
    lines.add(f"const Index first{number} = chunk * {width};")
    with lines.block(f"if (first{number} + {width} <= {size})"):
        _write_vector(lines, points, region, Vector(number, width))
    with lines.block("else"), lines.block(f"for (Index i{number} = first{number}; i{number} < {size}; ++i{number})"):
        _write_vector(lines, points, region, Vector())


def _width(
    region: Region, points: PointWriter, group: Sequence[tuple[int, Dim]], total: Dim, ranges: Ranges | None
) -> int:
    """Return the widest vector that most accesses can use whole; 1 if there is none."""
    if not group:
        return 1
    loads = [at for at, node in enumerate(region.nodes) if isinstance(node, Load)]
    stores = range(len(region.stores))
    axis, extent = group[-1]
    largest = max([region.nodes[at].dtype.size for at in (*loads, *region.stores)])
    width = VECTOR_BYTES // largest
    least = bounds(total, ranges)[1]
    while width > 1:
        if len(group) == 1 or divides(width, extent, ranges):
            whole, split = points.width_of(axis, width, loads, stores)
            busy = least is None or least >= FEW_THREADS or width <= 2
            if whole > split and busy:
                return width
        width //= 2
    return 1
