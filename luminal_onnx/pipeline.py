"""`compile`: the road from an ONNX model to an artifact, one phase after another, each timed."""

from __future__ import annotations

import logging
import operator
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from luminal_onnx.extras import needs_compile_extra
from luminal_onnx.plan.buckets import bucket_of
from luminal_onnx.plan.control import decisions
from luminal_onnx.plan.errors import InvalidInput, MissingDependency, VerificationFailed
from luminal_onnx.plan.records import KernelStep, LtStep, Plan
from luminal_onnx.plan.signature import joined_signature
from luminal_onnx.runtime.artifact import Artifact

if TYPE_CHECKING:
    import onnx

    from luminal_onnx.ir.search import SearchReport

DEFAULT_ARCHES = ("sm_80", "sm_90", "sm_100")
VERIFY_SECONDS = 60.0
# The families of generated kernels; a kernel's name starts with its family's.
TEMPLATES = (
    "elementwise",
    "row_thread",
    "row_warp",
    "row_block",
    "row_slices",
    "matmul_tiled",
    "matmul_mma",
    "attention",
    "scatter",
)
DimSpec = int | str | Sequence[int | Sequence[int]]
# The least, usual and greatest shape of each input that is named.
Profile = Mapping[str, tuple[Sequence[int], Sequence[int], Sequence[int]]]
Progress = Callable[[str], None]
ModelLike: TypeAlias = "str | PathLike[str] | bytes | onnx.ModelProto"

logger = logging.getLogger("luminal_onnx")


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
            passed = time.perf_counter() - begin
            self.seconds[name] = self.seconds.get(name, 0.0) + passed
            logger.info("%-8s %.2f s", name, passed)

    def report(self) -> dict[str, float]:
        """Return the seconds of each phase so far, and `total`."""
        total = time.perf_counter() - self.started
        return {**{name: round(value, 4) for name, value in self.seconds.items()}, "total": round(total, 4)}


def compile(
    model: ModelLike,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    profiles: Sequence[Profile] = (),
    arches: Sequence[str] | None = None,
    verify: bool = True,
    verify_seconds: float = VERIFY_SECONDS,
    strip_sources: bool = False,
    strict_nan: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Artifact:
    """Compile `model` (a path, the file's bytes, or a ModelProto) and return the artifact, not yet under a name.

    `dims` fixes or bounds named dims: 8, (min, max) or (min, opt, max), or a list of these: buckets, each with a plan that
    is tuned for its own opt. `shapes` fixes whole inputs. `profiles` bound dims by shapes of inputs, as in
    `{"x": ((1, 3), (8, 3), (32, 3))}`; several are buckets, of which the first that fits is taken. `arches` are the GPU
    targets ("sm_90"); PTX for newer ones is always added. With `verify` the artifact is run on the CPU against onnxruntime
    first, for at most `verify_seconds`; what could not be checked is marked "unverified" in the manifest. `strip_sources`
    leaves out the kernel sources, which the CPU road needs. A library call may turn NaN into 0 in a Relu; with
    `strict_nan` none does.

    Raises InvalidModel, UnsupportedModel, InvalidInput, MissingDependency, or VerificationFailed on a mismatch.
    """
    folder = tempfile.TemporaryDirectory(prefix="luminal-onnx-")
    artifact = compile_to(
        Path(folder.name) / "model.luminal",
        model,
        Phases(progress or (lambda phase: None)),
        dims=dims,
        shapes=shapes,
        profiles=profiles,
        arches=arches,
        verify=verify,
        verify_seconds=verify_seconds,
        strip_sources=strip_sources,
        strict_nan=strict_nan,
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
    profiles: Sequence[Profile] = (),
    arches: Sequence[str] | None = None,
    verify: bool = True,
    verify_seconds: float = VERIFY_SECONDS,
    strip_sources: bool = False,
    strict_nan: bool = False,
    seed: int = 0,
) -> Artifact:
    """Compile as `compile` does and write the artifact under `path`, once, after the check; `phases` takes the times.

    What can be refused without work is refused first: a target that cannot be written, unknown arches, missing tools.
    """
    _check_target(path, model)
    with phases.phase("import"):
        compiler = _compiler()
        targets = _checked_arches(arches, compiler.targets)
        if verify and not strip_sources:
            _check_verifiable()
        imported = compiler.load(model, dims=_checked_dims(dims), shapes=shapes, profiles=profiles)
    primary = compiler.targets[_primary(targets)]
    options = compiler.options(strict_nan=strict_nan)
    reports, parts = [], []
    for graph in imported.graphs:
        with phases.phase("search"):
            found = compiler.search(graph, primary, options)
        with phases.phase("codegen"):
            reports.append(found.report)
            parts.append(compiler.lower(found.program, primary.name))
            parts[-1].plan.validate()
    with phases.phase("codegen"):
        joined = compiler.join(parts)
    with phases.phase("nvrtc"):
        binaries = compiler.compile_sources(joined.sources, targets)
    summary, buckets = imported.summary, imported.buckets
    usual = bucket_of({name: known.opt for name, known in imported.ranges.items()}, buckets) or 0
    info: dict[str, Any] = {
        "model": summary.to_json(),
        "target": primary.name,
        "search": search_summary(reports[usual]),
        "statistics": statistics(joined.plans[usual]),
        "warnings": list(dict.fromkeys([*summary.warnings, *(note for report in reports for note in report.notes)])),
    }
    graphs = {
        f"graph.{number}.txt" if number else "graph.txt": compiler.format_graph(graph).encode()
        for number, graph in enumerate(imported.graphs)
    }

    def write(where: Path, verification: dict[str, Any]) -> Artifact:
        with phases.phase("write"):
            compiler.write_artifact(
                where,
                manifest_info={**info, "verification": verification, "seconds": phases.report()},
                plans={name: [replace(plan, arch=name) for plan in joined.plans] for name in targets},
                cubins=binaries.cubins,
                ptx=binaries.ptx,
                sources={} if strip_sources else joined.sources,
                weights=joined.weights,
                extras=graphs,
                signature=joined_signature(imported.inputs, imported.ranges, buckets, joined.plans),
                buckets=buckets,
            )
            return Artifact.open(where, sealed=True)

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
            raise VerificationFailed(
                f"{verification['reason']}; no file was written. This is a bug: please report the model"
            )
    return write(path, verification)


def statistics(plan: Plan) -> dict[str, Any]:
    """Count what a plan holds: kernels by template, library calls, and steps that are neither, which the host would do.

    `decisions` names the scalars that the host looks at to know what comes next.
    """
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
        "decisions": decisions(plan.root),
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


def _check_target(path: Path, model: ModelLike) -> None:
    if path.is_dir():
        raise InvalidInput(f"cannot write {path}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}; make it, or name another by -o")
    if not os.access(path.parent, os.W_OK):
        raise InvalidInput(
            f"cannot write {path}: no permission to write to the folder {path.parent}; name another by -o"
        )
    if isinstance(model, (str, PathLike)) and path.exists() and Path(model).exists() and path.samefile(model):
        raise InvalidInput(f"cannot write {path}: that is the model itself; name another file by -o")


def _checked_arches(arches: Sequence[str] | None, known: Mapping[str, Any]) -> tuple[str, ...]:
    names = DEFAULT_ARCHES if arches is None else [arches] if isinstance(arches, str) else arches
    if not names:
        raise InvalidInput("no arch is named; leave arches out for the usual ones")
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(known, key=lambda arch: (len(arch), arch)))
            raise InvalidInput(f"unknown arch {name!r}; known: {listed}; the PTX in every artifact serves newer GPUs")
    return tuple(dict.fromkeys(names))


