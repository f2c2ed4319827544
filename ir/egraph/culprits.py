"""Finding the rules by which a contradiction came about."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..graph import Graph
from .engine import FactConflict
from .rulebook import Command, selected
from .saturate import Limits, attempt

# What is not under suspicion: the lift states the graph itself, the facts are what contradicts.
_TRUSTED = ("lift", "facts")


def culprits(
    graph: Graph, limits: Limits, without: Collection[str] = (), extra: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a smallest set of rules that still leads to contradicting facts: dropping any one of them cures it.

    Halves, then quarters and so on are dropped as long as the contradiction stays.
    """
    suspects = [command.rule for command in selected(without, extra) if _is_suspect(command)]

    def contradicts(kept: list[str]) -> bool:
        dropped = set(suspects).difference(kept) | set(without)
        try:
            attempt(graph, limits, dropped, extra).engine.close()
        except FactConflict:
            return True
        return False

    guilty, size = suspects, max(1, len(suspects) // 2)
    while True:
        position = 0
        while position < len(guilty):
            rest = guilty[:position] + guilty[position + size :]
            if contradicts(rest):
                guilty = rest
            else:
                position += size
        if size == 1:
            return tuple(guilty)
        size = max(1, size // 2)


def _is_suspect(command: Command) -> bool:
    return bool(command.rule) and command.rule_set not in _TRUSTED
