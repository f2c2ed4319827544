"""Finding the rules by which something went wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ..graph import Graph
from .engine import FactConflict
from .rulebook import selected
from .saturate import Limits, attempt

# What is not under suspicion: the lift states the graph itself, the facts are what contradicts.
_TRUSTED = ("lift", "facts")


def culprits(
    graph: Graph, limits: Limits, without: Collection[str] = (), extra: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a smallest set of rules that still leads to contradicting facts: dropping any one of them cures it.

    All of the search takes no longer than one saturation may. What is left when that time is over is returned, and may
    hold rules that could be spared.
    """
    end = time.perf_counter() + limits.seconds

    def contradicts(dropped: Collection[str]) -> bool:
        left = end - time.perf_counter()
        if left <= 0:
            return False
        try:
            attempt(graph, replace(limits, seconds=left), dropped, extra)
        except FactConflict:
            return True
        return False

    return smallest_set(contradicts, without, extra, lambda: time.perf_counter() >= end)


def smallest_set(
    fails: Callable[[Collection[str]], bool],
    without: Collection[str] = (),
    extra: Sequence[str] = (),
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[str, ...]:
    """Return rules that make `fails` true all together, none of which can be spared, unless `is_over` says to stop.

    `fails(dropped)` says whether things still go wrong without the rules named. Halves of the suspects are dropped,
    then quarters and so on, as long as it does.
    """
    suspects = [
        command.rule for command in selected(without, extra) if command.rule and command.rule_set not in _TRUSTED
    ]
    guilty, size = suspects, max(1, len(suspects) // 2)
    while True:
        position = 0
        while position < len(guilty):
            if is_over():
                return tuple(guilty)
            rest = guilty[:position] + guilty[position + size :]
            if fails(set(suspects).difference(rest) | set(without)):
                guilty = rest
            else:
                position += size
        if size == 1:
            return tuple(guilty)
        size = max(1, size // 2)
