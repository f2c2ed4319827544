"""Walks a plan's tree and yields what there is to run: a loop's body as often as it runs, of two branches the one taken.

Carried values, and results of loops and branches, are not copied: the walk keeps for every buffer the slot that its value
lies in, and hands slots on.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping
from dataclasses import dataclass

from ..plan.control import If, Loop, Row, Size
from ..plan.dims import evaluate, product
from ..plan.dtypes import DType
from ..plan.errors import InvalidInput
from ..plan.records import Buffer
from ..plan.steps import KernelStep
from .input_dims import told
from .launches import CopyLaunch, KernelLaunch, Launch, LtLaunch, kernel_sizes, library_sizes
from .pool import BoundedCache
from .storage import Storage
from .survey import Node, StepUse, symbols_in

LAUNCHES_KEPT = 20_000  # in the passages of one bound plan


@dataclass(frozen=True)
class Read:
    """A scalar, of dtype bool or int64, that the walk must know to go on: it is sent the value as an int."""

    slot: int
    dtype: DType


@dataclass(frozen=True, eq=False)
class Passage:
    """Launches that follow one another without a decision. `leaves` are the slots of the buffers that get their value."""

    launches: tuple[Launch, ...]
    leaves: Mapping[int, int]


Events = Generator[Launch | Passage | Read, int, None]


class Passages:
    """Passages by where they stand and what they depend on, so that a later trip or run need not make them again."""

    def __init__(self) -> None:
        self._inputs: dict[Node, tuple[tuple[int, ...], tuple[str, ...]]] = {}
        self._made: BoundedCache[tuple, Passage] = BoundedCache(
            LAUNCHES_KEPT, weigh=lambda _, passage: 1 + len(passage.launches)
        )

    def get(self, node: Node, walk: Walk) -> Passage:
        """Return the passage of a node that decides nothing, as a walk that stands before it needs it."""
        if node not in self._inputs:
            self._inputs[node] = node.outside, _symbols(node, walk)
        buffers, symbols = self._inputs[node]
        slots = tuple([walk.slots.get(buffer) for buffer in buffers])
        values = tuple([walk.late.get(name) for name in symbols])
        return self._made.get((node, slots, values), lambda: walk.passage(node))


def _symbols(node: Node, walk: Walk) -> tuple[str, ...]:
    """Return the symbols, set by the plan outside of the node, on which its launches and the sizes of values depend."""
    found: set[str] = set()
    for part in node.below():
        for use in part.steps:
            found.update(use.late)
        if isinstance(part.tree, Loop):
            found |= symbols_in([part.tree.trips])
    for buffer in (*node.outside, *node.defined):
        found |= symbols_in(walk.buffers[buffer].shape)
    places = walk.storage.in_place
    found |= {places[buffer].trip for buffer in node.defined if buffer in places}
    return tuple(sorted(found - node.trips - set(walk.fed)))


class Walk:
    """One walk. `slots` says where the buffers' values lie, `late` what the symbols are that the plan has set so far.

    With `passages`, what follows without a decision is yielded as a passage, but for what is too `long` for one; without,
    everything comes launch by launch.
    """

    def __init__(
        self,
        storage: Storage,
        buffers: Mapping[int, Buffer],
        dims: Mapping[str, int],
        passages: Passages | None = None,
        long: Container[Node] = (),
    ) -> None:
        self.storage, self.buffers, self.fed = storage, buffers, dims
        self.dims = dict(dims)
        self.late: dict[str, int] = {}
        self.slots = {buffer.id: buffer.id for buffer in buffers.values() if buffer.kind != "temporary"}
        self._passages = passages
        self._long = long
        self._states: list[int] = []  # of the loops that the walk is in
        self._sized: dict[tuple, tuple | None] = {}

    def passage(self, node: Node) -> Passage:
        """Return the launches of a node that decides nothing; the walk itself stays where it is."""
        ahead = Walk(self.storage, self.buffers, self.fed)
        ahead.dims, ahead.late = dict(self.dims), self.late
        ahead.slots, ahead._states = dict(self.slots), list(self._states)
        launches = tuple(event for event in ahead.visit(node))
        return Passage(launches, {buffer: ahead.slots[buffer] for buffer in node.defined if buffer in ahead.slots})

    def visit(self, node: Node) -> Events:
        """Yield what there is to run in a node."""
        tree = node.tree
        if self._passages is not None and not node.decides and node not in self._long:
            passage = self._passages.get(node, self)
            self.slots.update(passage.leaves)
            if passage.launches:
                yield passage
        elif isinstance(tree, Loop):
            yield from self._loop(node, tree)
        elif isinstance(tree, If):
            yield from self._branch(node, tree)
        elif isinstance(tree, Size):
            self._set(tree.symbol, self._checked(tree, (yield self._read(tree.buffer))))
        else:
            for use in node.steps:
                launch = self._launch(use)
                if launch is not None:
                    yield launch
            for child in node.children:
                yield from self.visit(child)

    def _loop(self, node: Node, loop: Loop) -> Events:
        trips = None if loop.trips is None else evaluate(loop.trips, self.dims)
        limit = self.storage.limits.get(node.span)
        for row in loop.rows:
            self.slots[row.result] = self._place(row.result)
        values = [self.slots[carried.initial] for carried in loop.carried]
        states = [carried.state for carried in loop.carried]
        self._states.extend(states)
        goes_on = loop.condition is None or (yield self._read(loop.condition[0])) != 0
        trip = 0
        while goes_on and (trips is None or trip < trips):
            if limit is not None and trip >= limit:
                raise InvalidInput(
                    f"the loop over {loop.trip!r} makes more trips than the {limit} that it was compiled for, "
                    f"with {told(self.fed)}"
                )
            self._set(loop.trip, trip)
            self.slots.update(zip(states, values))
            yield from self.visit(node.children[0])
            for row in loop.rows:
                copy = self._copy(row, trip)
                if copy is not None:
                    yield copy
            values = [self.slots[carried.next] for carried in loop.carried]
            if loop.condition is not None:
                goes_on = (yield self._read(loop.condition[1])) != 0
            trip += 1
        del self._states[len(self._states) - len(states) :]
        for carried, slot in zip(loop.carried, values):
            self.slots[carried.result] = slot
        if loop.count is not None:
            self._set(loop.count, trip)

    def _branch(self, node: Node, tree: If) -> Events:
        holds = (yield self._read(tree.condition)) != 0
        yield from self.visit(node.children[0 if holds else 1])
        for merged in tree.results:
            self.slots[merged.result] = self.slots[merged.then if holds else merged.otherwise]

    def _read(self, buffer: int) -> Read:
        return Read(self.slots[buffer], self.buffers[buffer].dtype)

    def _checked(self, tree: Size, value: int) -> int:
        least, most = evaluate(tree.least, self.dims), evaluate(tree.most, self.dims)
        if not least <= value <= most:
            raise InvalidInput(
                f"size {tree.symbol!r}, known only when the model runs, is {value}: expected {least}..{most} "
                f"for {told(self.fed)}"
            )
        return value

    def _set(self, name: str, value: int) -> None:
        self.dims[name] = value
        self.late = {**self.late, name: value}  # launches keep the one of their time

    def _copy(self, row: Row, trip: int) -> CopyLaunch | None:
        """Return the copy of a row to its place, None if it lies there already or is empty."""
        if row.row in self.storage.in_place and self.storage.in_place[row.row].result == row.result:
            return None
        buffer = self.buffers[row.row]
        size = evaluate(product(buffer.shape), self.dims) * buffer.dtype.size
        place = self.storage.slots.piece(self.slots[row.result], trip * size, row.row)
        return CopyLaunch(size, (place,), (self.slots[row.row],)) if size else None

    def _place(self, buffer: int) -> int:
        """Return a slot for a new value of a buffer, one in which no state's value lies."""
        storage = self.storage
        row = storage.in_place.get(buffer)
        if row is not None:
            return storage.slots.piece(self.slots[row.result], self.dims[row.trip] * row.stride, buffer)
        copies = storage.copies.get(buffer)
        if copies is None:
            return buffer
        taken = {storage.slots.base(self.slots[state]) for state in self._states}
        return next(slot for slot in copies if slot not in taken)

    def _launch(self, use: StepUse) -> Launch | None:
        """Return the launch of a step, None if it would do nothing."""
        step, slots = use.step, self.slots
        reads = tuple([slots[buffer] for buffer in step.reads])
        for buffer in step.writes:
            if buffer in use.begins:
                slots[buffer] = self._place(buffer)
        writes = tuple([slots[buffer] for buffer in step.writes])
        key = (use.number, *[self.dims[name] for name in use.late])
        if key not in self._sized:
            of_kernel = isinstance(step, KernelStep)
            self._sized[key] = (
                kernel_sizes(step.kernel, self.dims) if of_kernel else library_sizes(step.matmul, self.dims)
            )
        sized = self._sized[key]
        if sized is None:
            return None
        if isinstance(step, KernelStep):
            begins = (
                writes if len(use.begins) == len(writes) else tuple([slots[b] for b in step.writes if b in use.begins])
            )
            return KernelLaunch(step.kernel, *sized, writes, reads, step.origin, begins, self.late)
        return LtLaunch(sized, writes, reads, step.origin, bool(use.late))
