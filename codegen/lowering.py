"""From the chosen program to a plan, kernel texts and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..ir.graph import TensorType
from ..ir.program import BranchKernel, LoopKernel, LtKernel, Program, RegionKernel, ScatterKernel, SizeRead, Tensor
from ..ir.region import Region
from ..ir.schedule import MATMUL_MMA, MATMULS, ROW_THREAD, classify_matmul
from ..plan.control import Carried, If, Loop, Merged, Row, Segment, Sequence, Tree, bound_symbols, buffers_of
from ..plan.control import Size as SizeNode
from ..plan.dims import Range, Ranges, product, symbols
from ..plan.errors import LuminalError
from ..plan.records import Buffer, KernelRecord, KernelStep, LtStep, Plan, Port, Step
from . import matmul, matmul_mma
from .region_kernels import lower_region
from .scatter import SCRATCH, lower_scatter
from .split_terms import first_operands, second_operands, split_axis, split_terms
from .tile_choice import Size, choose_parts, typical


@dataclass
class Lowered:
    """A plan, the text of every kernel by its SHA-256, and the weights by the names that the plan's buffers have."""

    plan: Plan
    sources: dict[str, str] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)


def lower(program: Program, arch: str) -> Lowered:
    """Return the plan of a program for one architecture. Equal kernels share a text, tensors that nothing uses vanish."""
    return _Lowering(program, arch).run()


