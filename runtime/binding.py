"""A plan bound to concrete shapes: every value has its place, every launch its grid, as far as that is known before a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..plan.control import If, Loop
from ..plan.dims import evaluate
from ..plan.errors import LuminalError
from ..plan.records import Buffer, Plan
from .launches import numbers
from .memory import MemoryPlan
from .storage import Slots, Storage, place_values
from .survey import Node, Survey, survey, symbols_in
from .walk import Passage, Passages, Read, Walk

LONGEST_PASSAGE = 20_000  # launches


@dataclass(frozen=True)
class Outcome:
    """Where the outputs lie after a run, and what shapes they have."""

    slots: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]


class Target(Protocol):
    """Where a bound plan runs."""

    def run(self, passage: Passage) -> None:
        """Run the launches of a passage in order, after everything before."""
        ...

    def read(self, scalar: Read) -> int:
        """Wait until everything before has run, and return the value of a scalar."""
        ...


@dataclass(frozen=True, eq=False)
class BoundPlan:
    """What a backend needs for one set of dims.

    Slots are places for values (see `storage`). `sizes` are bytes by slot. `owned` are the slots of outputs that some step
    writes: they have storage of their own; `memory` places the other temporaries. `passage` has every launch of a run in
    order, and `outcome` where it leaves the outputs; both are None if the plan decides some of that while it runs, or
    if there is too much of it to be written down.
    """

    plan: Plan
    dims: Mapping[str, int]
    storage: Storage
    passage: Passage | None
    outcome: Outcome | None
    _root: Node
    _buffers: Mapping[int, Buffer]
    _long: frozenset[Node]
    _passages: Passages = field(default_factory=Passages)

    @property
    def slots(self) -> Slots:
        return self.storage.slots

    @property
    def sizes(self) -> Mapping[int, int]:
        return self.storage.sizes

    @property
    def owned(self) -> tuple[int, ...]:
        return self.storage.owned

    @property
    def memory(self) -> MemoryPlan:
        return self.storage.memory

    @property
    def in_parts(self) -> bool:
        """Whether a run goes from part to part, since what comes next is known only then."""
        return self.passage is None

    def room(self, slot: int) -> int:
        """Return the bytes that a slot has."""
        return self.sizes[self.slots.buffer(slot)]

    def bytes_at(self, slot: int, late: Mapping[str, int]) -> int | None:
        """Return the bytes of the value in a slot, given what the plan has set; None if that is not known yet."""
        buffer = self._buffers[self.slots.buffer(slot)]
        if buffer.id in self.storage.fixed:
            return self.sizes[buffer.id]
        known = {**self.dims, **late}
        if not symbols_in(buffer.shape) <= set(known):
            return None
        return math.prod(numbers(buffer.shape, known)) * buffer.dtype.size

    def run(self, target: Target) -> Outcome:
        """Run everything on a target, looking at the scalars that decide what comes next."""
        if self.passage is not None and self.outcome is not None:
            target.run(self.passage)
            return self.outcome
        walk = Walk(self.storage, self._buffers, self.dims, self._passages, self._long)
        events = walk.visit(self._root)
        answer: int | None = None
        while True:
            try:
                event = events.send(answer)
            except StopIteration:
                return _outcome(self.plan, walk)
            answer = None
            if isinstance(event, Read):
                answer = target.read(event)
            else:
                target.run(event if isinstance(event, Passage) else Passage((event,), {}))


def bind(plan: Plan, dims: Mapping[str, int], surveyed: Survey | None = None) -> BoundPlan:
    """Evaluate everything symbolic in `plan` for `dims`, which must name every symbol that it does not set itself.

    `surveyed` is the plan's survey, which does not depend on dims: whoever binds a plan often makes it once.
    """
    found = surveyed or survey(plan)
    fed = {name: value for name, value in dims.items() if name not in found.late}
    storage = place_values(plan, found, fed)
    buffers = {buffer.id: buffer for buffer in plan.buffers}
    _check_sizes(found, buffers, storage, fed)
    passage = outcome = None
    long = frozenset(_long_nodes(found, storage, fed))
    if not found.root.decides and found.root not in long:
        walk = Walk(storage, buffers, fed)
        passage = Passage(tuple(walk.visit(found.root)), {})
        outcome = _outcome(plan, walk)
    return BoundPlan(plan, fed, storage, passage, outcome, found.root, buffers, long)


def _long_nodes(found: Survey, storage: Storage, dims: Mapping[str, int]) -> Iterator[Node]:
    """Yield the nodes whose launches are too many to be written down as one passage: their loops run trip by trip."""
    counts: dict[Node, int] = {}
    for node in reversed(list(found.root.below())):
        count = len(node.steps) + sum(counts[child] for child in node.children)
        if node.span is not None and not node.decides:
            known = not symbols_in([node.span.loop.trips]) & found.late
            trips = evaluate(node.span.loop.trips, dims) if known else storage.limits.get(node.span, LONGEST_PASSAGE)
            count = (count + len(node.span.loop.rows)) * max(trips, 0)
        counts[node] = count
        if count > LONGEST_PASSAGE and node.children:
            yield node


def plan_memory_for(plan: Plan, dims: Mapping[str, int]) -> MemoryPlan:
    """Return where the temporaries of `plan` lie for `dims`, though a run of these shapes may not be possible."""
    found = survey(plan)
    return place_values(plan, found, {name: value for name, value in dims.items() if name not in found.late}).memory


def _outcome(plan: Plan, walk: Walk) -> Outcome:
    slots = tuple(walk.slots[port.buffer] for port in plan.outputs)
    shapes = tuple(numbers(port.shape, walk.dims) for port in plan.outputs)
    for port, shape in zip(plan.outputs, shapes):
        buffer = walk.buffers[port.buffer]
        held = math.prod(numbers(buffer.shape, walk.dims)) * buffer.dtype.size
        if math.prod(shape) * port.dtype.size != held:
            raise LuminalError(f"output {port.name!r} is {port.dtype}{list(shape)}, its buffer holds {held} bytes")
    return Outcome(slots, shapes)


def _check_sizes(found: Survey, buffers: Mapping[int, Buffer], storage: Storage, dims: Mapping[str, int]) -> None:
    """Raise LuminalError if values that a loop or branch hands on do not have one size, as far as that is known now."""

    def check(what: str, **same: int) -> None:
        known = {name: storage.sizes[buffer] for name, buffer in same.items() if buffer in storage.fixed}
        if len(set(known.values())) > 1:
            told = ", ".join(f"{name} {buffers[same[name]].name!r} {size}" for name, size in known.items())
            raise LuminalError(f"{what} hands on values of different bytes: {told}")

    for node in found.root.below():
        if isinstance(node.tree, If):
            for merged in node.tree.results:
                if merged.result in storage.fixed:  # else the branches may give different shapes
                    check("a branch", **vars(merged))
        if not isinstance(node.tree, Loop):
            continue
        loop = node.tree
        for carried in loop.carried:
            check(f"the loop over {loop.trip!r}", **vars(carried))
        if loop.trips is None or loop.count is not None or symbols_in([loop.trips]) & found.late:
            continue
        trips = max(evaluate(loop.trips, dims), 0)
        for row in loop.rows:
            if {row.row, row.result} <= storage.fixed and trips * storage.sizes[row.row] != storage.sizes[row.result]:
                raise LuminalError(
                    f"the loop over {loop.trip!r} collects {trips} rows of {storage.sizes[row.row]} bytes "
                    f"({buffers[row.row].name!r}) in {storage.sizes[row.result]} ({buffers[row.result].name!r})"
                )
