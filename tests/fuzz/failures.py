"""What may go wrong with a case on its way, found, shrunk and printed so that it can be built again."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from luminal_onnx.ir.graph import Graph
from luminal_onnx.ir.printer import constants_of, format_graph
from luminal_onnx.ir.program_reference import run_program

from .generate import Binding, Case
from .oracle import Expected, expect
from .road import Road
from .shrink import shrink

SECONDS = 30  # that one graph may take in one stage


@dataclass(frozen=True)
class Failure:
    """Where it went wrong (`stage`), what sort of failure it was (`kind`), and what is said of it."""

    stage: str
    kind: str
    text: str


class TookTooLong(Exception):
    """A stage did not end."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TookTooLong in the body after so many seconds (main thread only)."""

    def ring(*_: object) -> None:
        raise TookTooLong(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _attempt(stage: str, act: Callable) -> tuple[object, Failure | None]:
    try:
        with limited(SECONDS):
            return act(), None
    except Exception as error:  # whatever a stage raises is the finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rsplit('/', 1)[-1]}:{last.lineno}"
        return None, Failure(stage, f"{type(error).__name__} at {where}", f"{type(error).__name__} at {where}: {error}")


def search_for(graph: Graph) -> tuple[Road | None, Failure | None]:
    """Return the road of a graph, or why there is none."""
    return _attempt("search", lambda: Road.of(graph))


@dataclass(frozen=True)
class Ways:
    """In how many ways a graph is run.

    The program that the search chose goes the whole road if `chosen`, and so do `drawn` ones, drawn at random; `randoms`
    of those are run by NumPy. Kernels may be run under the checker.
    """

    chosen: bool = True
    randoms: int = 3
    drawn: int = 0
    check_kernels: bool = False

    def stages(self, road: Road, binding: Binding) -> Iterator[tuple[str, Callable[[], list[np.ndarray]]]]:
        """Yield each way's name and what computes the outputs; those are none if the draw led into a cycle."""
        if self.chosen:
            yield "chosen", lambda: road.run(binding.feeds, self.check_kernels)
        for number in range(self.drawn):
            yield f"drawn {number}", partial(_drawn_outputs, road, number, binding, self.check_kernels)
        for number in range(self.randoms):
            yield f"random {number}", partial(_random_outputs, road, number, binding)


def failures(road: Road, binding: Binding, ways: Ways = Ways()) -> Iterator[Failure]:
    """Yield what goes wrong for one binding."""
    expected, failed = _attempt("interpreter", lambda: expect(road.graph, binding.feeds, binding.dims))
    if failed:
        yield failed
        return
    for stage, compute in ways.stages(road, binding):
        outputs, failed = _attempt(stage, compute)
        failed = failed or (outputs and _difference(stage, road.graph, expected, outputs))
        if failed:
            yield failed


def _drawn_outputs(road: Road, number: int, binding: Binding, check_kernels: bool) -> list[np.ndarray]:
    drawn = road.drawn(number)
    return drawn.run(binding.feeds, check_kernels) if drawn else []


def _random_outputs(road: Road, number: int, binding: Binding) -> list[np.ndarray]:
    program = road.space.random(number)
    return run_program(program, binding.feeds, binding.dims) if program else []


def _difference(stage: str, graph: Graph, expected: list[Expected], outputs: list[np.ndarray]) -> Failure | None:
    for name, wanted, array in zip(graph.output_names, expected, outputs, strict=True):
        text = wanted.difference(array)
        if text:
            return Failure(stage, "difference", f"output {name!r} {text}")
    return None


def shrunk(graph: Graph, binding: Binding, failure: Failure, ways: Ways = Ways()) -> tuple[Graph, Binding]:
    """Return a small graph that fails as `graph` does."""
    stage = failure.stage.split()[0]
    ways = Ways(
        stage == "chosen",
        randoms=12 if stage == "random" else 0,
        drawn=6 if stage == "drawn" else 0,
        check_kernels=ways.check_kernels,
    )

    def fails(smaller: Graph, feeds: Binding) -> bool:
        road, failed = search_for(smaller)
        if road is None or stage == "search":
            found = [failed] if failed else []
        else:
            found = failures(road, feeds, ways)
        return any(one.stage.split()[0] == stage and one.kind == failure.kind for one in found)

    return shrink(graph, binding, fails)


def told(case: Case, binding: Binding, failure: Failure, ways: Ways = Ways(), smaller: bool = True) -> str:
    """Return everything that is needed to see a failure again."""
    graph, feeds = shrunk(case.graph, binding, failure, ways) if smaller else (case.graph, binding)
    return f"seed {case.seed}, {failure.stage}: {failure.text}\n{as_text(graph, feeds)}"


def as_text(graph: Graph, binding: Binding) -> str:
    """Return a graph, its constants and its feeds; `ir.printer.parse_graph` reads it back."""
    lines = [format_graph(graph)]
    lines += [f"{name} = {_array_text(array)}" for name, array in constants_of(graph).items()]
    lines += [f"feed {name} = {_array_text(array)}" for name, array in binding.feeds.items()]
    return "\n".join([*lines, f"dims {dict(binding.dims)}"])


def _array_text(array: np.ndarray) -> str:
    shown = np.array2string(array.reshape(-1), separator=", ", threshold=200, max_line_width=10**6)
    return f"np.array({shown}, {array.dtype.name!r}).reshape({list(array.shape)})"
