"""The CPU road: the emitted kernels run on the host, library calls by NumPy from the same records."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..plan.dtypes import DType
from ..plan.errors import InvalidArtifact, InvalidInput
from ..plan.records import KernelStep, LtStep, Plan, Step
from .artifact import Artifact
from .binding import BoundPlan, Outcome
from .launches import KernelLaunch, LtLaunch
from .lt_reference import run_matmul
from .memory import ALIGNMENT
from .pool import Pool
from .walk import Passage, Read

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
        self._count_lock = threading.Lock()
        self._read_backs = 0

    def run(self, bound: BoundPlan, feeds: Sequence[np.ndarray], wanted: Sequence[int]) -> list[np.ndarray]:
        """Run every launch in order; the outputs are new arrays."""
        with self._arenas.lease() as arena:
            values = self._values(bound, feeds, arena.reserve(bound.memory.peak_bytes))
            names = self._known[id(bound.plan)].names if self._check else None
            run = _Run(bound, values, self._kernels, names)
            outcome = bound.run(run)
            with self._count_lock:
                self._read_backs += run.reads
            return _outputs(bound, outcome, values, wanted)

    def _steps(self) -> Iterator[Step]:
        return (step for plan in self.plans for step in plan.steps())

    def _values(self, bound: BoundPlan, feeds: Sequence[np.ndarray], arena: np.ndarray) -> _Values:
        """Return every slot as a flat array of its type."""
        known = self._known[id(bound.plan)]
        values = _Values(bound, known.dtypes)
        values.update(known.weights)
        for port, array in zip(bound.plan.inputs, feeds):
            values[port.buffer] = _aligned(array).reshape(-1)
        for slot in bound.owned:
            values[slot] = aligned_empty(bound.sizes[slot]).view(known.dtypes[slot].numpy)
        for slot, offset in bound.memory.offsets.items():
            piece = arena[offset : offset + bound.sizes[slot]]
            values[slot] = piece.view(known.dtypes[bound.slots.buffer(slot)].numpy)
        return values

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
            "read_backs": self._read_backs,
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


class _Values(dict[int, np.ndarray]):
    """Flat arrays by slot; those of pieces are made when they are asked for."""

    def __init__(self, bound: BoundPlan, dtypes: Mapping[int, DType]) -> None:
        super().__init__()
        self._bound, self._dtypes = bound, dtypes

    def __missing__(self, slot: int) -> np.ndarray:
        piece = self._bound.slots.piece_at(slot)
        assert piece is not None, f"slot {slot} has no memory"
        whole = self[piece.base].view(np.uint8)
        part = whole[piece.offset : piece.offset + self._bound.sizes[piece.buffer]]
        self[slot] = part.view(self._dtypes[piece.buffer].numpy)
        return self[slot]


class _Run:
    """One run on the host. With `names` of buffers it is checked."""

    def __init__(
        self,
        bound: BoundPlan,
        values: _Values,
        kernels: Mapping[tuple[str, str], Any],
        names: Mapping[int, str] | None,
    ) -> None:
        self._bound, self._values, self._kernels, self._names = bound, values, kernels, names
        self.reads = 0

    def run(self, passage: Passage) -> None:
        """Run launches one after another."""
        values = self._values
        for launch in passage.launches:
            writes = [values[slot] for slot in launch.writes]
            reads = [values[slot] for slot in launch.reads]
            if isinstance(launch, KernelLaunch):
                kernel = self._kernels[launch.kernel.source, launch.kernel.entry]
                scalar = np.int32 if launch.kernel.scalar_bits == 32 else np.int64
                arguments = [*writes, *reads, *(scalar(value) for value in launch.scalars)]
                checked = self._checked(launch) if self._names is not None else None
                kernel.launch(launch.grid, launch.kernel.block, launch.kernel.shared_bytes, arguments, buffers=checked)
            elif isinstance(launch, LtLaunch):
                run_matmul(launch.matmul, writes[0], reads)
            else:
                writes[0].view(np.uint8)[: launch.bytes] = reads[0].view(np.uint8)[: launch.bytes]

    def read(self, scalar: Read) -> int:
        """Return the value of a scalar."""
        self.reads += 1
        return int(self._values[scalar.slot][0])

    def _checked(self, launch: KernelLaunch) -> list[Any]:
        """Tell the checker what the kernel may touch: what it reads, and what it writes.

        The first kernel that writes a buffer must write all of it; later ones, such as those of a scatter, change it.
        """
        from .cpu import CheckedBuffer

        def held(slot: int) -> tuple[str, np.ndarray, bool]:
            array, size = self._values[slot], self._bound.bytes_at(slot, launch.late)
            part = array if size is None else array[: size // array.itemsize]
            return self._names[self._bound.slots.buffer(slot)], part, size is not None

        changed = []
        for slot in launch.writes:
            name, array, exact = held(slot)  # where a size becomes known only later, there may be room for more
            begins = slot in launch.begins
            changed.append(CheckedBuffer(name, array, initialised=not begins, fully_written=begins and exact))
        return changed + [CheckedBuffer(*held(slot)[:2], read_only=True) for slot in launch.reads]


def _outputs(bound: BoundPlan, outcome: Outcome, values: _Values, wanted: Sequence[int]) -> list[np.ndarray]:
    """Return the outputs; one that is an input or a weight, lies in the arena, or is given out already is copied."""
    outputs = []
    given = set()
    for position in wanted:
        slot, shape = outcome.slots[position], outcome.shapes[position]
        array = values[slot][: math.prod(shape)].reshape(shape)
        roomy = values[slot].size > 2 * array.size  # much more than the value needs, which the caller would hold on to
        own = slot in bound.owned and slot not in given and not roomy
        given.add(slot)
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
