"""Batches of seeds: the case of each goes the whole road, kernels are compiled together, failures are shrunk and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from luminal_onnx.ir.legality import check

from .failures import Ways, failures, search_for, told
from .generate import Case, generate
from .onnx_failures import imported, meaning_failures, told_model
from .onnx_generate import generate_onnx
from .road import Road, compile_together

Start = Callable[[int], tuple[Case | None, str | None]]


def graph_case(seed: int) -> tuple[Case | None, str | None]:
    """Return the generated graph of a seed."""
    case = generate(seed)
    check(case.graph)
    return case, None


def model_case(seed: int) -> tuple[Case | None, str | None]:
    """Return the graph that the generated ONNX model of a seed becomes, or what is wrong with it."""
    case = generate_onnx(seed)
    model, failure = imported(case)
    failure = failure or next(meaning_failures(case, model), None)
    if failure:
        return None, told_model(case, failure)
    return Case(seed, model.graph, model.bindings), None


def failures_of(start: Start, seeds: Iterable[int], ways: Ways) -> Iterator[str]:
    """Yield what goes wrong with the cases of these seeds, at most one failure a case."""
    found: list[tuple[Case, Road]] = []
    for seed in seeds:
        case, text = start(seed)
        if text is not None:
            yield text
            continue
        road, failure = search_for(case.graph)
        if failure:
            yield told(case, case.bindings[0], failure)
        else:
            found.append((case, road))
    _compile([road for _, road in found], ways)
    for case, road in found:
        first = next(((b, failure) for b in case.bindings for failure in failures(road, b, ways)), None)
        if first:
            yield told(case, *first, ways)


def _compile(roads: list[Road], ways: Ways) -> None:
    """Compile what will be run. What cannot be is found again, and told, when it is run."""
    wanted = list(roads) if ways.chosen else []
    for road in roads:
        for number in range(ways.drawn):
            try:
                drawn = road.drawn(number)
            except Exception:
                continue
            wanted += [drawn] if drawn else []
    try:
        compile_together(wanted, ways.check_kernels)
    except Exception:
        pass
