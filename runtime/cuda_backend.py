"""The GPU road: kernels and cuBLASLt calls captured in CUDA graphs, one for each set of shapes, and replayed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..plan.errors import InvalidArtifact, LuminalError
from ..plan.records import KernelStep, LtStep, Plan, Step
from .arch import can_wait, choose_arch, runs_machine_code
from .artifact import Artifact
from .binding import BoundPlan
from .cublaslt import WORKSPACE_BYTES, LtLibrary
from .cuda_bound_run import BoundRun
from .cuda_context import Context
from .cuda_driver import Driver, destroy_quietly
from .cuda_launch import launch_kernel
from .cuda_upload import Uploader
from .launches import KernelLaunch, Launch, LtLaunch
from .memory import padded
from .pool import Pool

_PLAIN_SHARED_BYTES = 48 << 10  # what a kernel may have without asking


class CudaBackend:
    """Runs an artifact on one GPU. Weights, modules and library plans are shared; each run has a context of its own."""

    def __init__(
        self,
        artifact: Artifact,
        arch: str | None = None,
        device_id: int = 0,
        cuda_graph: bool = True,
        programmatic_launch: bool = True,
    ) -> None:
        self._driver: Driver | None = None
        self._lt: LtLibrary | None = None
        self._modules: list[Any] = []
        self._functions: dict[tuple[str, str], Any] = {}
        self._may_wait: set[str] = set()  # sources whose code was loaded as machine code of an arch that can wait
        self._weights: dict[str, int] = {}  # places by name
        self._weights_base = 0
        self._weights_bytes = 0
        self._build_lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._replays = 0
        self._launched_singly = 0
        self._graphs_built = 0
        self._read_backs = 0
        self.cuda_graph = cuda_graph
        self._programmatic_launch = programmatic_launch
        self.driver = driver = self._driver = Driver(device_id, _minimum_cuda(artifact))
        self._contexts: Pool[Context] = Pool(lambda: Context(self))
        try:
            has_ptx = any(name.startswith("ptx/") for name in artifact.sections)
            self.plans = artifact.plans(arch or choose_arch(artifact.arches, driver.capability, has_ptx))
            self.device = f"cuda:{device_id}"
            self.uses_library = any(isinstance(step, LtStep) for step in self._steps())
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

    def give_back(self, context: Context) -> None:
        """Take back a context that `bind` lent."""
        self._contexts.give_back(context)

    def enqueue(self, launches: Sequence[Launch], addresses: Mapping[int, int], stream: Any, workspace: int) -> None:
        """Put launches on a stream, in order; `addresses` go by slot.

        A kernel that waits for its inputs may start early if so does the kernel right in front of it: behind copies and
        library calls, and so at the beginning, every launch is an ordinary one.
        """
        follows_waiting = False
        for launch in launches:
            if isinstance(launch, KernelLaunch):
                record = launch.kernel
                waits = record.waits and record.source in self._may_wait
                function = self._functions[record.source, record.entry]
                launch_kernel(self.driver, function, launch, addresses, stream, early=waits and follows_waiting)
                follows_waiting = waits
                continue
            follows_waiting = False
            if isinstance(launch, LtLaunch):
                self._launch_library(launch, addresses, stream, workspace)
            else:
                target, source = addresses[launch.writes[0]], addresses[launch.reads[0]]
                self.driver.call("cuMemcpyDtoDAsync", target, source, launch.bytes, stream)

    def _launch_library(self, launch: LtLaunch, addresses: Mapping[int, int], stream: Any, workspace: int) -> None:
        record = launch.matmul
        out = addresses[launch.writes[0]]
        if record.k == 0:
            self._clear_product(launch, out, stream)
            return
        operands = [addresses[slot] for slot in launch.reads]
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
        arch = self.plans[0].arch
        machine_code = runs_machine_code(arch, self.driver.capability)
        modules: dict[str, Any] = {}
        for step in self._steps():
            if not isinstance(step, KernelStep):
                continue
            record = step.kernel
            if record.source not in modules:
                image = artifact.cubin(arch, record.source) if machine_code else None
                if image is not None and self._programmatic_launch and can_wait(arch):
                    self._may_wait.add(record.source)
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
        names = dict.fromkeys(b.name for plan in self.plans for b in plan.buffers if b.kind == "weight")
        arrays = {name: artifact.weights[name].reshape(-1).view(np.uint8) for name in names}
        if not arrays:
            return
        places: dict[str, int] = {}
        total = 0
        for name, array in arrays.items():
            places[name] = total
            total += padded(array.nbytes)
        driver = self.driver
        self._weights_base = driver.allocate(total, "the weights")
        self._weights_bytes = total
        self._weights = {name: self._weights_base + place for name, place in places.items()}
        uploader = Uploader(driver)
        try:
            for name, array in arrays.items():
                uploader.copy(self._weights[name], array)
            uploader.finish()
        finally:
            uploader.close()

    def weights(self, plan: Plan) -> Mapping[int, int]:
        """Return the device addresses of a plan's weights, by buffer."""
        return {buffer.id: self._weights[buffer.name] for buffer in plan.buffers if buffer.kind == "weight"}

    def _steps(self) -> Iterator[Step]:
        return (step for plan in self.plans for step in plan.steps())

    def build_lock(self) -> threading.Lock:
        """The lock under which graphs are captured, one at a time."""
        return self._build_lock

    def count(self, *, replays: int = 0, launches: int = 0, graphs: int = 0, read_backs: int = 0) -> None:
        """Add to the counters that `report` shows."""
        with self._count_lock:
            self._replays += replays
            self._launched_singly += launches
            self._graphs_built += graphs
            self._read_backs += read_backs

    def memory_bytes(self) -> dict[str, int]:
        contexts = self._contexts.everything()
        return {
            "weights": self._weights_bytes,
            "activations": sum(context.arena_bytes for context in contexts),
            "workspace": sum(context.workspace_bytes for context in contexts),
        }

    def report(self) -> dict[str, Any]:
        steps = list(self._steps())
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
            "read_backs": self._read_backs,
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


def _minimum_cuda(artifact: Artifact) -> str:
    return str(artifact.manifest.get("requires", {}).get("cuda", "13.0"))
