"""Kernels that need sizes which are known only when the graph runs: what they wait for, and when sizes are read.

A kernel whose views, shapes or index expressions have such a symbol is launched after the kernel that computes its
value. For the choice of kernels that is one more tensor that it reads, so that no choice has a cycle through a size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..graph import symbols_in
from ..region import Region
from .classes import Classes

if TYPE_CHECKING:
    from .candidates import Candidate


class Waits:
    """Finds, for the kernels of one graph, the tensor classes of the sizes that they need."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self._of_region: dict[int, tuple[Region, frozenset[int]]] = {}

    def add(self, candidate: Candidate) -> Candidate | None:
        """Return the candidate with what it waits for; None if that is something that it writes itself."""
        wanted = self._wanted(candidate)
        if not wanted:
            return candidate
        first = min(map(self.classes.order, candidate.writes))
        if len(candidate.writes) > 1 and any(self._is_late(size, first) for size in wanted):
            return None
        return None if wanted.intersection(candidate.writes) else candidate.waiting_for(wanted)

    def _is_late(self, size: int, place: float) -> bool:
        return size not in self.classes.inputs and self.classes.order(size) >= place

    def _wanted(self, candidate: Candidate) -> frozenset[int]:
        if not self.classes.sizes:
            return frozenset()
        if candidate.kind == "region":
            region = candidate.region
            if id(region) not in self._of_region:
                self._of_region[id(region)] = region, self._sizes_in(
                    (*(vars(node) for node in region.nodes), *(operand.shape for operand in region.operands))
                )
            return self._of_region[id(region)][1]
        if candidate.kind == "lt":
            return self._sizes_in(tuple(candidate.matmul.sizes()))
        return self._sizes_in(tuple(map(self.classes.shape_of, (*candidate.writes, *candidate.operands))))

    def _sizes_in(self, things: object) -> frozenset[int]:
        names = symbols_in(things)
        return frozenset(tensor for name, tensor in self.classes.sizes.items() if name in names)


def rounds(
    ordered: Sequence[Candidate], sizes: dict[str, int], is_free: Callable[[int], bool]
) -> list[tuple[list[str], list[Candidate]]]:
    """Return the launches by rounds: the sizes that are read at the start of each, and its kernels in order.

    There are as few rounds as can be, and in each a kernel is launched as early as can be: the host waits once a round.
    """
    made: dict[int, int] = {}  # the round that writes a tensor

    def read_in(tensor: int) -> int:
        return 0 if is_free(tensor) else made[tensor] + 1

    found: list[tuple[list[str], list[Candidate]]] = [([], [])]
    for candidate in ordered:
        own = [made[read] for read in candidate.operands if not is_free(read)]
        place = max([0, *own, *map(read_in, candidate.waits)])
        made.update(dict.fromkeys(candidate.writes, place))
        found.extend(([], []) for _ in range(place + 1 - len(found)))
        found[place][1].append(candidate)
    for name, tensor in sizes.items():
        place = read_in(tensor)
        found.extend(([], []) for _ in range(place + 1 - len(found)))
        found[place][0].append(name)
    return found
