"""Compile for the CPU road alone: everything but NVRTC, whose output the host does not need; each stage is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from luminal_onnx.codegen import lower
from luminal_onnx.codegen.artifact import write_artifact
from luminal_onnx.importer import load
from luminal_onnx.ir.search import search, target
from luminal_onnx.runtime.artifact import Artifact

ARCH = "sm_90"


class Stages:
    """Wall seconds by stage; `tell` hears the name of each when it begins."""

    def __init__(self, tell: Callable[[str], None] = lambda stage: None) -> None:
        self.seconds: dict[str, float] = {}
        self._tell = tell

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._tell(name)
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin


def compile_for_cpu(
    path: Path,
    model: str | onnx.ModelProto,
    stages: Stages,
    dims: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Artifact, list[str]]:
    """Write an artifact without machine code under `path`; return it and the notes of the importer and the search."""
    with stages.stage("import"):
        imported = load(model, dims=dims, shapes=shapes)
    with stages.stage("search"):
        found = search(imported.graph, target(ARCH))
    with stages.stage("codegen"):
        lowered = lower(found.program, ARCH)
    with stages.stage("write"):
        write_artifact(
            path,
            manifest_info={},
            plans={ARCH: lowered.plan},
            cubins={},
            ptx={},
            sources=lowered.sources,
            weights=lowered.weights,
        )
        artifact = Artifact.open(path)
    return artifact, [*imported.summary.warnings, *found.report.notes]
