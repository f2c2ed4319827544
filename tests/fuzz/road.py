"""The whole road for many small graphs: search, lower, compile for the host all at once, run through a session."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from luminal_onnx.codegen import lower
from luminal_onnx.codegen.artifact import write_artifact
from luminal_onnx.codegen.lowering import Lowered
from luminal_onnx.ir.graph import Graph
from luminal_onnx.ir.passes.fold import fold_constants
from luminal_onnx.ir.program import Program
from luminal_onnx.ir.search import SearchOptions, SearchSpace, target
from luminal_onnx.plan.records import KernelStep
from luminal_onnx.runtime.artifact import Artifact
from luminal_onnx.runtime.cpu import compile_many
from luminal_onnx.runtime.session import InferenceSession

TARGET = target("sm_90")


@dataclass
class Road:
    """One graph on its way: everything that may be selected for it, and what was."""

    graph: Graph
    space: SearchSpace
    program: Program
    lowered: Lowered
    _drawn: dict[int, Road | None] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, options: SearchOptions = SearchOptions()) -> Road:
        space = SearchSpace(fold_constants(graph), TARGET, options)
        program = space.best().program
        return cls(graph, space, program, lower(program, TARGET.name))

    def drawn(self, seed: int) -> Road | None:
        """Return the road of a program drawn at random; None if the draw led into a cycle."""
        if seed not in self._drawn:
            program = self.space.random(seed)
            road = program and Road(self.graph, self.space, program, lower(program, TARGET.name))
            self._drawn[seed] = road
        return self._drawn[seed]

    def session(self, check_kernels: bool = False) -> InferenceSession:
        """Return a session on the CPU; the artifact goes through a file and back."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.luminal"
            write_artifact(
                path,
                manifest_info={},
                plans={TARGET.name: self.lowered.plan},
                cubins={},
                ptx={},
                sources=self.lowered.sources,
                weights=self.lowered.weights,
            )
            artifact = Artifact.open(path.read_bytes())
        return InferenceSession(artifact, device="cpu", check_kernels=check_kernels)

    def run(self, feeds: dict[str, np.ndarray], check_kernels: bool = False) -> list[np.ndarray]:
        with self.session(check_kernels) as session:
            return session.run(None, feeds)


def compile_together(roads: Iterable[Road], check_kernels: bool = False) -> int:
    """Compile the kernels of all roads for the host, so that sessions find them in the cache; return how many."""
    wanted = {}
    for road in roads:
        for step in road.lowered.plan.steps():
            if isinstance(step, KernelStep):
                wanted[step.kernel.source, step.kernel.entry] = road.lowered.sources[step.kernel.source]
    compile_many([(text, entry) for (_, entry), text in wanted.items()], check=check_kernels)
    return len(wanted)
