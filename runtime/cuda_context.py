"""What one run at a time uses on a GPU: a stream, an arena, staging memory, and a graph for each set of shapes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plan.dtypes import DType, int64
from ..plan.errors import InvalidInput
from .binding import BoundPlan
from .cublaslt import WORKSPACE_BYTES
from .cuda_driver import destroy_quietly
from .cuda_program import Addresses, DecidedRun, Program, Replay
from .memory import padded
from .pool import BoundedCache
from .walk import Passage

if TYPE_CHECKING:
    from .cuda_backend import CudaBackend

GRAPHS_KEPT = 32  # graph executables in each context
STAGED_AT_MOST = 64 << 20  # larger tensors are copied from and to ordinary memory, by the driver's own staging


@dataclass(frozen=True)
class Layout:
    """Where in the arena, and in the pinned staging memory, the inputs and outputs of one set of shapes lie."""

    offsets: Mapping[int, int]
    arena_bytes: int
    staged: Mapping[tuple[str, int], int]
    staging_bytes: int


class Context:
    """A stream with an arena, staging memory and graphs. One thread uses it at a time, with the GPU current."""

    def __init__(self, backend: CudaBackend) -> None:
        self._backend = backend
        self._driver = backend.driver
        self._programs: BoundedCache[tuple[Any, ...], Program] = BoundedCache(GRAPHS_KEPT, Program.close)
        self._layouts: BoundedCache[tuple[Any, ...], Layout] = BoundedCache(GRAPHS_KEPT)
        self._arena = 0
        self.arena_bytes = 0
        self._staging = 0
        self._staging_bytes = 0
        self._scalar = 0  # pinned memory for one scalar that is read back
        self._workspace = 0
        self.workspace_bytes = WORKSPACE_BYTES if backend.uses_library else 0
        with self._driver.current():
            self.stream = self._driver.call("cuStreamCreate", 1)  # does not wait for the legacy stream
            try:
                if self.workspace_bytes:
                    self._workspace = self._driver.allocate(self.workspace_bytes, "cuBLASLt's workspace")
            except BaseException:
                self._driver.call("cuStreamDestroy", self.stream)
                raise

    @property
    def workspace(self) -> int:
        """The address of the library's workspace; 0 without one."""
        return self._workspace

    def prepare(self, bound: BoundPlan, feeds: Sequence[np.ndarray]) -> Program:
        """Copy the feeds to the device, and return the program of these shapes, built if it is their first time."""
        shapes = tuple(bound.dims.items())
        layout = self._layouts.get(shapes, lambda: _layout(bound))
        self._reserve(layout)
        for number, (port, feed) in enumerate(zip(bound.plan.inputs, feeds)):
            self._copy_in(self._arena + layout.offsets[port.buffer], feed, layout.staged.get(("in", number)))
        # Slots of parts of a plan that decides are numbered as they are met, so they are this very bound plan's own.
        return self._programs.get((bound,) if bound.in_parts else shapes, lambda: self._build(bound, layout))

    def launch(self, bound: BoundPlan, program: Program) -> None:
        """Enqueue the work once."""
        if bound.passage is None:
            program.begin()
            program.outcome = bound.run(DecidedRun(self, program))
        elif program.replay.graph is not None:
            self.replay(program.replay)
        else:
            self.enqueue(bound.passage, program.addresses)

    @property
    def captures(self) -> bool:
        """Whether launches are captured in graphs."""
        return self._backend.cuda_graph

    def replay(self, replay: Replay) -> None:
        """Launch a graph."""
        self._driver.call("cuGraphLaunch", replay.graph, self.stream)
        self._backend.count(replays=1)

    def enqueue(self, passage: Passage, addresses: Mapping[int, int]) -> None:
        """Launch what is in a passage one by one."""
        self._backend.enqueue(passage.launches, addresses, self.stream, self._workspace)
        self._backend.count(launches=len(passage.launches))

    def read_back(self, address: int, dtype: DType) -> int:
        """Wait for the work so far, and return a bool or integer that lies on the device."""
        if not self._scalar:
            self._scalar = int(self._driver.call("cuMemHostAlloc", 8, 0))
        self._driver.call("cuMemcpyDtoHAsync", self._scalar, address, dtype.size, self.stream)
        self.synchronize()
        self._backend.count(read_backs=1)
        held = (ctypes.c_uint8 * dtype.size).from_address(self._scalar)
        return int.from_bytes(bytes(held), "little", signed=dtype == int64)

    def fetch(self, bound: BoundPlan, program: Program, wanted: Sequence[int]) -> list[np.ndarray]:
        """Wait for the work, and return the wanted outputs as new arrays."""
        layout = self._layouts.get(tuple(bound.dims.items()), lambda: _layout(bound))
        outcome = bound.outcome or program.outcome
        if outcome is None:
            raise InvalidInput("nothing was launched yet, so there are no outputs: launch first")
        outputs = []
        staged = []
        for position in wanted:
            port = bound.plan.outputs[position]
            array = np.empty(outcome.shapes[position], port.dtype.numpy)
            outputs.append(array)
            if array.nbytes == 0:
                continue
            place = layout.staged.get(("out", position))
            address = program.addresses[outcome.slots[position]]
            if place is None:
                self._driver.call("cuMemcpyDtoHAsync", array.ctypes.data, address, array.nbytes, self.stream)
            else:
                self._driver.call("cuMemcpyDtoHAsync", self._staging + place, address, array.nbytes, self.stream)
                staged.append((array, place))
        self.synchronize()
        for array, place in staged:
            array.reshape(-1).view(np.uint8)[...] = self._staging_view(place, array.nbytes)
        return outputs

    def synchronize(self) -> None:
        """Wait until the stream is empty."""
        self._driver.call("cuStreamSynchronize", self.stream)

    def _copy_in(self, address: int, feed: np.ndarray, place: int | None) -> None:
        if feed.nbytes == 0:
            return
        source = feed.ctypes.data
        if place is not None:
            self._staging_view(place, feed.nbytes)[...] = feed.reshape(-1).view(np.uint8)
            source = self._staging + place
        self._driver.call("cuMemcpyHtoDAsync", address, source, feed.nbytes, self.stream)
        if place is None:
            self.synchronize()  # the caller may change or free the feed as soon as run returns

    def _staging_view(self, place: int, size: int) -> np.ndarray:
        return np.frombuffer((ctypes.c_uint8 * size).from_address(self._staging + place), np.uint8)

    def _reserve(self, layout: Layout) -> None:
        """Grow the arena and the staging memory to what these shapes need. Graphs hold addresses, so they go."""
        if layout.arena_bytes > self.arena_bytes:
            self.synchronize()
            self._programs.clear()
            if self._arena:
                self._driver.free(self._arena)
                self._arena = self.arena_bytes = 0
            self._arena = self._driver.allocate(layout.arena_bytes, "the activations")
            self.arena_bytes = layout.arena_bytes
        if layout.staging_bytes > self._staging_bytes:
            self.synchronize()
            if self._staging:
                self._driver.call("cuMemFreeHost", self._staging)
                self._staging = self._staging_bytes = 0
            self._staging = int(self._driver.call("cuMemHostAlloc", layout.staging_bytes, 0))
            self._staging_bytes = layout.staging_bytes

    def _build(self, bound: BoundPlan, layout: Layout) -> Program:
        addresses = Addresses(bound)
        addresses.update(self._backend.weights(bound.plan))
        addresses.update({slot: self._arena + offset for slot, offset in layout.offsets.items()})
        program = Program(addresses, self._destroy)
        if bound.passage is None:
            return program
        program.trail.append(bound.passage)
        if not self._backend.cuda_graph:
            return program
        # Launched once outside of the capture, kernels and library load what they load lazily, and faults show here.
        self._backend.enqueue(bound.passage.launches, addresses, self.stream, self._workspace)
        self.synchronize()
        self.capture(bound.passage, addresses, program.replay)
        return program

    def capture(self, passage: Passage, addresses: Mapping[int, int], replay: Replay) -> None:
        """Make a graph of the launches of a passage, which have run once already."""
        with self._backend.build_lock():
            graph = self._captured(passage, addresses)
        try:
            _, replay.nodes = self._driver.call("cuGraphGetNodes", graph, 0)
            replay.graph = self._driver.call("cuGraphInstantiate", graph, 0)
        finally:
            self._driver.call("cuGraphDestroy", graph)
        self._backend.count(graphs=1)

    def _captured(self, passage: Passage, addresses: Mapping[int, int]) -> Any:
        mode = self._driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._driver.call("cuStreamBeginCapture", self.stream, mode)
        try:
            self._backend.enqueue(passage.launches, addresses, self.stream, self._workspace)
        except BaseException:
            destroy_quietly(lambda: self._driver.call("cuStreamEndCapture", self.stream))
            raise
        return self._driver.call("cuStreamEndCapture", self.stream)

    def _destroy(self, replay: Replay) -> None:
        graph, replay.graph = replay.graph, None
        if graph is not None:
            self.synchronize()
            self._driver.call("cuGraphExecDestroy", graph)

    def close(self) -> None:
        """Free everything that the context holds."""
        destroy_quietly(self._programs.clear)
        if self._arena:
            destroy_quietly(lambda: self._driver.free(self._arena))
        if self._workspace:
            destroy_quietly(lambda: self._driver.free(self._workspace))
        for pinned in (self._staging, self._scalar):
            if pinned:
                destroy_quietly(lambda pinned=pinned: self._driver.call("cuMemFreeHost", pinned))
        destroy_quietly(lambda: self._driver.call("cuStreamDestroy", self.stream))
        self._arena = self._workspace = self._staging = self._scalar = 0
        self.arena_bytes = self.workspace_bytes = 0


def _layout(bound: BoundPlan) -> Layout:
    """Place inputs and written outputs behind the temporaries, and those small enough in staging memory too."""
    offsets = dict(bound.memory.offsets)
    top = padded(bound.memory.peak_bytes)
    for buffer in dict.fromkeys([*(port.buffer for port in bound.plan.inputs), *bound.owned]):
        offsets[buffer] = top
        top += padded(bound.sizes[buffer])
    staged: dict[tuple[str, int], int] = {}
    staging = 0
    sides = [("in", port) for port in bound.plan.inputs], [("out", port) for port in bound.plan.outputs]
    for side in sides:
        for number, (label, port) in enumerate(side):
            size = bound.sizes[port.buffer]
            if 0 < size <= STAGED_AT_MOST:
                staged[label, number] = staging
                staging += padded(size)
    return Layout(offsets, top, staged, staging)
