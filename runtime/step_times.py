"""How long each step of a plan takes on the GPU, measured alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ..plan.dims import Dim, symbols
from .binding import BoundPlan
from .cuda_driver import destroy_quietly
from .launches import CopyLaunch, KernelLaunch, Launch
from .memory import padded

if TYPE_CHECKING:
    from .cuda_backend import CudaBackend
    from .cuda_context import Context
    from .cuda_program import Program

CHAINED = 20
ROTATED_BYTES = 256 << 20  # several times what the caches of any GPU hold
SAMPLES = 7
REPLAYS = 3


@dataclass(frozen=True)
class StepTime:
    """One launch and the seconds that it takes in a CUDA graph, its neighbours being copies of it."""

    launch: Launch
    seconds: float


def time_steps(
    backend: CudaBackend, context: Context, bound: BoundPlan, program: Program, workspace: int, cold: bool = False
) -> list[StepTime]:
    """Measure every launch of a program's last run, whose feeds lie on the device. Equal launches are measured once.

    Each is replayed as a chain of copies in a CUDA graph, on what its inputs hold in a real run. The copies take turns
    with weights and the model's inputs at several addresses, so that they come from memory, as in a real run; what the
    kernel before has just written stays where it is, also as in a real run. With `cold` that is rotated as well.
    """
    steps = _Steps(backend, context, bound, program, workspace, cold)
    with backend.driver.current():
        return steps.measure()


class _Steps:
    def __init__(self, backend, context, bound: BoundPlan, program, workspace: int, cold: bool) -> None:
        self.backend, self.driver = backend, backend.driver
        self.stream = context.stream
        self.bound, self.workspace = bound, workspace
        self.addresses: Mapping[int, int] = program.addresses
        kinds = {buffer.id: buffer.kind for buffer in bound.plan.buffers}
        self.rotated = {buffer for buffer, kind in kinds.items() if cold or kind != "temporary"}
        self.launches = program.launches

    def measure(self) -> list[StepTime]:
        known: dict[Any, float] = {}
        found = []
        for position, launch in enumerate(self.launches):
            key = signature(launch)
            if key not in known:
                # From the start, since the chain before may have run a step more often than once.
                self._enqueue(self.launches[:position], self.addresses)
                known[key] = self._measure(launch)
            found.append(StepTime(launch, known[key]))
        return found

    def _enqueue(self, launches: Sequence[Launch], addresses: Mapping[int, int]) -> None:
        self.backend.enqueue(launches, addresses, self.stream, self.workspace)

    def _measure(self, launch: Launch) -> float:
        slots = [slot for slot in dict.fromkeys((*launch.writes, *launch.reads)) if self._buffer(slot) in self.rotated]
        size = sum(padded(self.bound.room(slot)) for slot in slots)
        copies = min(CHAINED, -(-ROTATED_BYTES // size)) if size else 1
        memory = self.driver.allocate(copies * size, "copies of what a kernel reads")
        try:
            turns = [self._copied(slots, memory + number * size) for number in range(copies)]
            self._enqueue([launch], turns[0])  # what is loaded lazily is loaded outside of the capture
            self.driver.call("cuStreamSynchronize", self.stream)
            return self._time_chain(launch, turns)
        finally:
            destroy_quietly(lambda: self.driver.call("cuStreamSynchronize", self.stream))
            self.driver.free(memory)

    def _buffer(self, slot: int) -> int:
        return self.bound.slots.buffer(slot)

    def _copied(self, slots: Sequence[int], address: int) -> dict[int, int]:
        """Copy what is in the slots to `address` and on, and return all addresses with theirs replaced."""
        turn = dict(self.addresses)
        for slot in slots:
            size = self.bound.room(slot)
            if size:
                self.driver.call("cuMemcpyDtoDAsync", address, turn[slot], size, self.stream)
            turn[slot] = address
            address += padded(size)
        return turn

    def _time_chain(self, launch: Launch, turns: Sequence[Mapping[int, int]]) -> float:
        mode = self.driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with self.backend.build_lock():
            self.driver.call("cuStreamBeginCapture", self.stream, mode)
            try:
                for number in range(CHAINED):
                    self._enqueue([launch], turns[number % len(turns)])
            except BaseException:
                destroy_quietly(lambda: self.driver.call("cuStreamEndCapture", self.stream))
                raise
            graph = self.driver.call("cuStreamEndCapture", self.stream)
        executable = None
        events: list[Any] = []
        try:
            executable = self.driver.call("cuGraphInstantiate", graph, 0)
            events.extend(self.driver.call("cuEventCreate", 0) for _ in range(2))
            samples = [self._sample(executable, events) for _ in range(SAMPLES + 1)][1:]
            return median(samples) / CHAINED
        finally:
            for event in events:
                self.driver.call("cuEventDestroy", event)
            if executable is not None:
                self.driver.call("cuGraphExecDestroy", executable)
            self.driver.call("cuGraphDestroy", graph)

    def _sample(self, executable: Any, events: Sequence[Any]) -> float:
        self.driver.call("cuGraphLaunch", executable, self.stream)  # keeps the GPU busy while the rest is enqueued
        self.driver.call("cuEventRecord", events[0], self.stream)
        for _ in range(REPLAYS):
            self.driver.call("cuGraphLaunch", executable, self.stream)
        self.driver.call("cuEventRecord", events[1], self.stream)
        self.driver.call("cuEventSynchronize", events[1])
        return self.driver.call("cuEventElapsedTime", *events) / 1e3 / REPLAYS


def signature(launch: Launch) -> Any:
    """Return what two launches must share to take equally long, or nearly so.

    What only says which trip of a loop it is does not count; sizes that change from trip to trip do by their power of two.
    """
    if isinstance(launch, CopyLaunch):
        return launch.bytes
    if isinstance(launch, KernelLaunch):
        late = launch.late.keys()
        grid = [_rough(size, dim, late) for size, dim in zip(launch.grid, launch.kernel.grid)]
        fixed = [size for size, dim in zip(launch.scalars, launch.kernel.scalars) if _is_fixed(dim, late)]
        return launch.kernel, tuple(grid), tuple(fixed)
    if launch.varies:
        record = launch.matmul
        same = [value for value in vars(record).values() if not isinstance(value, int) or isinstance(value, bool)]
        return (*same, *(size.bit_length() for size in (record.m, record.n, record.k, record.batch)))
    return launch.matmul


def _is_fixed(dim: Dim, late: AbstractSet[str]) -> bool:
    return not late or isinstance(dim, int) or late.isdisjoint(symbols(dim))


def _rough(size: int, dim: Dim, late: AbstractSet[str]) -> int:
    return size if _is_fixed(dim, late) else -size.bit_length()