class _Lowering:
    def __init__(self, program: Program, arch: str) -> None:
        self.program, self.arch = program, arch
        self.tensors: dict[int, Tensor] = {}  # by the ids of buffers
        self.ranges = program.ranges  # of the program or body at hand
        self.next_id = max((tensor.id for tensor in program.tensors), default=-1) + 1
        self.sources: dict[str, str] = {}
        self.scratch: list[Buffer] = []
        self.regions: dict[tuple, tuple[KernelRecord, str]] = {}

    def run(self) -> Lowered:
        places = {tensor.id: tensor.id for tensor in self.program.tensors}
        self.tensors.update((tensor.id, tensor) for tensor in self.program.tensors)
        root = self._tree(self.program, places)
        weights: dict[str, np.ndarray] = {}
        used = buffers_of(root) | {at for _, _, at in (*self.program.inputs, *self.program.outputs)}
        buffers = [self._buffer(at, tensor, weights) for at, tensor in self.tensors.items() if at in used]
        plan = Plan(
            arch=self.arch,
            buffers=(*buffers, *self.scratch),
            inputs=tuple(Port(name, type.dtype, type.shape, at) for name, type, at in self.program.inputs),
            outputs=tuple(Port(name, type.dtype, type.shape, at) for name, type, at in self.program.outputs),
            root=root,
            ranges=self._ranges(root),
        )
        plan.validate()
        return Lowered(plan, self.sources, weights)

    def _ranges(self, root: Tree) -> dict[str, Range]:
        """Return the ranges of symbols that get a value: a size of the run that nothing needs is read no more."""
        shown = {dim for _, type, _ in self.program.inputs for dim in type.shape if not isinstance(dim, int)}
        known = {name for dim in shown for name in symbols(dim)} | bound_symbols(root)
        return {name: r for name, r in self.program.ranges.items() if name in known or r.min == r.max}

    def _tree(self, program: Program, places: Mapping[int, int]) -> Tree:
        """Return the steps in segments; between them loops, branches, and the points at which sizes are read.

        `places` has the buffer of each tensor of the program.
        """
        children: list[Tree] = []
        steps: list[Step] = []
        around, self.ranges = self.ranges, program.ranges
        for kernel in program.kernels:
            kernel = replace(
                kernel, reads=tuple(map(places.get, kernel.reads)), writes=tuple(map(places.get, kernel.writes))
            )
            if not isinstance(kernel, (SizeRead, LoopKernel, BranchKernel)):
                steps.extend(self._steps(kernel))
                continue
            if steps:
                children.append(Segment(tuple(steps)))
                steps = []
            if isinstance(kernel, SizeRead):
                children.append(SizeNode(kernel.symbol, kernel.reads[0], kernel.least, kernel.most))
            else:
                children.append(self._loop(kernel) if isinstance(kernel, LoopKernel) else self._branch(kernel))
        self.ranges = around
        if steps or not children:
            children.append(Segment(tuple(steps)))
        return children[0] if len(children) == 1 else Sequence(tuple(children))

    def _loop(self, kernel: LoopKernel) -> Loop:
        """Return the loop; what it captures is read where it is, each state is a buffer of its own."""
        first = int(kernel.conditional)
        initial, captured = kernel.reads[first : first + kernel.states], kernel.reads[first + kernel.states :]
        results, stacks = kernel.writes[: kernel.states], kernel.writes[kernel.states :]
        states = tuple(self._state(type) for _, type, _ in kernel.body.inputs[: kernel.states])
        body, outputs = self._body(kernel.body, (*states, *captured))
        after, following, rows = (
            outputs[:first],
            outputs[first : first + kernel.states],
            outputs[first + kernel.states :],
        )
        return Loop(
            trip=kernel.trip,
            trips=kernel.trips,
            body=body,
            carried=tuple(map(Carried, initial, states, following, results)),
            rows=tuple(map(Row, rows, stacks)),
            condition=(kernel.reads[0], after[0]) if kernel.conditional else None,
            count=kernel.count,
        )

    def _branch(self, kernel: BranchKernel) -> If:
        then, yes = self._body(kernel.then, kernel.reads[1:])
        otherwise, no = self._body(kernel.otherwise, kernel.reads[1:])
        return If(kernel.reads[0], then, otherwise, tuple(map(Merged, yes, no, kernel.writes)))

    def _body(self, body: Program, given: tuple[int, ...]) -> tuple[Tree, tuple[int, ...]]:
        """Return the steps of a body whose inputs are the buffers `given`, and the buffers of its outputs."""
        places = {at: buffer for (_, _, at), buffer in zip(body.inputs, given, strict=True)}
        for tensor in body.tensors:
            if tensor.id not in places:
                places[tensor.id] = self._place(tensor)
        tree = self._tree(body, places)
        return tree, tuple(places[at] for _, _, at in body.outputs)

    def _place(self, tensor: Tensor) -> int:
        """Return a buffer for a tensor of a body; an array that is a weight already is no second one."""
        if tensor.kind == "weight":
            for at, other in self.tensors.items():
                if other.data is tensor.data:
                    return at
        return self._new(tensor)

    def _state(self, type: TensorType) -> int:
        return self._new(Tensor(0, type, "computed", "state"))

    def _new(self, tensor: Tensor) -> int:
        at, self.next_id = self.next_id, self.next_id + 1
        self.tensors[at] = tensor if tensor.kind == "weight" else replace(tensor, name=f"{tensor.name}_{at}")
        return at

    def _buffer(self, at: int, tensor: Tensor, weights: dict[str, np.ndarray]) -> Buffer:
        kind = "temporary" if tensor.kind == "computed" else tensor.kind
        name = tensor.name
        if tensor.kind == "weight":
            if tensor.data is None:
                raise LuminalError(f"the weight {tensor.name!r} ({tensor.type}) has no data")
            name = f"w{len(weights)}"
            weights[name] = tensor.data
        return Buffer(at, name, kind, tensor.type.dtype, tensor.type.shape)

    def _steps(self, kernel: RegionKernel | ScatterKernel | LtKernel) -> list[Step]:
        if isinstance(kernel, LtKernel):
            return [LtStep(kernel.matmul, kernel.writes, kernel.reads, kernel.origin)]
        if isinstance(kernel, ScatterKernel):
            return self._scatter_steps(kernel)
        parts = parts_of_sum(kernel.region, kernel.schedule, self.ranges)
        if parts > 1:
            return self._split_steps(kernel, parts)
        return [self._region_step(kernel.region, kernel.schedule, kernel.reads, kernel.writes, kernel.origin)]

    def _region_step(
        self, region: Region, schedule: str, reads: tuple[int, ...], writes: tuple[int, ...], origin: tuple[str, ...]
    ) -> KernelStep:
        weights = tuple(slot for slot, at in enumerate(reads) if self._is_weight(at))
        key = (region, schedule, weights, tuple(sorted(self.ranges.items())))
        if key not in self.regions:
            self.regions[key] = lower_region(region, schedule, self.ranges, weights=weights)
        record, text = self.regions[key]
        self.sources[record.source] = text
        return KernelStep(record, writes, reads, origin)

    def _is_weight(self, at: int) -> bool:
        return at in self.tensors and self.tensors[at].kind == "weight"

    def _split_steps(self, kernel: RegionKernel, parts: int) -> list[Step]:
        """Compute a matrix product's sum in parts, with scratch memory between the two kernels."""
        region, ranges = kernel.region, self.ranges
        axes = classify_matmul(region)
        first, second = split_terms(region, axes, parts, ranges)
        sums = self._scratch("parts", second.operands[0])
        reads = tuple(kernel.reads[slot] for slot in first_operands(region, axes))
        after = tuple(kernel.reads[slot] for slot in second_operands(region, axes))
        return [
            self._region_step(first, kernel.schedule, reads, (sums,), kernel.origin),
            self._region_step(second, ROW_THREAD, (sums, *after), kernel.writes, kernel.origin),
        ]

    def _scratch(self, name: str, type: TensorType) -> int:
        """Return the id of a new temporary buffer."""
        at = self.next_id
        self.scratch.append(Buffer(at, f"{name}_{at}", "temporary", type.dtype, type.shape))
        self.next_id += 1
        return at

    def _scatter_steps(self, kernel: ScatterKernel) -> list[Step]:
        types = [self.tensors[at].type for at in kernel.reads]
        lowered = lower_scatter(kernel, types, self.ranges)
        dest, index, source = kernel.reads
        places = {"out": kernel.writes[0], "dest": dest, "index": index, "source": source}
        for name in SCRATCH:
            places[name] = self._scratch(f"scatter_{name}", TensorType(lowered.scratch, types[0].shape))
        steps: list[Step] = []
        for step in lowered.steps:
            self.sources[step.record.source] = step.text
            writes = tuple(places[name] for name in step.writes)
            reads = tuple(places[name] for name in step.reads)
            steps.append(KernelStep(step.record, writes, reads, kernel.origin))
        return steps


def parts_of_sum(region: Region, schedule: str, ranges: Ranges | None) -> int:
    """Return into how many parts `lower` splits the sum of a matrix product; 1 for other regions."""
    axes = classify_matmul(region) if schedule in MATMULS else None
    split = None if axes is None else split_axis(region)
    if split is None:
        return 1
    rows, columns = region.row_split()
    groups = (tuple(rows[axis] for axis in group) for group in (axes.batch, axes.m, axes.n))
    size = Size(*(typical(product(group), ranges) for group in (*groups, columns)))
    template = matmul_mma if schedule == MATMUL_MMA else matmul
    return choose_parts(template.TILES, size, template.ARITHMETIC, split[1])
