"""Search: from a graph to the cheapest program that the rules can show to be equal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .cost import CostModel
from .egraph.assemble import Assembler
from .egraph.candidates import Candidate, find_candidates
from .egraph.classes import read_classes
from .egraph.cuts import CutLimits
from .egraph.joined import settle_joined
from .egraph.rulebook import RULES_THAT_DROP_NAN
from .egraph.saturate import Limits, SaturationReport, saturate
from .egraph.solve import Solution
from .egraph.space import ProgramSpace
from .graph import Graph
from .joining import ProgramJoin
from .parts import Part, split
from .program import Kernel, LtKernel, Program, RegionKernel, SizeRead
from .target import Target, target


@dataclass(frozen=True)
class SearchOptions:
    """Bounds of a search. `memory_share` of the target's memory is the most that one temporary tensor may take.

    `strict_nan` keeps out library calls that turn NaN into 0 where the graph does not. Rules named in `without` do not
    run, `extra` ones do.
    """

    limits: Limits = Limits()
    cuts: CutLimits = CutLimits()
    solver_seconds: float = 10.0
    memory_share: float = 0.25
    strict_nan: bool = False
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
        without = (*options.without, *(RULES_THAT_DROP_NAN if options.strict_nan else ()))
        saturated = saturate(graph, options.limits, without, options.extra)
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
        solution = self.choose()
        program = self.program(solution.chosen)
        return SearchResult(program, self.report(solution, program.kernels))

    def choose(self) -> Solution:
        """Return the cheapest set of kernels."""
        started = time.perf_counter()
        solution = self.cheapest(self.options.solver_seconds)
        self.seconds["choose"] = time.perf_counter() - started
        return solution

    def report(self, solution: Solution, kernels: Iterable[Kernel]) -> SearchReport:
        """Return how a program of these kernels was found."""
        return SearchReport(
            target=self.target.name,
            saturation=self.saturation,
            candidates=len(self.candidates),
            solution=solution,
            kernels=Counter(map(kernel_kind, kernels)),
            labels=self.labels(solution.chosen),
            seconds=dict(self.seconds),
        )

    def labels(self, chosen: Sequence[Candidate]) -> dict[int, str]:
        found = {number: self.assembler.label(candidate) for number, candidate in enumerate(chosen)}
        return {number: label for number, label in found.items() if label}


def search(graph: Graph, target: Target, options: SearchOptions = SearchOptions()) -> SearchResult:
    """Return the cheapest program for the graph on the target, by the roofline, and a report.

    Where the graph repeats itself, each distinct part is searched once, and the parts' programs are joined.
    UnsoundRewrite names the rule if two rewrites contradict each other.
    """
    started = time.perf_counter()
    parts = split(graph)
    if len(parts) == 1:
        return SearchSpace(graph, target, options).best()
    seconds = Counter({"split": time.perf_counter() - started})
    found: dict[Hashable, _Searched] = {}
    whole = ProgramJoin(graph)
    labels: dict[int, str] = {}
    arrays: dict[tuple, np.ndarray] = {}
    for part in parts:
        if part.signature not in found:
            found[part.signature] = _Searched(graph, part, target, options)
        searched = found[part.signature]
        labels.update({whole.kernels + at: label for at, label in searched.labels.items()})
        started = time.perf_counter()
        whole.add(searched.program(part, arrays), part.inputs, part.outputs)
        seconds["join"] += time.perf_counter() - started
    program = whole.program()
    for searched in found.values():
        seconds.update(searched.space.seconds)
    cost = sum(found[part.signature].solution.cost for part in parts)
    report = SearchReport(
        target=target.name,
        saturation=_joined_saturation([searched.space.saturation for searched in found.values()]),
        candidates=sum(len(searched.space.candidates) for searched in found.values()),
        solution=_joined_solution([searched.solution for searched in found.values()], cost),
        kernels=Counter(map(kernel_kind, program.kernels)),
        labels=labels,
        seconds=dict(seconds),
    )
    return SearchResult(program, report)


class _Searched:
    """The best choice for one part, which serves every part that does the same with other weights."""

    def __init__(self, whole: Graph, part: Part, target: Target, options: SearchOptions) -> None:
        graph, stands = part.graph(whole)
        self.space = SearchSpace(graph, target, options)
        self.solution = self.space.choose()
        self.labels = self.space.labels(self.solution.chosen)
        place = {id(node): number for number, node in enumerate(stands)}
        self._order = [place[id(node)] for node in self.space.assembler.lifted.nodes]

    def program(self, part: Part, arrays: dict[tuple, np.ndarray]) -> Program:
        """Return the program over a part's weights; `arrays` are joined weights that parts share."""
        own = [*(value.node for value in part.inputs), *part.nodes]
        nodes = [own[place] for place in self._order]
        return Assembler(self.space.classes, nodes, arrays).program(self.solution.chosen)


def _joined_saturation(reports: Sequence[SaturationReport]) -> SaturationReport:
    stops = [report.stop for report in reports if report.stop != "saturated"]
    matches: Counter[str] = Counter()
    for report in reports:
        matches.update(report.matches)
    return SaturationReport(
        stop=stops[0] if stops else "saturated",
        rounds=max(report.rounds for report in reports),
        iterations=sum(report.iterations for report in reports),
        nodes=sum(report.nodes for report in reports),
        classes=sum(report.classes for report in reports),
        demands=sum(report.demands for report in reports),
        matches=dict(matches),
        seconds=sum(report.seconds for report in reports),
    )


def _joined_solution(solutions: Sequence[Solution], cost: float) -> Solution:
    return Solution(
        chosen=[],
        cost=cost,
        status=max((s.status for s in solutions), key=("optimal", "feasible", "greedy").index),
        parts=sum(s.parts for s in solutions),
        distinct_parts=sum(s.distinct_parts for s in solutions),
        largest_part=max(s.largest_part for s in solutions),
        seconds=sum(s.seconds for s in solutions),
    )


def kernel_kind(kernel: Kernel) -> str:
    """Return what a kernel is, in one word: its schedule, "cublaslt", "scatter" or "size"."""
    if isinstance(kernel, RegionKernel):
        return kernel.schedule
    if isinstance(kernel, SizeRead):
        return "size"
    return "cublaslt" if isinstance(kernel, LtKernel) else "scatter"


__all__ = ["SearchOptions", "SearchReport", "SearchResult", "SearchSpace", "kernel_kind", "search", "target"]
