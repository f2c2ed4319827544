"""Writes the index variables of a point from its number along a group of axes."""

from __future__ import annotations

from collections.abc import Sequence

from ..plan.dims import Dim, exact_div
from .dim_writer import DimWriter
from .kernel_text import Lines

Axes = Sequence[tuple[int, Dim]]


def exact_chunks(total: Dim, width: int) -> Dim:
    """Return `total / width`, as a polynomial where it is one."""
    exact = exact_div(total, width)
    return total // width if exact is None else exact


def write_position(lines: Lines, dims: DimWriter, number: str, axes: Axes, vector: bool = False) -> None:
    """Write `i<axis>` for every axis from the row-major number of a point, a `UIndex`.

    With `vector` the point is lane 0 of a vector along the last axis, whose variable is then called `first<axis>`.
    """
    _write(lines, dims, number, axes, [extent for _, extent in axes], 1 if vector else 0)


def write_vector_position(lines: Lines, dims: DimWriter, number: str, axes: Axes, width: int) -> None:
    """Write the index variables from the number of a vector of `width` lanes along the last axis."""
    if not axes or width == 1:
        write_position(lines, dims, number, axes)
        return
    sizes = [extent for _, extent in axes]
    sizes[-1] = exact_chunks(sizes[-1], width)
    _write(lines, dims, number, axes, sizes, width)


def _write(lines: Lines, dims: DimWriter, number: str, axes: Axes, sizes: Sequence[Dim], scale: int) -> None:
    """`scale` is 0 where the last variable is an `i`, else what its digit is multiplied by to give a `first`."""
    rest = number
    for place in range(len(axes) - 1, -1, -1):
        axis = axes[place][0]
        last = place == len(axes) - 1
        name = f"first{axis}" if last and scale else f"i{axis}"
        factor = f" * {scale}" if last and scale > 1 else ""
        if place == 0:
            lines.add(f"const Index {name} = {rest}{factor};")
            return
        size = f"UIndex({dims.c(sizes[place])})"
        lines.add(f"const Index {name} = {rest} % {size}{factor};")
        lines.add(f"const UIndex above{axis} = {rest} / {size};")
        rest = f"above{axis}"
