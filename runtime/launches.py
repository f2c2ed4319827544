"""Launches: the steps of a plan with every size a number, and the slots that they work on.

A slot is a place in memory that holds a value: see `storage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..plan.dims import Dim, evaluate
from ..plan.errors import InvalidInput
from ..plan.lt import LtMatmul
from ..plan.steps import KernelRecord
from .input_dims import told

_GRID_LIMITS = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A kernel with its grid and scalars as numbers.

    `begins` are those of `writes` that hold nothing before; the others are changed. `late` are the values that dims had
    which the plan sets itself.
    """

    kernel: KernelRecord
    grid: tuple[int, int, int]
    scalars: tuple[int, ...]
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    origin: tuple[str, ...]
    begins: tuple[int, ...] = ()
    late: Mapping[str, int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class LtLaunch:
    """A library call whose record holds numbers only. `varies` says that some depend on what the plan sets itself."""

    matmul: LtMatmul
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    origin: tuple[str, ...]
    varies: bool = False


@dataclass(frozen=True, slots=True)
class CopyLaunch:
    """A copy of `bytes` from the slot that it reads to the slot that it writes, on the device."""

    bytes: int
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    origin: tuple[str, ...] = ()


Launch = KernelLaunch | LtLaunch | CopyLaunch


def numbers(sizes: Sequence[Dim], dims: Mapping[str, int]) -> tuple[int, ...]:
    """Return sizes as numbers; `dims` must name every symbol that they use."""
    return tuple([size if isinstance(size, int) else int(evaluate(size, dims)) for size in sizes])


def kernel_sizes(record: KernelRecord, dims: Mapping[str, int]) -> tuple[tuple[int, int, int], tuple[int, ...]] | None:
    """Return the grid and the scalars of a kernel, or None if it would do nothing.

    Raises InvalidInput for what cannot be launched.
    """
    grid = numbers(record.grid, dims)
    if 0 in grid:
        return None
    for axis, (size, limit) in enumerate(zip(grid, _GRID_LIMITS)):
        if not 0 < size <= limit:
            raise InvalidInput(
                f"kernel {record.name} would need a grid of {size} on axis {axis} for {told(dims)}, "
                f"at most {limit} can be launched; run smaller shapes"
            )
    scalars = numbers(record.scalars, dims)
    low, high = -(1 << (record.scalar_bits - 1)), (1 << (record.scalar_bits - 1)) - 1
    for dim, value in zip(record.scalars, scalars):
        if not low <= value <= high:
            raise InvalidInput(
                f"kernel {record.name} counts in {record.scalar_bits} bits, but {dim} is {value} for {told(dims)}; "
                "compile with a range that includes these shapes"
            )
    return (grid[0], grid[1], grid[2]), scalars


def library_sizes(matmul: LtMatmul, dims: Mapping[str, int]) -> LtMatmul | None:
    """Return the record of a library call with numbers only, or None if it would do nothing."""
    resolved = matmul.resolve(dims)
    if 0 in (resolved.m, resolved.n, resolved.batch):
        return None
    if resolved.k != 0:
        resolved.validate()
    return resolved
