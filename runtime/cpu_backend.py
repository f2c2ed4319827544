"""The CPU road: the emitted kernels run on the host, library calls by NumPy from the same records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..plan.dtypes import DType
from ..plan.errors import InvalidArtifact, InvalidInput
from ..plan.records import KernelStep, LtStep, Plan, Step
from .artifact import Artifact
from .binding import BoundPlan, KernelLaunch
from .lt_reference import run_matmul
from .memory import ALIGNMENT
from .pool import Pool

_LEAST_ALIGNMENT = 16  # of what kernels read, since they load up to 16 bytes at once


class _Arena:
    """The temporaries of one run at a time; it grows to the largest shapes seen and stays there."""

    def __init__(self) -> None:
        self.bytes = aligned_empty(0)

    def reserve(self, size: int) -> np.ndarray:
        if self.bytes.size < size:
            self.bytes = aligned_empty(size)
        return self.bytes


class _Buffers:
    """What is known of a plan's buffers before running, by their ids; `weights` are those of all plans, by name."""

    def __init__(self, plan: Plan, weights: Mapping[str, np.ndarray]) -> None:
        self.dtypes: dict[int, DType] = {buffer.id: buffer.dtype for buffer in plan.buffers}
        self.names = {buffer.id: buffer.name for buffer in plan.buffers}
        self.weights = {buffer.id: weights[buffer.name] for buffer in plan.buffers if buffer.kind == "weight"}


class CpuBackend:
    """Runs an artifact's kernels on the host; it must hold their sources, and a C++ compiler must be there."""

    device = "cpu"

    def __init__(self, artifact: Artifact, arch: str | None = None, check_kernels: bool = False) -> None:
        self.plans = artifact.plans(arch or default_arch(artifact.arches))
        self._check = check_kernels
        self._kernels = _compile_kernels(artifact, self._steps(), check_kernels)
        names = {buffer.name for plan in self.plans for buffer in plan.buffers if buffer.kind == "weight"}
        self._weights = {name: _aligned(artifact.weights[name]).reshape(-1) for name in sorted(names)}
        self._known = {id(plan): _Buffers(plan, self._weights) for plan in self.plans}
        self._arenas: Pool[_Arena] = Pool(_Arena)

    def run(self, bound: BoundPlan, feeds: Sequence[np.ndarray], wanted: Sequence[int]) -> list[np.ndarray]:
        """Run every launch in order; the outputs are new arrays."""
        with self._arenas.lease() as arena:
            buffers = self._buffers(bound, feeds, arena.reserve(bound.memory.peak_bytes))
            written: set[int] = set()
            for launch in bound.launches:
                writes = [buffers[buffer] for buffer in launch.writes]
                reads = [buffers[buffer] for buffer in launch.reads]
                if isinstance(launch, KernelLaunch):
                    kernel = self._kernels[launch.kernel.source, launch.kernel.entry]
                    scalar = np.int32 if launch.kernel.scalar_bits == 32 else np.int64
                    arguments = [*writes, *reads, *(scalar(value) for value in launch.scalars)]
                    names = self._known[id(bound.plan)].names
                    checked = _checked_buffers(launch, buffers, names, written) if self._check else None
                    kernel.launch(
                        launch.grid, launch.kernel.block, launch.kernel.shared_bytes, arguments, buffers=checked
                    )
                else:
                    run_matmul(launch.matmul, writes[0], reads)
                written.update(launch.writes)
            return _outputs(bound, buffers, wanted)

    def _steps(self) -> Iterator[Step]:
        return (step for plan in self.plans for step in plan.steps())

    def _buffers(self, bound: BoundPlan, feeds: Sequence[np.ndarray], arena: np.ndarray) -> dict[int, np.ndarray]:
        """Return every buffer as a flat array of its type."""
        known = self._known[id(bound.plan)]
        buffers = dict(known.weights)
        for port, array in zip(bound.plan.inputs, feeds):
            buffers[port.buffer] = _aligned(array).reshape(-1)
        for buffer in bound.owned:
            buffers[buffer] = aligned_empty(bound.sizes[buffer]).view(known.dtypes[buffer].numpy)
        for buffer, offset in bound.memory.offsets.items():
            piece = arena[offset : offset + bound.sizes[buffer]]
            buffers[buffer] = piece.view(known.dtypes[buffer].numpy)
        return buffers

    def bind(self, bound: BoundPlan, feeds: Sequence[np.ndarray]) -> Any:
        """Refuse: there is nothing to replay on the host."""
        raise InvalidInput('bind and time_replay need device="cuda"; on the CPU use run')

    def memory_bytes(self) -> dict[str, int]:
        return {
            "weights": sum(array.nbytes for array in self._weights.values()),
            "activations": sum(arena.bytes.nbytes for arena in self._arenas.everything()),
            "workspace": 0,
        }

    def report(self) -> dict[str, Any]:
        steps = list(self._steps())
        return {
            "steps": len(steps),
            "kernels": sum(isinstance(step, KernelStep) for step in steps),
            "library_calls": sum(isinstance(step, LtStep) for step in steps),
            "contexts": len(self._arenas.everything()),
        }

    def close(self) -> None:
        self._arenas.clear()
        self._kernels = {}
        self._weights = {}
        self._known = {}


