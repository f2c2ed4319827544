"""Shrinking the choice problem before it is solved, without losing its optimum.

A tensor that only one other tensor's kernels may read is no decision of its own: whoever writes the reader either does
without it or comes together with one of its writers. So it is *folded* into the reader: kernels become bundles of
kernels. Bundles that write the same, read no less and cost no less than another are dropped. What remains are the
tensors that several others want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

MOST_MORE = 60  # a tensor stays a decision where folding it would make so many more bundles
MOST_JOINED = 3000


class Choice(Protocol):
    """What the solver looks at: tensors written and read, and a cost."""

    writes: tuple[int, ...]
    reads: tuple[int, ...]
    cost: float


@dataclass(frozen=True, eq=False)
class Bundle:
    """Choices that are taken together.

    `writes` and `reads` are open tensors, seen from outside. `hidden` are tensors that are written for no other bundle;
    like those in `writes`, no two bundles may write one. `mask` holds `reads` as bits.
    """

    writes: frozenset[int]
    reads: frozenset[int]
    cost: float
    members: tuple[Choice, ...]
    mask: int
    hidden: frozenset[int] = frozenset()


def condense(
    choices: Sequence[Choice], roots: Iterable[int], free: Callable[[int], bool], order: Callable[[int], float]
) -> list[Bundle]:
    """Return bundles from which a cheapest solution can be put together as well as from the choices."""
    folding = _Folding(set(roots), order)
    for choice in choices:
        folding.start(choice, frozenset(read for read in choice.reads if not free(read)))
    for tensor in list(folding.writers):
        folding.prune(tensor)
    tensors = sorted(folding.writers, key=order, reverse=True)
    while True:
        before = len(tensors)
        tensors = [tensor for tensor in tensors if not folding.fold(tensor)]
        if len(tensors) == before:
            return folding.bundles()


class _Folding:
    def __init__(self, roots: set[int], order: Callable[[int], float]) -> None:
        self.roots = roots
        self.order = order
        # Whether every choice reads only what comes before all that it writes: then there are no cycles to beware of.
        self.is_ordered = True
        self.bits: dict[int, int] = {}
        self.writers: dict[int, dict[int, Bundle]] = {}
        self.readers: dict[int, dict[int, Bundle]] = {}
        self.hiders: dict[int, dict[int, Bundle]] = {}

    def start(self, choice: Choice, reads: frozenset[int]) -> None:
        last = max(map(self.order, reads), default=float("-inf"))
        self.is_ordered &= last < min(map(self.order, choice.writes))
        self.add(Bundle(frozenset(choice.writes), reads, choice.cost, (choice,), self.mask(reads)))

    def mask(self, tensors: frozenset[int]) -> int:
        mask = 0
        for tensor in tensors:
            mask |= 1 << self.bits.setdefault(tensor, len(self.bits))
        return mask

    def add(self, bundle: Bundle) -> None:
        for tensor in bundle.writes:
            self.writers.setdefault(tensor, {})[id(bundle)] = bundle
        for tensor in bundle.reads:
            self.readers.setdefault(tensor, {})[id(bundle)] = bundle
        for tensor in bundle.hidden:
            self.hiders.setdefault(tensor, {})[id(bundle)] = bundle

    def remove(self, bundle: Bundle) -> None:
        for tensor in bundle.writes:
            del self.writers[tensor][id(bundle)]
        for tensor in bundle.reads:
            del self.readers[tensor][id(bundle)]
        for tensor in bundle.hidden:
            del self.hiders[tensor][id(bundle)]

    def bundles(self) -> list[Bundle]:
        found: dict[int, Bundle] = {}
        for writers in self.writers.values():
            found.update(writers)
        return list(found.values())

    def prune(self, tensor: int) -> None:
        for bundle in dominated(self.writers[tensor].values()):
            self.remove(bundle)

    def fold(self, tensor: int) -> bool:
        """Fold the tensor into its only reader, or drop it where nobody reads it; False if it must stay."""
        if tensor in self.roots:
            return False
        writers = list(self.writers[tensor].values())
        readers = list(self.readers.get(tensor, {}).values())
        alone = all(len(writer.writes) == 1 for writer in writers)
        if not (alone or self.is_ordered) or len(readers) * len(writers) > MOST_JOINED:
            return False
        shared = frozenset.intersection(*(reader.writes for reader in readers)) if readers else frozenset()
        if readers and not shared:
            return False
        made = [bundle for writer in writers for bundle in self._without(writer, tensor)]
        for writer in writers:
            if writer.writes.isdisjoint(shared):
                for reader in readers:
                    joined = self._joined(reader, writer, tensor, alone)
                    if joined is None:
                        return False
                    made.extend(joined)
        dropped = {id(bundle) for bundle in dominated(made)}
        made = [bundle for bundle in made if id(bundle) not in dropped]
        if len(made) > len(readers) + len(writers) + MOST_MORE:
            return False
        for bundle in {id(bundle): bundle for bundle in readers + writers}.values():
            self.remove(bundle)
        for bundle in made:
            self.add(bundle)
        for hidden in {hidden for bundle in made for hidden in bundle.hidden}:
            self._forget(hidden)
        for other in {other for bundle in made for other in bundle.writes}:
            self.prune(other)
        return True

    def _forget(self, tensor: int) -> None:
        """Stop watching a hidden tensor where no two of its writers could be taken anyway."""
        hiders = list(self.hiders[tensor].values())
        if hiders and frozenset.intersection(*(bundle.writes for bundle in hiders)):
            for bundle in hiders:
                self.remove(bundle)
                self.add(replace(bundle, hidden=bundle.hidden - {tensor}))

    def _without(self, writer: Bundle, tensor: int) -> list[Bundle]:
        """Return the writer for the sake of what else it writes, if it does."""
        writes = writer.writes - {tensor}
        if not writes:
            return []
        return [Bundle(writes, writer.reads, writer.cost, writer.members, writer.mask, writer.hidden | {tensor})]

    def _joined(self, reader: Bundle, writer: Bundle, tensor: int, alone: bool) -> list[Bundle] | None:
        """Return both together, [] if they cannot be; None if the tensor must not be folded for their sake.

        Together they are taken as one, so nothing that starts from the writer's other tensors may be what the reader
        waits for.
        """
        if not writer.reads.isdisjoint(reader.writes):
            return []
        others = writer.writes - {tensor}
        if not (reader.writes | reader.hidden).isdisjoint(others | writer.hidden):
            return []
        outside = reader.reads - writer.writes
        if others and outside and max(map(self.order, outside)) > min(map(self.order, others)):
            return None
        reads = outside | writer.reads
        hidden = reader.hidden | writer.hidden | (frozenset() if alone else {tensor})
        return [
            Bundle(
                reader.writes | others, reads, reader.cost + writer.cost, reader.members + writer.members,
                self.mask(reads), hidden,
            )
        ]


def dominated(bundles: Iterable[Bundle]) -> list[Bundle]:
    """Return those to which another is never worse: it writes the same, reads and hides no more, costs no more."""
    groups: dict[frozenset[int], list[Bundle]] = {}
    for bundle in bundles:
        groups.setdefault(bundle.writes, []).append(bundle)
    found: list[Bundle] = []
    for group in groups.values():
        kept: list[Bundle] = []
        for bundle in sorted(group, key=_worth):
            others = ~bundle.mask
            if any(not better.mask & others and better.hidden <= bundle.hidden for better in kept):
                found.append(bundle)
            else:
                kept.append(bundle)
    return found


def _worth(bundle: Bundle) -> tuple:
    return (bundle.cost, len(bundle.reads), len(bundle.hidden), len(bundle.members))


def members(bundles: Sequence[Bundle]) -> list[Choice]:
    """Return the choices in the bundles."""
    return [choice for bundle in bundles for choice in bundle.members]
