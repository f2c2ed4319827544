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


def failures(
    road: Road, binding: Binding, randoms: int = 3, run: bool = True, check_kernels: bool = False
) -> Iterator[Failure]:
    """Yield what goes wrong for one binding: on the whole road, and in programs drawn at random, run by NumPy."""
    graph = road.graph
    expected, failed = _attempt("interpreter", lambda: expect(graph, binding.feeds, binding.dims))
    if failed:
        yield failed
        return
    if run:
        stage = "checked run" if check_kernels else "run"
        outputs, failed = _attempt(stage, lambda: road.run(binding.feeds, check_kernels))
        failed = failed or _difference(stage, graph, expected, outputs)
        if failed:
            yield failed
    for number in range(randoms):
        stage = f"random {number}"
        outputs, failed = _attempt(stage, partial(_random_outputs, road, number, binding))
        failed = failed or (outputs and _difference(stage, graph, expected, outputs))
        if failed:
            yield failed


def _random_outputs(road: Road, number: int, binding: Binding) -> list[np.ndarray]:
    """Return what a program drawn at random computes; nothing if the draw led into a cycle."""
    program = road.space.random(number)
    return run_program(program, binding.feeds, binding.dims) if program else []


def _difference(stage: str, graph: Graph, expected: list[Expected], outputs: list[np.ndarray]) -> Failure | None:
    for name, wanted, array in zip(graph.output_names, expected, outputs, strict=True):
        text = wanted.difference(array)
        if text:
            return Failure(stage, "difference", f"output {name!r} {text}")
    return None


def shrunk(graph: Graph, binding: Binding, failure: Failure) -> tuple[Graph, Binding]:
    """Return a small graph that fails as `graph` does."""
    stage = failure.stage.split()[0]

    def fails(smaller: Graph, feeds: Binding) -> bool:
        road, failed = search_for(smaller)
        if stage == "search":
            return failed is not None and failed.kind == failure.kind
        if road is None:
            return False
        randoms = 12 if stage == "random" else 0
        return any(
            found.stage.split()[0] == stage and found.kind == failure.kind
            for found in failures(road, feeds, randoms, stage in ("run", "checked"), stage == "checked")
        )

    return shrink(graph, binding, fails)


def told(case: Case, binding: Binding, failure: Failure, smaller: bool = True) -> str:
    """Return everything that is needed to see a failure again."""
    graph, feeds = shrunk(case.graph, binding, failure) if smaller else (case.graph, binding)
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
