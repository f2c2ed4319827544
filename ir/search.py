"""Search: from a graph to the cheapest program that the rules can show to be equal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..plan.dims import evaluate
from .control import BRANCH, bodies, loop_of
from .cost import CostModel
from .egraph.candidates import Candidate, find_candidates
from .egraph.classes import read_classes
from .egraph.cuts import CutLimits
from .egraph.joined import settle_joined
from .egraph.rulebook import RULES_THAT_DROP_NAN
from .egraph.saturate import Limits, SaturationReport, saturate
from .egraph.solve import Solution
from .egraph.space import ProgramSpace
from .graph import Graph, Node
from .joining import ProgramJoin
from .parts import Part, split, whole_part
from .program import BranchKernel, Kernel, LoopKernel, LtKernel, Program, RegionKernel, SizeRead
from .target import Target, target

READ_BACK_SECONDS = 15e-6  # from the end of the kernel that decides to the start of the first one that depends on it
USUAL_TRIPS = 16  # of a loop that data ends


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
        return self.result(self.choose())

    def result(self, solution: Solution) -> SearchResult:
        """Return the program of a choice, and how it was found."""
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


Choose = Callable[[SearchSpace], Solution]


def search(
    graph: Graph, target: Target, options: SearchOptions = SearchOptions(), choose: Choose | None = None
) -> SearchResult:
    """Return the cheapest program for the graph on the target, by the roofline, and a report.

    The graph is cut at loops and branches, whose bodies are searched on their own, and where it repeats itself. Each
    distinct part is searched once, and the parts' programs are joined. `choose` picks kernels otherwise than by cost.
    UnsoundRewrite names the rule if two rewrites contradict each other.
    """
    return _Search(target, options, choose or SearchSpace.choose).result(graph)


class _Search:
    """The search of one graph: its parts, and the bodies of its loops and branches. Equal parts are searched once."""

    def __init__(self, target: Target, options: SearchOptions, choose: Choose) -> None:
        self.target, self.options, self.choose = target, options, choose
        self.found: dict[Hashable, _Searched] = {}
        self.arrays: dict[tuple, np.ndarray] = {}
        self.seconds: Counter[str] = Counter()
        self.labels: dict[int, str] = {}

    def result(self, graph: Graph) -> SearchResult:
        started = time.perf_counter()
        pieces = split(graph)
        if len(pieces) == 1 and isinstance(pieces[0], Part):
            space = SearchSpace(graph, self.target, self.options)
            return space.result(self.choose(space))
        self.seconds["split"] = time.perf_counter() - started
        program, cost = self.joined(graph, pieces, self.labels)
        for searched in self.found.values():
            self.seconds.update(searched.space.seconds)
        all_found = list(self.found.values())
        report = SearchReport(
            target=self.target.name,
            saturation=_joined_saturation([searched.space.saturation for searched in all_found]),
            candidates=sum(len(searched.space.candidates) for searched in all_found),
            solution=_joined_solution([searched.solution for searched in all_found], cost),
            kernels=Counter(map(kernel_kind, program.all_kernels())),
            labels=self.labels,
            seconds=dict(self.seconds),
        )
        return SearchResult(program, report)

    def joined(self, graph: Graph, pieces: Sequence[Part | Node], labels: dict[int, str]) -> tuple[Program, float]:
        """Return the program that the best ones of the pieces make, and its cost."""
        whole, cost = ProgramJoin(graph), 0.0
        for piece in pieces:
            if isinstance(piece, Node):
                cost += self.control(whole, graph, piece)
            else:
                searched = self.searched(graph, piece)
                labels.update({whole.kernels + at: label for at, label in searched.labels.items()})
                started = time.perf_counter()
                program = searched.blueprint.program(graph.name, piece.stand_ins, graph.ranges, self.arrays)
                whole.add(program, piece.inputs, piece.outputs)
                self.seconds["join"] += time.perf_counter() - started
                cost += searched.solution.cost
            whole.read_sizes()
        return whole.program(), cost

    def searched(self, graph: Graph, part: Part) -> _Searched:
        key = (part.signature, tuple(sorted(graph.ranges.items())))
        if key not in self.found:
            self.found[key] = _Searched(graph, part, self.target, self.options, self.choose)
        return self.found[key]

    def control(self, whole: ProgramJoin, graph: Graph, node: Node) -> float:
        """Append a loop or branch, its bodies searched, and return its cost: of all trips, or of the dearer branch."""
        found = []
        for body in bodies(node):
            body = replace(body, ranges={name: graph.ranges.get(name, known) for name, known in body.ranges.items()})
            pieces = split(body)
            if len(pieces) == 1 and isinstance(pieces[0], Part):
                pieces = [whole_part(body)] if pieces[0].nodes else []
            found.append(self.joined(body, pieces, {}))
        whole.add_control(node, [program for program, _ in found])
        if node.op == BRANCH:
            return READ_BACK_SECONDS + max(cost for _, cost in found)
        loop, ((_, cost),) = loop_of(node), found
        usual = {name: known.opt for name, known in graph.ranges.items()}
        trips = USUAL_TRIPS if loop.conditional else int(evaluate(loop.trips, usual))
        return trips * (cost + loop.conditional * READ_BACK_SECONDS)


class _Searched:
    """The best choice for one part, which serves every part that does the same with other weights."""

    def __init__(self, whole: Graph, part: Part, target: Target, options: SearchOptions, choose: Choose) -> None:
        graph, stands = part.graph(whole)
        self.space = SearchSpace(graph, target, options)
        self.solution = choose(self.space)
        self.labels = self.space.labels(self.solution.chosen)
        place = {id(node): number for number, node in enumerate(stands)}
        positions = [place[id(node)] for node in self.space.assembler.lifted.nodes]
        self.blueprint = self.space.assembler.blueprint(self.solution.chosen).at(positions)


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
    """Return what a kernel is, in one word: its schedule, "cublaslt", "scatter", "size", "loop" or "branch"."""
    if isinstance(kernel, RegionKernel):
        return kernel.schedule
    if isinstance(kernel, SizeRead):
        return "size"
    if isinstance(kernel, (LoopKernel, BranchKernel)):
        return "loop" if isinstance(kernel, LoopKernel) else "branch"
    return "cublaslt" if isinstance(kernel, LtKernel) else "scatter"


__all__ = ["SearchOptions", "SearchReport", "SearchResult", "SearchSpace", "kernel_kind", "search", "target"]
