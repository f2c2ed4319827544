"""Saturation: rules run, state demands, Python answers, until nothing is new. Bounded, and reported."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ...plan.errors import UnsoundRewrite
from ..blueprint import JoinedWeight
from ..graph import Graph
from .answers import DEMANDS
from .engine import Engine, FactConflict, Row
from .handles import Handles
from .lift import Lifted, lift
from .rulebook import selected
from .siblings import join_siblings
from .spaces import check_spaces

# What the equal programs are called, attention, which is built on names, and library calls: they change no register.
_NAMES = "(seq (saturate (run recognised)) (saturate (run attention)) (saturate (run products)) (saturate (run facts)))"


_STEPS = 4  # iterations between two looks at the limits


@dataclass(frozen=True)
class Limits:
    """When saturation stops though it is not finished."""

    rounds: int = 40
    iterations: int = 60
    rows: int = 2_000_000
    seconds: float = 60.0


@dataclass
class SaturationReport:
    """What saturation did. `stop` is "saturated", or the limit that was met: "rounds", "rows" or "seconds"."""

    stop: str = "saturated"
    rounds: int = 0
    iterations: int = 0
    nodes: int = 0
    classes: int = 0
    demands: int = 0
    matches: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Saturated:
    """A saturated e-graph, read out of the engine, and what leads from it back to the graph.

    `joined` are weights that the graph does not have, by the numbers that they have as `In`.
    """

    graph: Graph
    handles: Handles
    lifted: Lifted
    rows: dict[str, list[Row]]
    report: SaturationReport
    joined: dict[int, JoinedWeight] = field(default_factory=dict)


def saturate(
    graph: Graph, limits: Limits = Limits(), without: Collection[str] = (), extra: Sequence[str] = ()
) -> Saturated:
    """Fill an e-graph from the graph and apply all rules but those named in `without`, and the `extra` ones.

    UnsoundRewrite names the rules by which two contradicting facts came into one class.
    """
    try:
        return attempt(graph, limits, without, extra)
    except FactConflict as conflict:
        from .culprits import culprits

        names = culprits(graph, limits, without, extra)
        raise UnsoundRewrite(
            f"graph {graph.name!r}: {conflict}. Rules that lead to it: {', '.join(names) or 'none, the lift alone'}. "
            "One of them equates two programs that differ"
        ) from None


def attempt(graph: Graph, limits: Limits, without: Collection[str] = (), extra: Sequence[str] = ()) -> Saturated:
    """Do the same, but let FactConflict through."""
    started = time.perf_counter()
    handles = Handles(graph.ranges)
    lifted = lift(graph, handles)
    engine = Engine()
    engine.declare(command.text for command in selected(without, extra))
    for relation, rows in lifted.rows.items():
        engine.insert(relation, rows)
    report = SaturationReport()
    watch = _Watch(limits, report, engine, started)
    counts = engine.run("(saturate (run lift))")
    answered: dict[str, set[tuple]] = {name: set() for name in DEMANDS}
    step = f"(repeat {_STEPS} (seq (run fuse) (run views) (run rows){' (run extra)' if extra else ''}))"
    joined: dict[int, JoinedWeight] | None = None
    while True:
        counts.add(engine.run("(saturate (run facts))"))
        changed = counts.updated
        for _ in range(0, limits.iterations, _STEPS):
            counts.add(engine.run(step))
            changed |= counts.updated
            if not counts.updated or watch.is_over():
                break
        counts.add(engine.run("(seq (run commute) (saturate (run facts)) (run matmul) (run matmul))"))
        changed |= counts.updated
        report.rounds += 1
        fresh = 0 if watch.is_over() else answer(engine, handles, answered)
        report.demands += fresh
        if not fresh and not changed:
            if joined is not None:
                break
            # Which products may be joined can only be said when all are known.
            counts.add(engine.run("(run siblings)"))
            joined = join_siblings(engine, handles, lifted)
            if not joined:
                break
            counts.add(engine.run("(seq (run siblings) (run siblings))"))  # the joined ones, then their levels
        if watch.is_over():
            break
    counts.add(engine.run(_NAMES))
    while answer(engine, handles, answered):
        counts.add(engine.run(_NAMES))
    report.iterations, report.matches = counts.iterations, counts.matches
    report.nodes = engine.size()
    rows = engine.read()
    engine.close()
    check_spaces(rows, handles)
    report.seconds = time.perf_counter() - started
    return Saturated(graph, handles, lifted, rows, report, joined or {})


def answer(engine: Engine, handles: Handles, answered: dict[str, set[tuple]]) -> int:
    """Answer every demand that has not been answered yet; return how many there were."""
    fresh = 0
    replies: dict[str, list[tuple]] = {}
    for relation, rows in engine.read(DEMANDS).items():
        for row in rows:
            demand = row[:-1]
            if demand in answered[relation]:
                continue
            answered[relation].add(demand)
            fresh += 1
            for name, *reply in DEMANDS[relation](handles, *demand):
                replies.setdefault(name, []).append(tuple(reply))
    for name, rows in replies.items():
        engine.insert(name, rows)
    return fresh


class _Watch:
    """Tells when a limit is met, and notes which in the report."""

    def __init__(self, limits: Limits, report: SaturationReport, engine: Engine, started: float) -> None:
        self.limits, self.report, self.engine, self.started = limits, report, engine, started

    def is_over(self) -> bool:
        if self.report.stop == "saturated":
            self.report.stop = self._limit_met()
        return self.report.stop != "saturated"

    def _limit_met(self) -> str:
        if self.report.rounds >= self.limits.rounds:
            return "rounds"
        if self.engine.size() > self.limits.rows:
            return "rows"
        return "seconds" if time.perf_counter() - self.started > self.limits.seconds else "saturated"
