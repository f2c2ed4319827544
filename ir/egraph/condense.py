"""Shrinking the choice problem before it is solved, without losing its optimum.

A tensor that only one other tensor's kernels may read is no decision of its own: whoever writes the reader either does
without it or comes together with one of its writers. So it is *folded* into the reader: kernels become bundles of
kernels. Bundles that write the same, read no less and cost no less than another are dropped. What remains are the
tensors that several others want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
    """Choices that are taken together. `reads` are open tensors that none of the members writes; `mask` is them as bits."""

    writes: frozenset[int]
    reads: frozenset[int]
    cost: float
    members: tuple[Choice, ...]
    mask: int


def condense(
    choices: Iterable[Choice], roots: Iterable[int], free: Callable[[int], bool], order: Callable[[int], float]
) -> list[Bundle]:
    """Return bundles from which a cheapest solution can be put together as well as from the choices."""
    folding = _Folding(set(roots))
    bits: dict[int, int] = {}
    for choice in choices:
        reads = frozenset(read for read in choice.reads if not free(read))
        mask = 0
        for read in reads:
            mask |= 1 << bits.setdefault(read, len(bits))
        folding.add(Bundle(frozenset(choice.writes), reads, choice.cost, (choice,), mask))
    folding.bits = bits
    folding.prune_all()
    tensors = sorted(folding.writers, key=order, reverse=True)
    while True:
        before = len(tensors)
        tensors = [tensor for tensor in tensors if not folding.fold(tensor)]
        if len(tensors) == before:
            return folding.bundles()


class _Folding:
    def __init__(self, roots: set[int]) -> None:
        self.roots = roots
        self.bits: dict[int, int] = {}
        self.writers: dict[int, dict[int, Bundle]] = {}
        self.readers: dict[int, dict[int, Bundle]] = {}

    def add(self, bundle: Bundle) -> None:
        for tensor in bundle.writes:
            self.writers.setdefault(tensor, {})[id(bundle)] = bundle
        for tensor in bundle.reads:
            self.readers.setdefault(tensor, {})[id(bundle)] = bundle

    def remove(self, bundle: Bundle) -> None:
        for tensor in bundle.writes:
            del self.writers[tensor][id(bundle)]
        for tensor in bundle.reads:
            del self.readers[tensor][id(bundle)]

    def bundles(self) -> list[Bundle]:
        found: dict[int, Bundle] = {}
        for writers in self.writers.values():
            found.update(writers)
        return list(found.values())

    def prune_all(self) -> None:
        for tensor in list(self.writers):
            self.prune(tensor)

    def prune(self, tensor: int) -> None:
        for bundle in dominated(self.writers[tensor].values()):
            self.remove(bundle)

    def fold(self, tensor: int) -> bool:
        """Fold the tensor into its only reader, or drop it where nobody reads it; False if it must stay."""
        if tensor in self.roots:
            return False
        writers = list(self.writers[tensor].values())
        readers = list(self.readers.get(tensor, {}).values())
        if any(len(writer.writes) > 1 for writer in writers):
            return False
        if not readers:
            for writer in writers:
                self.remove(writer)
            return True
        shared = frozenset.intersection(*(reader.writes for reader in readers))
        if not shared or len(readers) * len(writers) > MOST_JOINED:
            return False
        bit = 1 << self.bits[tensor]
        joined = [_joined(reader, writer, tensor, bit) for reader in readers for writer in writers]
        keeping = [bundle for bundle in joined if bundle is not None]
        dropped = {id(bundle) for bundle in dominated(keeping)}
        keeping = [bundle for bundle in keeping if id(bundle) not in dropped]
        if len(keeping) > len(readers) + len(writers) + MOST_MORE:
            return False
        for bundle in readers + writers:
            self.remove(bundle)
        for bundle in keeping:
            self.add(bundle)
        self.prune(min(shared))
        return True


def _joined(reader: Bundle, writer: Bundle, tensor: int, bit: int) -> Bundle | None:
    """Return both together; None if the writer reads what the reader writes: they would wait for each other."""
    if not writer.reads.isdisjoint(reader.writes):
        return None
    reads = (reader.reads - {tensor}) | writer.reads
    mask = (reader.mask ^ bit) | writer.mask
    return Bundle(reader.writes, reads, reader.cost + writer.cost, reader.members + writer.members, mask)


def dominated(bundles: Iterable[Bundle]) -> list[Bundle]:
    """Return those to which another is never worse: it writes the same, reads no more and costs no more."""
    groups: dict[frozenset[int], list[Bundle]] = {}
    for bundle in bundles:
        groups.setdefault(bundle.writes, []).append(bundle)
    found: list[Bundle] = []
    for group in groups.values():
        kept: list[int] = []
        for bundle in sorted(group, key=_worth):
            others = ~bundle.mask
            if any(not mask & others for mask in kept):
                found.append(bundle)
            else:
                kept.append(bundle.mask)
    return found


def _worth(bundle: Bundle) -> tuple:
    return (bundle.cost, len(bundle.reads), len(bundle.members))


def members(bundles: Sequence[Bundle]) -> list[Choice]:
    """Return the choices in the bundles."""
    return [choice for bundle in bundles for choice in bundle.members]
