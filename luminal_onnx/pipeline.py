"""`compile`: the road from an ONNX model to an artifact, one phase after another, each timed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from luminal_onnx.plan.errors import InvalidInput, MissingDependency, VerificationFailed
from luminal_onnx.plan.records import KernelStep, LtStep, Plan
from luminal_onnx.runtime.artifact import Artifact

if TYPE_CHECKING:
    import onnx

    from luminal_onnx.ir.search import SearchReport

DEFAULT_ARCHES = ("sm_80", "sm_90", "sm_100")
VERIFY_SECONDS = 60.0
# The families of generated kernels; a kernel's name starts with its family's.
TEMPLATES = ("elementwise", "row_thread", "row_warp", "row_block", "row_slices", "matmul_tiled", "matmul_mma", "scatter")
DimSpec = int | str | tuple[int, int] | tuple[int, int, int]
Progress = Callable[[str], None]
ModelLike: TypeAlias = "str | PathLike[str] | bytes | onnx.ModelProto"


@dataclass
class Phases:
    """Wall seconds by phase, in order. The sum is what `total` covers but for the glue between phases."""

    announce: Progress
    seconds: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def begin_with(self, name: str, seconds: float) -> None:
        """Count `seconds` that passed before the first phase, such as starting Python."""
        self.seconds[name] = seconds
        self.started -= seconds

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.announce(name)
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

    def report(self) -> dict[str, float]:
        """Return the seconds of each phase so far, and `total`."""
        total = time.perf_counter() - self.started
        return {**{name: round(value, 4) for name, value in self.seconds.items()}, "total": round(total, 4)}


def compile(
    model: ModelLike,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    arches: Sequence[str] | None = None,
    verify: bool = True,
    verify_seconds: float = VERIFY_SECONDS,
    strip_sources: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Artifact:
    """Compile `model` (a path, the file's bytes, or a ModelProto) and return the artifact, not yet under a name.

    `dims` fixes or bounds named dims: 8, (min, max) or (min, opt, max); `shapes` fixes whole inputs. `arches` are the GPU
    targets ("sm_90"); PTX for newer ones is always added. With `verify` the artifact is run on the CPU against
    onnxruntime first, for at most `verify_seconds`; what could not be checked is marked "unverified" in the manifest.
    `strip_sources` leaves out the kernel sources, which the CPU road needs.

    Raises InvalidModel, UnsupportedModel, InvalidInput, MissingDependency, or VerificationFailed on a mismatch.
    """
    folder = tempfile.TemporaryDirectory(prefix="luminal-onnx-")
    artifact = compile_to(
        Path(folder.name) / "model.luminal",
        model,
        Phases(progress or (lambda phase: None)),
        dims=dims,
        shapes=shapes,
        arches=arches,
        verify=verify,
        verify_seconds=verify_seconds,
        strip_sources=strip_sources,
        seed=seed,
    )
    artifact.keep_alive(folder)
    return artifact


def compile_to(
    path: Path,
    model: ModelLike,
    phases: Phases,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    arches: Sequence[str] | None = None,
    verify: bool = True,
    verify_seconds: float = VERIFY_SECONDS,
    strip_sources: bool = False,
    seed: int = 0,
) -> Artifact:
    """Compile as `compile` does and write the artifact under `path`, once, after the check; `phases` takes the times."""
    targets = tuple(arches) if arches else DEFAULT_ARCHES
    with phases.phase("import"):
        compiler = _compiler()
        imported = compiler.load(model, dims=dims, shapes=shapes)
    for name in targets:
        if name not in compiler.targets:
            raise InvalidInput(f"unknown arch {name!r}; known: {', '.join(sorted(compiler.targets))}")
    primary = compiler.targets[_primary(targets)]
    with phases.phase("search"):
        found = compiler.search(imported.graph, primary)
    with phases.phase("codegen"):
        lowered = compiler.lower(found.program, primary.name)
        lowered.plan.validate()
    with phases.phase("nvrtc"):
        binaries = compiler.compile_sources(lowered.sources, targets)
    summary = imported.summary
    info: dict[str, Any] = {
        "model": summary.to_json(),
        "target": primary.name,
        "search": search_summary(found.report),
        "statistics": statistics(lowered.plan),
        "warnings": [*summary.warnings, *found.report.notes],
    }

    def write(where: Path, verification: dict[str, Any]) -> Artifact:
        with phases.phase("write"):
            compiler.write_artifact(
                where,
                manifest_info={**info, "verification": verification, "seconds": phases.report()},
                plans={name: _retarget(lowered.plan, name) for name in targets},
                cubins=binaries.cubins,
                ptx=binaries.ptx,
                sources={} if strip_sources else lowered.sources,
                weights=lowered.weights,
                extras={"graph.txt": compiler.format_graph(imported.graph).encode()},
            )
            return Artifact.open(where)

    if not verify:
        verification: dict[str, Any] = {"status": "skipped", "reason": "not asked for"}
    elif strip_sources:
        verification = {"status": "unverified", "reason": "the sources are stripped, so the CPU road cannot run it"}
    else:
        with tempfile.TemporaryDirectory(prefix="luminal-onnx-") as folder:
            draft = write(Path(folder) / "draft.luminal", {"status": "pending"})
            with phases.phase("verify"), draft:
                from luminal_onnx.verification import verify as run_verification

                verification = run_verification(draft, model, seconds=verify_seconds, seed=seed)
        if verification["status"] == "mismatch":
            raise VerificationFailed(verification["reason"])
    return write(path, verification)


def statistics(plan: Plan) -> dict[str, Any]:
    """Count what a plan holds: kernels by template, library calls, and steps that are neither, which the host would do."""
    steps = list(plan.steps())
    templates: dict[str, int] = {}
    for step in steps:
        if isinstance(step, KernelStep):
            template = next((name for name in TEMPLATES if step.kernel.name.startswith(name)), "other")
            templates[template] = templates.get(template, 0) + 1
    sources = {step.kernel.source for step in steps if isinstance(step, KernelStep)}
    calls = sum(isinstance(step, LtStep) for step in steps)
    return {
        "launches": len(steps),
        "kernels": sum(templates.values()),
        "distinct_kernels": len(sources),
        "cublaslt_calls": calls,
        "host_ops": len(steps) - sum(templates.values()) - calls,
        "templates": dict(sorted(templates.items())),
    }


def search_summary(report: SearchReport) -> dict[str, Any]:
    """Return what the manifest keeps of a search."""
    saturation = report.saturation
    return {
        "estimate_us": round(report.cost * 1e6, 3),
        "candidates": report.candidates,
        "kernels": dict(report.kernels),
        "recognised": {str(number): label for number, label in report.labels.items()},
        "stop": saturation.stop,
        "rounds": saturation.rounds,
        "nodes": saturation.nodes,
        "classes": saturation.classes,
        "solver": report.solution.status,
        "notes": report.notes,
        "seconds": {name: round(value, 4) for name, value in report.seconds.items()},
    }


def _primary(targets: Sequence[str]) -> str:
    return "sm_90" if "sm_90" in targets else targets[0]


def _retarget(plan: Plan, arch: str) -> Plan:
    return Plan(arch, plan.buffers, plan.inputs, plan.outputs, plan.root, plan.ranges)


@dataclass(frozen=True)
class _Compiler:
    load: Callable
    search: Callable
    lower: Callable
    compile_sources: Callable
    write_artifact: Callable
    format_graph: Callable
    targets: Mapping[str, Any]


def _compiler() -> _Compiler:
    """Import the compiling parts, which need the `compile` extra, or say that it is missing."""
    try:
        from luminal_onnx.codegen import compile_sources, lower
        from luminal_onnx.codegen.artifact import write_artifact
        from luminal_onnx.importer import load
        from luminal_onnx.ir.target import TARGETS
        from luminal_onnx.ir.printer import format_graph
        from luminal_onnx.ir.search import search
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.startswith("luminal_onnx"):
            raise
        raise MissingDependency(
            f"compiling needs the Python package {missing.name!r}: pip install 'luminal-onnx[compile]'"
        ) from missing
    return _Compiler(load, search, lower, compile_sources, write_artifact, format_graph, TARGETS)
