"""Search: from a graph to the cheapest program that the rules can show to be equal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .cost import CostModel
from .egraph.candidates import Candidate, find_candidates
from .egraph.classes import read_classes
from .egraph.cuts import CutLimits
from .egraph.joined import settle_joined
from .egraph.saturate import Limits, SaturationReport, saturate
from .egraph.solve import Solution
from .egraph.space import ProgramSpace
from .graph import Graph
from .program import Kernel, LtKernel, Program, RegionKernel, SizeRead
from .target import Target, target


@dataclass(frozen=True)
class SearchOptions:
    """Bounds of a search. `memory_share` of the target's memory is the most that one temporary tensor may take."""

    limits: Limits = Limits()
    cuts: CutLimits = CutLimits()
    solver_seconds: float = 10.0
    memory_share: float = 0.25
    without: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


@dataclass
class SearchReport:
    """What the search did. `labels` names well-known compositions, by kernel number; `seconds` is by stage."""

    target: str
    saturation: SaturationReport
    candidates: int
    solution: Solution
    kernels: Counter[str]
    labels: dict[int, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """The estimated time of one run, in seconds."""
        return self.solution.cost

    @property
    def notes(self) -> list[str]:
        """What a user should know: limits that were met."""
        found = []
        if self.saturation.stop != "saturated":
            found.append(f"rewriting stopped at the limit on {self.saturation.stop}")
        if self.solution.status != "optimal":
            found.append(f"choosing kernels ran out of time: the choice is {self.solution.status}, not proven the best")
        return found


@dataclass
class SearchResult:
    """The chosen program, and how it was found."""
    program: Program
    report: SearchReport


class SearchSpace(ProgramSpace):
    """One saturated e-graph with its candidates, for as many programs as one likes."""

    def __init__(self, graph: Graph, target: Target, options: SearchOptions = SearchOptions()) -> None:
        self.target, self.options = target, options
        self.seconds: dict[str, float] = {}
        started = time.perf_counter()
        saturated = saturate(graph, options.limits, options.without, options.extra)
        classes = read_classes(saturated)
        self.seconds["saturate"] = time.perf_counter() - started
        started = time.perf_counter()
        costs = CostModel(target, {name: range_.opt for name, range_ in graph.ranges.items()})
        settle_joined(classes, costs)
        super().__init__(find_candidates(classes, costs, options.cuts, options.memory_share * target.memory))
        self.seconds["candidates"] = time.perf_counter() - started

    @property
    def saturation(self) -> SaturationReport:
        return self.classes.saturated.report

    def best(self) -> SearchResult:
        """Return the cheapest program and how it was found."""
        started = time.perf_counter()
        solution = self.cheapest(self.options.solver_seconds)
        program = self.program(solution.chosen)
        self.seconds["choose"] = time.perf_counter() - started
        report = SearchReport(
            target=self.target.name,
            saturation=self.saturation,
            candidates=len(self.candidates),
            solution=solution,
            kernels=Counter(kernel_kind(kernel) for kernel in program.kernels),
            labels=self.labels(solution.chosen),
            seconds=dict(self.seconds),
        )
        return SearchResult(program, report)

    def labels(self, chosen: Sequence[Candidate]) -> dict[int, str]:
        found = {number: self.assembler.label(candidate) for number, candidate in enumerate(chosen)}
        return {number: label for number, label in found.items() if label}


def search(graph: Graph, target: Target, options: SearchOptions = SearchOptions()) -> SearchResult:
    """Return the cheapest program for the graph on the target, by the roofline, and a report.

    UnsoundRewrite names the rule if two rewrites contradict each other.
    """
    return SearchSpace(graph, target, options).best()


def kernel_kind(kernel: Kernel) -> str:
    """Return what a kernel is, in one word: its schedule, "cublaslt", "scatter" or "size"."""
    if isinstance(kernel, RegionKernel):
        return kernel.schedule
    if isinstance(kernel, SizeRead):
        return "size"
    return "cublaslt" if isinstance(kernel, LtKernel) else "scatter"


__all__ = ["SearchOptions", "SearchReport", "SearchResult", "SearchSpace", "kernel_kind", "search", "target"]