def aligned_empty(size: int, alignment: int = ALIGNMENT) -> np.ndarray:
    """Return `size` uninitialised bytes whose address is a multiple of `alignment`."""
    raw = np.empty(size + alignment, np.uint8)
    begin = -raw.ctypes.data % alignment
    return raw[begin : begin + size]


def default_arch(arches: Sequence[str]) -> str:
    """Return the arch whose plan the CPU runs when none is named."""
    return "sm_90" if "sm_90" in arches else arches[0]


def _aligned(array: np.ndarray) -> np.ndarray:
    if array.ctypes.data % _LEAST_ALIGNMENT == 0:
        return array
    copy = aligned_empty(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _checked_buffers(
    launch: KernelLaunch, buffers: dict[int, np.ndarray], names: dict[int, str], written: set[int]
) -> list[Any]:
    """Tell the checker what the kernel may touch: what it reads, and what it writes.

    The first kernel that writes a buffer must write all of it; later ones, such as those of a scatter, change it.
    """
    from .cpu import CheckedBuffer

    changed = [
        CheckedBuffer(names[b], buffers[b], initialised=b in written, fully_written=b not in written)
        for b in launch.writes
    ]
    return changed + [CheckedBuffer(names[b], buffers[b], read_only=True) for b in launch.reads]


def _outputs(bound: BoundPlan, buffers: dict[int, np.ndarray], wanted: Sequence[int]) -> list[np.ndarray]:
    """Return the outputs; a buffer that is an input, a weight or given out already is copied."""
    outputs = []
    given = set()
    for position in wanted:
        buffer = bound.plan.outputs[position].buffer
        array = buffers[buffer].reshape(bound.output_shapes[position])
        own = buffer in bound.owned and buffer not in given
        given.add(buffer)
        outputs.append(array if own else array.copy())
    return outputs


def _compile_kernels(artifact: Artifact, steps: Iterator[Step], check: bool) -> dict[tuple[str, str], Any]:
    """Compile each distinct kernel of the steps for the host, many at a time."""
    wanted: dict[tuple[str, str], str] = {}
    for step in steps:
        if isinstance(step, KernelStep):
            text = artifact.source(step.kernel.source)
            if text is None:
                raise InvalidArtifact(
                    f"{artifact.where}: the source of kernel {step.kernel.name} is missing (compiled with "
                    '--strip-sources), and device="cpu" needs it; compile without --strip-sources or run on a GPU'
                )
            wanted[step.kernel.source, step.kernel.entry] = text
    if not wanted:
        return {}
    from .cpu import compile_many

    kernels = compile_many([(text, entry) for (_, entry), text in wanted.items()], check=check)
    return dict(zip(wanted, kernels))
