"""The GPU road: kernels and cuBLASLt calls captured in CUDA graphs, one for each set of shapes, and replayed."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..plan.errors import InvalidArtifact, InvalidInput, LuminalError
from ..plan.records import KernelStep, LtStep, Plan
from .arch import choose_arch, runs_machine_code
from .artifact import Artifact
from .binding import BoundPlan, KernelLaunch, LtLaunch
from .cublaslt import WORKSPACE_BYTES, LtLibrary
from .cuda_driver import Driver, destroy_quietly
from .memory import ALIGNMENT
from .pool import BoundedCache, Pool

GRAPHS_KEPT = 32  # graph executables in each context
_STAGED_AT_MOST = 64 << 20  # larger tensors are copied from and to ordinary memory, by the driver's own staging
_UPLOAD_CHUNK = 16 << 20
_PLAIN_SHARED_BYTES = 48 << 10  # what a kernel may have without asking


@dataclass(frozen=True)
class _Layout:
    """Where in the arena, and in the pinned staging memory, the inputs and outputs of one set of shapes lie."""

    offsets: Mapping[int, int]
    arena_bytes: int
    staged: Mapping[tuple[str, int], int]
    staging_bytes: int


@dataclass
class _Program:
    """What a context runs for one set of shapes; `graph` is None while kernels are launched one by one."""

    addresses: dict[int, int]
    graph: Any = None
    nodes: int = 0


class CudaBackend:
    """Runs an artifact on one GPU. Weights, modules and library plans are shared; each run has a context of its own."""

    def __init__(
        self, artifact: Artifact, arch: str | None = None, device_id: int = 0, cuda_graph: bool = True
    ) -> None:
        self._driver: Driver | None = None
        self._lt: LtLibrary | None = None
        self._modules: list[Any] = []
        self._functions: dict[tuple[str, str], Any] = {}
        self._weights: dict[int, int] = {}
        self._weights_base = 0
        self._weights_bytes = 0
        self._build_lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._replays = 0
        self._launched_singly = 0
        self._graphs_built = 0
        self.cuda_graph = cuda_graph
        self.driver = driver = self._driver = Driver(device_id, _minimum_cuda(artifact))
        self._contexts: Pool[_Context] = Pool(lambda: _Context(self))
        try:
            has_ptx = any(name.startswith("ptx/") for name in artifact.sections)
            self.plan: Plan = artifact.plan(arch or choose_arch(artifact.arches, driver.capability, has_ptx))
            self.device = f"cuda:{device_id}"
            self.uses_library = any(isinstance(step, LtStep) for step in self.plan.steps())
            with driver.current():
                self._load_kernels(artifact)
                self._upload_weights(artifact)
                if self.uses_library:
                    self._lt = LtLibrary()
        except BaseException:
            self.close()
            raise

    def run(self, bound: BoundPlan, feeds: Sequence[np.ndarray], wanted: Sequence[int]) -> list[np.ndarray]:
        """Copy the feeds in, replay the graph of these shapes, and copy the wanted outputs into new arrays."""
        with self.driver.current(), self._contexts.lease() as context:
            program = context.prepare(bound, feeds)
            context.launch(bound, program)
            return context.fetch(bound, program, wanted)

    def bind(self, bound: BoundPlan, feeds: Sequence[np.ndarray]) -> BoundRun:
        """Return a run whose feeds lie on the device; it keeps its context until it is closed."""
        context = self._contexts.take()
        try:
            with self.driver.current():
                program = context.prepare(bound, feeds)
                context.synchronize()
        except BaseException:
            self._contexts.give_back(context)
            raise
        return BoundRun(self, context, bound, program)

    def give_back(self, context: _Context) -> None:
        """Take back a context that `bind` lent."""
        self._contexts.give_back(context)

    def enqueue(self, bound: BoundPlan, addresses: Mapping[int, int], stream: Any, workspace: int) -> None:
        """Put every launch of a bound plan on a stream, in order."""
        for launch in bound.launches:
            if isinstance(launch, KernelLaunch):
                self._launch_kernel(launch, addresses, stream)
            else:
                self._launch_library(launch, addresses, stream, workspace)

    def _launch_kernel(self, launch: KernelLaunch, addresses: Mapping[int, int], stream: Any) -> None:
        record = launch.kernel
        values = [addresses[buffer] for buffer in (*launch.writes, *launch.reads)]
        values += [scalar & 0xFFFF_FFFF_FFFF_FFFF for scalar in launch.scalars]
        # Each argument has eight bytes; the kernel reads the low four of a 32-bit one, which come first.
        arguments = np.array(values, np.uint64)
        pointers = arguments.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)
        self.driver.call(
            "cuLaunchKernel",
            self._functions[record.source, record.entry],
            *launch.grid,
            *record.block,
            record.shared_bytes,
            stream,
            pointers.ctypes.data,
            0,
        )

    def _launch_library(self, launch: LtLaunch, addresses: Mapping[int, int], stream: Any, workspace: int) -> None:
        record = launch.matmul
        out = addresses[launch.writes[0]]
        if record.k == 0:
            self._clear_product(launch, out, stream)
            return
        operands = [addresses[buffer] for buffer in launch.reads]
        self._lt.run(record, out, operands, int(stream), workspace, WORKSPACE_BYTES)

    def _clear_product(self, launch: LtLaunch, out: int, stream: Any) -> None:
        """A product over no terms is 0, which the library does not do."""
        record = launch.matmul
        if record.beta != 0.0 or record.epilogue != "default":
            raise LuminalError(f"a matrix product with k = 0 and an epilogue or beta cannot run on the GPU: {record}")
        rows, columns, ld, order = record.matrices()["D"]
        inner, outer = (rows, columns) if order == "col" else (columns, rows)
        size = record.type_d.size
        for number in range(record.batch):
            begin = out + number * record.stride_d * size
            self.driver.call("cuMemsetD2D8Async", begin, ld * size, 0, inner * size, outer, stream)

    def _load_kernels(self, artifact: Artifact) -> None:
        """Load the code of every kernel: machine code where this GPU runs it, else PTX."""
        arch = self.plan.arch
        machine_code = runs_machine_code(arch, self.driver.capability)
        modules: dict[str, Any] = {}
        for step in self.plan.steps():
            if not isinstance(step, KernelStep):
                continue
            record = step.kernel
            if record.source not in modules:
                image = artifact.cubin(arch, record.source) if machine_code else None
                kind = "cubin" if image is not None else "PTX"
                image = image if image is not None else artifact.ptx(record.source)
                if image is None:
                    raise InvalidArtifact(
                        f"{artifact.where}: kernel {record.name} has no code for {self.driver.name} "
                        f"(sm_{self.driver.capability[0]}{self.driver.capability[1]}); compile for that arch"
                    )
                modules[record.source] = self._load_module(record.name, kind, image)
                self._modules.append(modules[record.source])
            if (record.source, record.entry) not in self._functions:
                function = self.driver.call("cuModuleGetFunction", modules[record.source], record.entry.encode())
                self._functions[record.source, record.entry] = function
            if record.shared_bytes > _PLAIN_SHARED_BYTES:
                self.driver.call(
                    "cuFuncSetAttribute",
                    self._functions[record.source, record.entry],
                    self.driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    record.shared_bytes,
                )

    def _load_module(self, name: str, kind: str, image: bytes) -> Any:
        held = np.frombuffer(image + b"\0", np.uint8)  # PTX must end in a zero byte
        try:
            return self.driver.call("cuModuleLoadData", held.ctypes.data)
        except InvalidArtifact as error:
            raise InvalidArtifact(
                f"the {kind} of kernel {name} cannot be loaded on {self.driver.name}: {error}"
            ) from error

    def _upload_weights(self, artifact: Artifact) -> None:
        """Copy the weights to the device, through two pinned buffers that take turns."""
        names = {buffer.id: buffer.name for buffer in self.plan.buffers if buffer.kind == "weight"}
        arrays = {buffer: artifact.weights[name].reshape(-1).view(np.uint8) for buffer, name in names.items()}
        places: dict[str, int] = {}
        total = 0
        for buffer, name in names.items():
            if name not in places:
                places[name] = total
                total += _padded(arrays[buffer].nbytes)
        if not names:
            return
        driver = self.driver
        self._weights_base = driver.allocate(total, "the weights")
        self._weights_bytes = total
        self._weights = {buffer: self._weights_base + places[name] for buffer, name in names.items()}
        uploader = _Uploader(driver)
        try:
            for name, place in places.items():
                buffer = next(b for b, n in names.items() if n == name)
                uploader.copy(self._weights_base + place, arrays[buffer])
            uploader.finish()
        finally:
            uploader.close()

    @property
    def weights(self) -> Mapping[int, int]:
        """Device addresses of the weights, by buffer."""
        return self._weights

    def build_lock(self) -> threading.Lock:
        """The lock under which graphs are captured, one at a time."""
        return self._build_lock

    def count(self, *, replays: int = 0, launches: int = 0, graphs: int = 0) -> None:
        """Add to the counters that `report` shows."""
        with self._count_lock:
            self._replays += replays
            self._launched_singly += launches
            self._graphs_built += graphs

    def memory_bytes(self) -> dict[str, int]:
        contexts = self._contexts.everything()
        return {
            "weights": self._weights_bytes,
            "activations": sum(context.arena_bytes for context in contexts),
            "workspace": sum(context.workspace_bytes for context in contexts),
        }

    def report(self) -> dict[str, Any]:
        steps = list(self.plan.steps())
        kernels = sum(isinstance(step, KernelStep) for step in steps)
        calls = sum(isinstance(step, LtStep) for step in steps)
        return {
            "gpu": self.driver.name,
            "steps": len(steps),
            "kernels": kernels,
            "library_calls": calls,
            "host_ops": len(steps) - kernels - calls,
            "contexts": len(self._contexts.everything()),
            "graphs_built": self._graphs_built,
            "graph_replays": self._replays,
            "single_launches": self._launched_singly,
        }

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._driver is None

    def close(self) -> None:
        """Free everything on the device."""
        driver, self._driver = self._driver, None
        if driver is None:
            return
        with suppress(LuminalError), driver.current():
            for context in self._contexts.clear():
                context.close()
            if self._lt is not None:
                destroy_quietly(self._lt.close)
            for module in self._modules:
                destroy_quietly(lambda module=module: driver.call("cuModuleUnload", module))
            if self._weights_base:
                destroy_quietly(lambda: driver.free(self._weights_base))
        self._modules, self._functions, self._weights = [], {}, {}
        destroy_quietly(driver.release)


class _Context:
    """A stream with an arena, staging memory and graphs. One thread uses it at a time, with the GPU current."""

    def __init__(self, backend: CudaBackend) -> None:
        self._backend = backend
        self._driver = backend.driver
        self._programs: BoundedCache[tuple[Any, ...], _Program] = BoundedCache(GRAPHS_KEPT, self._drop)
        self._layouts: BoundedCache[tuple[Any, ...], _Layout] = BoundedCache(GRAPHS_KEPT)
        self._arena = 0
        self.arena_bytes = 0
        self._staging = 0
        self._staging_bytes = 0
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

    def prepare(self, bound: BoundPlan, feeds: Sequence[np.ndarray]) -> _Program:
        """Copy the feeds to the device, and return the program of these shapes, built if it is their first time."""
        key = tuple(bound.dims.items())
        layout = self._layouts.get(key, lambda: _layout(bound))
        self._reserve(layout)
        for number, (port, feed) in enumerate(zip(bound.plan.inputs, feeds)):
            self._copy_in(self._arena + layout.offsets[port.buffer], feed, layout.staged.get(("in", number)))
        return self._programs.get(key, lambda: self._build(bound, layout))

    def launch(self, bound: BoundPlan, program: _Program) -> None:
        """Enqueue the work once."""
        if program.graph is not None:
            self._driver.call("cuGraphLaunch", program.graph, self.stream)
            self._backend.count(replays=1)
        else:
            self._backend.enqueue(bound, program.addresses, self.stream, self._workspace)
            self._backend.count(launches=len(bound.launches))

    def fetch(self, bound: BoundPlan, program: _Program, wanted: Sequence[int]) -> list[np.ndarray]:
        """Wait for the work, and return the wanted outputs as new arrays."""
        layout = self._layouts.get(tuple(bound.dims.items()), lambda: _layout(bound))
        outputs = []
        staged = []
        for position in wanted:
            port = bound.plan.outputs[position]
            array = np.empty(bound.output_shapes[position], port.dtype.numpy)
            outputs.append(array)
            if array.nbytes == 0:
                continue
            place = layout.staged.get(("out", position))
            address = program.addresses[port.buffer]
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

    def _reserve(self, layout: _Layout) -> None:
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

    def _build(self, bound: BoundPlan, layout: _Layout) -> _Program:
        addresses = dict(self._backend.weights)
        addresses.update({buffer: self._arena + offset for buffer, offset in layout.offsets.items()})
        program = _Program(addresses)
        if not self._backend.cuda_graph:
            return program
        # Launched once outside of the capture, kernels and library load what they load lazily, and faults show here.
        self._backend.enqueue(bound, addresses, self.stream, self._workspace)
        self.synchronize()
        with self._backend.build_lock():
            graph = self._capture(bound, addresses)
        try:
            _, program.nodes = self._driver.call("cuGraphGetNodes", graph, 0)
            program.graph = self._driver.call("cuGraphInstantiate", graph, 0)
        finally:
            self._driver.call("cuGraphDestroy", graph)
        self._backend.count(graphs=1)
        return program

    def _capture(self, bound: BoundPlan, addresses: Mapping[int, int]) -> Any:
        mode = self._driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._driver.call("cuStreamBeginCapture", self.stream, mode)
        try:
            self._backend.enqueue(bound, addresses, self.stream, self._workspace)
        except BaseException:
            destroy_quietly(lambda: self._driver.call("cuStreamEndCapture", self.stream))
            raise
        return self._driver.call("cuStreamEndCapture", self.stream)

    def _drop(self, program: _Program) -> None:
        if program.graph is not None:
            self.synchronize()
            self._driver.call("cuGraphExecDestroy", program.graph)

    def close(self) -> None:
        """Free everything that the context holds."""
        destroy_quietly(self._programs.clear)
        if self._arena:
            destroy_quietly(lambda: self._driver.free(self._arena))
        if self._workspace:
            destroy_quietly(lambda: self._driver.free(self._workspace))
        if self._staging:
            destroy_quietly(lambda: self._driver.call("cuMemFreeHost", self._staging))
        destroy_quietly(lambda: self._driver.call("cuStreamDestroy", self.stream))
        self._arena = self._workspace = self._staging = 0
        self.arena_bytes = self.workspace_bytes = 0


class BoundRun:
    """A run whose inputs lie on the device: `launch` enqueues it again, without copies, for measuring.

    One thread may use it at a time. Close it, or use it in a `with` block, to give its context back.
    """

    def __init__(self, backend: CudaBackend, context: _Context, bound: BoundPlan, program: _Program) -> None:
        self._backend = backend
        self._context: _Context | None = context
        self._bound = bound
        self._program = program

    @property
    def nodes(self) -> int:
        """Nodes of the graph; 0 if kernels are launched one by one."""
        return self._program.nodes

    def launch(self) -> None:
        """Enqueue the work once and return at once."""
        context = self._lent()
        with self._backend.driver.current():
            context.launch(self._bound, self._program)

    def synchronize(self) -> None:
        """Wait until all that was launched is done."""
        context = self._lent()
        with self._backend.driver.current():
            context.synchronize()

    def outputs(self, output_positions: Sequence[int] | None = None) -> list[np.ndarray]:
        """Wait, and return the outputs as new arrays."""
        context = self._lent()
        wanted = range(len(self._bound.plan.outputs)) if output_positions is None else output_positions
        with self._backend.driver.current():
            return context.fetch(self._bound, self._program, wanted)

    def time_replay(self, n: int = 50, warmup: int = 10) -> float:
        """Return the mean seconds of a run, by events around `n` runs in a row after `warmup` others."""
        context = self._lent()
        driver = self._backend.driver
        with driver.current():
            events = [driver.call("cuEventCreate", 0) for _ in range(2)]
            try:
                for _ in range(warmup):
                    context.launch(self._bound, self._program)
                driver.call("cuEventRecord", events[0], context.stream)
                for _ in range(n):
                    context.launch(self._bound, self._program)
                driver.call("cuEventRecord", events[1], context.stream)
                driver.call("cuEventSynchronize", events[1])
                return driver.call("cuEventElapsedTime", *events) / 1e3 / n
            finally:
                for event in events:
                    driver.call("cuEventDestroy", event)

    def close(self) -> None:
        """Give the context back; calling it twice is fine."""
        context, self._context = self._context, None
        if context is not None and not self._backend.closed:
            with self._backend.driver.current():
                destroy_quietly(context.synchronize)
            self._backend.give_back(context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lent(self) -> _Context:
        if self._context is None or self._backend.closed:
            raise InvalidInput("this bound run or its session is closed; bind again")
        return self._context


class _Uploader:
    """Copies arrays to the device through two pinned buffers: one is filled while the other is sent."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._stream = driver.call("cuStreamCreate", 1)
        self._events = [driver.call("cuEventCreate", 2) for _ in range(2)]  # without timing
        self._buffers = [int(driver.call("cuMemHostAlloc", _UPLOAD_CHUNK, 0)) for _ in range(2)]
        self._views = [
            np.frombuffer((ctypes.c_uint8 * _UPLOAD_CHUNK).from_address(buffer), np.uint8) for buffer in self._buffers
        ]
        self._turn = 0
        self._fill = 0  # bytes of the present buffer that are taken
        self._waits = [False, False]

    def copy(self, address: int, data: np.ndarray) -> None:
        """Enqueue a copy of `data`, whose bytes are read before this returns."""
        for begin in range(0, data.nbytes, _UPLOAD_CHUNK):
            piece = data[begin : begin + _UPLOAD_CHUNK]
            if self._fill + piece.nbytes > _UPLOAD_CHUNK:
                self._next_buffer()
            if self._fill == 0 and self._waits[self._turn]:
                self._driver.call("cuEventSynchronize", self._events[self._turn])
            place = self._fill
            self._views[self._turn][place : place + piece.nbytes] = piece
            source = self._buffers[self._turn] + place
            self._driver.call("cuMemcpyHtoDAsync", address + begin, source, piece.nbytes, self._stream)
            self._fill += piece.nbytes

    def _next_buffer(self) -> None:
        self._driver.call("cuEventRecord", self._events[self._turn], self._stream)
        self._waits[self._turn] = True
        self._turn = 1 - self._turn
        self._fill = 0

    def finish(self) -> None:
        """Wait until every copy is done."""
        self._driver.call("cuStreamSynchronize", self._stream)

    def close(self) -> None:
        destroy_quietly(self.finish)
        for event in self._events:
            destroy_quietly(lambda event=event: self._driver.call("cuEventDestroy", event))
        for buffer in self._buffers:
            destroy_quietly(lambda buffer=buffer: self._driver.call("cuMemFreeHost", buffer))
        destroy_quietly(lambda: self._driver.call("cuStreamDestroy", self._stream))


def _layout(bound: BoundPlan) -> _Layout:
    """Place inputs and written outputs behind the temporaries, and those small enough in staging memory too."""
    offsets = dict(bound.memory.offsets)
    top = _padded(bound.memory.peak_bytes)
    for buffer in dict.fromkeys([*(port.buffer for port in bound.plan.inputs), *bound.owned]):
        offsets[buffer] = top
        top += _padded(bound.sizes[buffer])
    staged: dict[tuple[str, int], int] = {}
    staging = 0
    sides = [("in", port) for port in bound.plan.inputs], [("out", port) for port in bound.plan.outputs]
    for side in sides:
        for number, (label, port) in enumerate(side):
            size = bound.sizes[port.buffer]
            if 0 < size <= _STAGED_AT_MOST:
                staged[label, number] = staging
                staging += _padded(size)
    return _Layout(offsets, top, staged, staging)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _minimum_cuda(artifact: Artifact) -> str:
    return str(artifact.manifest.get("requires", {}).get("cuda", "13.0"))
