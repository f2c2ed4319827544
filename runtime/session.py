"""`InferenceSession`: run an artifact, with ONNX Runtime's Python interface."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Self

import numpy as np

from ..plan.buckets import bucket_of, describe
from ..plan.dims import Dim
from ..plan.errors import InvalidInput
from ..plan.records import Plan
from ..plan.signature import InputPort, OutputPort, Signature
from .artifact import Artifact
from .backend import Backend
from .binding import BoundPlan, bind
from .feeds import check_feeds
from .input_dims import bind_dims, symbol_name
from .pool import BoundedCache
from .survey import Survey, survey

PROVIDER = "LuminalExecutionProvider"
SHAPES_KEPT = 32

logger = logging.getLogger("luminal_onnx")


@dataclass(frozen=True)
class NodeArg:
    """One input or output: its name, its dims (a symbolic one by name), and its type, such as "tensor(float)".

    Of an output whose dims depend on more than one expression tells, a dim is None; if even the rank does, `shape` is.
    """

    name: str
    shape: list[int | str | None] | None
    type: str


@dataclass(frozen=True)
class ModelMetadata:
    """What the model says of itself."""

    graph_name: str = ""
    producer_name: str = ""
    domain: str = ""
    description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


class InferenceSession:
    """A loaded model. Any number of threads may call `run` at once; weights are shared, work memory is not.

    `device` is "cuda", "cuda:1" or "cpu" (the same kernels on the host: slow, for checking); there is no silent fallback.
    `sess_options`, `providers` and `provider_options` are taken for ONNX Runtime's sake: naming another provider warns,
    and changes nothing. `arch` picks one of the artifact's plans by hand. With `cuda_graph=False` kernels are launched
    one by one. With `programmatic_launch=False` no kernel starts before the one in front of it has ended; results are the
    same to the bit. `check_kernels=True` runs the CPU road under its race and bounds checker.

    Raises InvalidArtifact for a damaged or unfit file, NoDevice without a usable GPU, MissingDependency for a missing
    library or compiler.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes | BinaryIO | Artifact,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        device: str = "cuda",
        device_id: int = 0,
        arch: str | None = None,
        cuda_graph: bool = True,
        programmatic_launch: bool = True,
        check_kernels: bool = False,
    ) -> None:
        self._backend: Backend | None = None
        _told_about_options(sess_options, providers, provider_options)
        kind, device_id = _device(device, device_id)
        self._owns_artifact = not isinstance(path_or_bytes, Artifact)
        self._artifact = Artifact.open(path_or_bytes)
        self._lock = threading.Lock()
        self._runs = 0
        if kind == "cpu":
            from .cpu_backend import CpuBackend

            self._backend = CpuBackend(self._artifact, arch, check_kernels)
        else:
            from .cuda_backend import CudaBackend

            self._backend = CudaBackend(self._artifact, arch, device_id, cuda_graph, programmatic_launch)
        self._signature = self._artifact.signature
        self._plans = self._backend.plans
        self._surveys: dict[int, Survey] = {}  # by bucket
        self._bound: BoundedCache[tuple[tuple[int, ...], ...], BoundPlan] = BoundedCache(SHAPES_KEPT)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[np.ndarray]:
        """Run the model once and return the named outputs (all of them for None) as new arrays.

        Raises InvalidInput, before anything runs, if a feed does not fit.
        """
        backend = self._open()
        wanted = self._wanted(output_names)
        bound, arrays = self._prepare(input_feed)
        with self._lock:
            self._runs += 1
        return backend.run(bound, arrays, wanted)

    def bind(self, input_feed: Mapping[str, Any]) -> Any:
        """Put the feeds on the device once and return a BoundRun, whose `launch` only replays the work (CUDA only)."""
        backend = self._open()
        return backend.bind(*self._prepare(input_feed))

    def time_replay(self, input_feed: Mapping[str, Any], n: int = 50, warmup: int = 10) -> float:
        """Return the mean seconds of a run on the device, measured by events over `n` runs, copies not included."""
        with self.bind(input_feed) as bound:
            return bound.time_replay(n, warmup)

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs in order."""
        return [_node_arg(port) for port in self._signature.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs in order."""
        return [_node_arg(port) for port in self._signature.outputs]

    def get_providers(self) -> list[str]:
        """Return our one provider's name."""
        return [PROVIDER]

    def get_modelmeta(self) -> ModelMetadata:
        """Return the model's own description, as far as the artifact keeps it."""
        model = self._artifact.manifest.get("model") or {}
        return ModelMetadata(
            graph_name=str(model.get("graph_name") or model.get("name") or ""),
            producer_name=str(model.get("producer_name") or model.get("producer") or ""),
            domain=str(model.get("domain") or ""),
            description=str(model.get("description") or ""),
            version=int(model.get("model_version") or 0),
            custom_metadata_map={str(k): str(v) for k, v in (model.get("metadata") or {}).items()},
        )

    @property
    def device(self) -> str:
        """Where it runs: "cpu" or "cuda:0"."""
        return self._open().device

    @property
    def artifact(self) -> Artifact:
        """The artifact that it runs."""
        return self._artifact

    @property
    def signature(self) -> Signature:
        """Inputs, outputs and the range of every dim."""
        return self._signature

    @property
    def plan(self) -> Plan:
        """The plan that it follows; where the range is cut into buckets, that of the first."""
        return self._plans[0]

    def memory_bytes(self) -> dict[str, int]:
        """Return bytes held on the device: weights, activations of all contexts, workspace, and their total."""
        parts = self._open().memory_bytes()
        return {**parts, "total": sum(parts.values())}

    def report(self) -> dict[str, Any]:
        """Return what ran so far: device, arch, runs, steps of each kind, host operations, graphs, memory, and how many
        scalars were read back to decide what comes next (`read_backs`)."""
        backend = self._open()
        return {
            "device": backend.device,
            "arch": self.plan.arch,
            "runs": self._runs,
            "shapes": len(self._bound),
            **backend.report(),
            "memory": self.memory_bytes(),
        }

    def close(self) -> None:
        """Free what the session holds. Nobody may be inside `run`; calling it twice is fine."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()
            self._bound.clear()
            if self._owns_artifact:
                self._artifact.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be shutting down; there is nobody left to tell
            self.close()

    def _open(self) -> Backend:
        if self._backend is None:
            raise InvalidInput("the session is closed; make a new one")
        return self._backend

    def _prepare(self, input_feed: Mapping[str, Any]) -> tuple[BoundPlan, list[np.ndarray]]:
        arrays = check_feeds(self._signature.inputs, input_feed)
        shapes = tuple(array.shape for array in arrays)
        return self._bound.get(shapes, lambda: self._bind(shapes)), arrays

    def _bind(self, shapes: Sequence[Sequence[int]]) -> BoundPlan:
        """Bind the plan of the bucket that the shapes lie in."""
        dims = bind_dims(self._signature, shapes)
        buckets = self._artifact.buckets
        found = bucket_of(dims, buckets)
        if found is None:  # only a dim that no input's size tells may be unknown, and that is refused before
            raise InvalidInput(
                f"{', '.join(f'{name}={size}' for name, size in dims.items())} lies in none of the buckets: "
                + "; ".join(map(describe, buckets))
            )
        plan = self._plans[found]
        surveyed = self._surveys.get(found)
        if surveyed is None:
            surveyed = self._surveys[found] = survey(plan)
        return bind(plan, dims, surveyed)

    def _wanted(self, output_names: Sequence[str] | None) -> list[int]:
        names = [port.name for port in self._signature.outputs]
        if not output_names:
            return list(range(len(names)))
        if isinstance(output_names, str):
            raise InvalidInput(f"output names must be a list, got the string {output_names!r}")
        for name in output_names:
            if name not in names:
                raise InvalidInput(f"Invalid output name: {name}; the model's outputs are {', '.join(names)}")
        return [names.index(name) for name in output_names]


def _node_arg(port: InputPort | OutputPort) -> NodeArg:
    shape = None if port.shape is None else [_dim(dim) for dim in port.shape]
    return NodeArg(port.name, shape, f"tensor({port.dtype.onnx_name})")


def _dim(dim: Dim | None) -> int | str | None:
    return dim if dim is None or isinstance(dim, int) else symbol_name(dim) or str(dim)


def _device(device: str, device_id: int) -> tuple[str, int]:
    kind, _, number = str(device).partition(":")
    if kind not in ("cuda", "cpu") or (number and not (kind == "cuda" and number.isdecimal())):
        raise InvalidInput(f'device is {device!r}; expected "cuda", "cuda:N" or "cpu"')
    if type(device_id) is not int or device_id < 0:
        raise InvalidInput(f"device_id is {device_id!r}; expected a number from 0 on")
    return kind, int(number) if number else device_id


def _told_about_options(sess_options: Any, providers: Any, provider_options: Any) -> None:
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers or ()]
    others = [name for name in names if name != PROVIDER]
    if others:
        warnings.warn(
            f"providers {', '.join(others)} change nothing here: an artifact runs by {PROVIDER}, "
            'on device="cuda" unless device="cpu" is given',
            stacklevel=3,
        )
    if sess_options is not None or provider_options:
        logger.info("sess_options and provider_options are ignored: the artifact holds what they would choose")