def _checked_dims(dims: Mapping[str, DimSpec] | None) -> dict[str, DimSpec]:
    """Return `dims` with NumPy's and other integers made plain."""
    checked: dict[str, DimSpec] = {}
    for name, spec in (dims or {}).items():
        try:
            checked[name] = spec if isinstance(spec, str) else _plain(spec)
        except TypeError:
            raise InvalidInput(
                f"dims: {name!r} cannot be {spec!r}; expected a size, (min, max), (min, opt, max), a list of these, "
                "or an expression"
            ) from None
    return checked


def _plain(spec: Any) -> Any:
    return tuple(map(_plain, spec)) if isinstance(spec, (tuple, list)) else operator.index(spec)


def _check_verifiable() -> None:
    """Raise MissingDependency if what `verify` needs is not there, so that minutes of work are not lost."""
    from luminal_onnx.runtime.cpu.toolchain import toolchain

    try:
        with needs_compile_extra("checking against onnxruntime"):
            import onnxruntime  # noqa: F401 - only to see that it is there
        toolchain()
    except MissingDependency as missing:
        raise MissingDependency(f"{missing}, or compile without the check (--no-verify)") from missing


def _primary(targets: Sequence[str]) -> str:
    return "sm_90" if "sm_90" in targets else targets[0]


@dataclass(frozen=True)
class _Compiler:
    load: Callable
    search: Callable
    options: Callable
    lower: Callable
    join: Callable
    compile_sources: Callable
    write_artifact: Callable
    format_graph: Callable
    targets: Mapping[str, Any]


def _compiler() -> _Compiler:
    """Import the compiling parts, which need the `compile` extra, or say that it is missing."""
    with needs_compile_extra("compiling"):
        from luminal_onnx.codegen import compile_sources, join, lower
        from luminal_onnx.codegen.artifact import write_artifact
        from luminal_onnx.importer import load
        from luminal_onnx.ir.printer import format_graph
        from luminal_onnx.ir.search import SearchOptions, search
        from luminal_onnx.ir.target import TARGETS
    # The solver takes long to import, and reading the model leaves a core idle.
    threading.Thread(target=lambda: import_module("scipy.optimize")).start()
    return _Compiler(load, search, SearchOptions, lower, join, compile_sources, write_artifact, format_graph, TARGETS)
