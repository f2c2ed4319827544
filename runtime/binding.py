"""A plan bound to concrete shapes: every size is a number, every temporary has its place, every launch its grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..plan.dims import Dim, evaluate
from ..plan.errors import InvalidInput, LuminalError
from ..plan.lt import LtMatmul
from ..plan.records import KernelRecord, KernelStep, LtStep, Plan
from .input_dims import told
from .memory import MemoryPlan, plan_memory

_GRID_LIMITS = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel with its grid and scalars as numbers; `writes` and `reads` are buffer ids."""

    kernel: KernelRecord
    grid: tuple[int, int, int]
    scalars: tuple[int, ...]
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    origin: tuple[str, ...]


@dataclass(frozen=True)
class LtLaunch:
    """A library call whose record holds numbers only."""

    matmul: LtMatmul
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    origin: tuple[str, ...]


Launch = KernelLaunch | LtLaunch


@dataclass(frozen=True)
class BoundPlan:
    """What a backend needs for one set of dims.

    `sizes` are bytes by buffer. `owned` are the buffers of outputs that some step writes: they have storage of their
    own; `memory` places the other temporaries. `launches` leaves out those that would do nothing.
    """

    plan: Plan
    dims: Mapping[str, int]
    shapes: Mapping[int, tuple[int, ...]]
    sizes: Mapping[int, int]
    output_shapes: tuple[tuple[int, ...], ...]
    owned: tuple[int, ...]
    memory: MemoryPlan
    launches: tuple[Launch, ...]


def bind(plan: Plan, dims: Mapping[str, int]) -> BoundPlan:
    """Evaluate everything symbolic in `plan` for `dims`, which must name every symbol that it uses."""
    shapes = {buffer.id: _shape(buffer.shape, dims) for buffer in plan.buffers}
    sizes = _sizes(plan, shapes)
    output_shapes = tuple(_shape(port.shape, dims) for port in plan.outputs)
    for port, shape in zip(plan.outputs, output_shapes):
        if math.prod(shape) * port.dtype.size != sizes[port.buffer]:
            raise LuminalError(
                f"output {port.name!r} is {port.dtype}{list(shape)}, its buffer holds {sizes[port.buffer]} bytes"
            )
    launches = []
    for step in plan.steps():
        launch = _kernel(step, dims) if isinstance(step, KernelStep) else _library_call(step, dims)
        if launch is not None:
            launches.append(launch)
    written_outputs = {port.buffer for port in plan.outputs} & _temporaries(plan)
    return BoundPlan(
        plan=plan,
        dims=dict(dims),
        shapes=shapes,
        sizes=sizes,
        output_shapes=output_shapes,
        owned=tuple(sorted(written_outputs)),
        memory=_memory(plan, sizes),
        launches=tuple(launches),
    )


def plan_memory_for(plan: Plan, dims: Mapping[str, int]) -> MemoryPlan:
    """Return where the temporaries of `plan` lie for `dims`, though a run of these shapes may not be possible."""
    return _memory(plan, _sizes(plan, {buffer.id: _shape(buffer.shape, dims) for buffer in plan.buffers}))


def _memory(plan: Plan, sizes: Mapping[int, int]) -> MemoryPlan:
    """Place the temporaries that no output needs, each from the first to the last step that names it."""
    lifetimes: dict[int, tuple[int, int]] = {}
    for position, step in enumerate(plan.steps()):
        for buffer in (*step.writes, *step.reads):
            first, _ = lifetimes.get(buffer, (position, position))
            lifetimes[buffer] = (first, position)
    inner = _temporaries(plan) - {port.buffer for port in plan.outputs}
    return plan_memory({buffer: sizes[buffer] for buffer in lifetimes if buffer in inner}, lifetimes)


def _temporaries(plan: Plan) -> set[int]:
    return {buffer.id for buffer in plan.buffers if buffer.kind == "temporary"}


def _sizes(plan: Plan, shapes: Mapping[int, tuple[int, ...]]) -> dict[int, int]:
    return {buffer.id: math.prod(shapes[buffer.id]) * buffer.dtype.size for buffer in plan.buffers}


def _shape(shape: Sequence[Dim], dims: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else int(evaluate(dim, dims)) for dim in shape)


def _kernel(step: KernelStep, dims: Mapping[str, int]) -> KernelLaunch | None:
    record = step.kernel
    grid = _shape(record.grid, dims)
    if 0 in grid:
        return None
    for axis, (size, limit) in enumerate(zip(grid, _GRID_LIMITS)):
        if not 0 < size <= limit:
            raise InvalidInput(
                f"kernel {record.name} would need a grid of {size} on axis {axis} for {told(dims)}, "
                f"at most {limit} can be launched; run smaller shapes"
            )
    scalars = _shape(record.scalars, dims)
    low, high = -(1 << (record.scalar_bits - 1)), (1 << (record.scalar_bits - 1)) - 1
    for dim, value in zip(record.scalars, scalars):
        if not low <= value <= high:
            raise InvalidInput(
                f"kernel {record.name} counts in {record.scalar_bits} bits, but {dim} is {value} for {told(dims)}; "
                "compile with a range that includes these shapes"
            )
    return KernelLaunch(record, grid, scalars, step.writes, step.reads, step.origin)


def _library_call(step: LtStep, dims: Mapping[str, int]) -> LtLaunch | None:
    matmul = step.matmul.resolve(dims)
    if 0 in (matmul.m, matmul.n, matmul.batch):
        return None
    if matmul.k != 0:
        matmul.validate()
    return LtLaunch(matmul, step.writes, step.reads, step.origin)
