"""Where the values of a plan live. Carried values and results share memory with what they come from, so that going from
one trip to the next copies nothing.

A slot is a place for a value: a buffer's own memory, numbered like the buffer; another copy of it, for a buffer of a loop's
body whose value of the trip before is still needed; or a piece of one, for a row that is written where it is collected.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..plan.control import Loop, Size
from ..plan.dims import Dim, Range, bounds, product, substitute
from ..plan.errors import LuminalError
from ..plan.records import Buffer, Plan
from .launches import numbers
from .memory import MemoryPlan, plan_memory
from .survey import Node, Span, Survey, common, symbols_in

ROW_ALIGNMENT = 16  # bytes: of what kernels may take for granted


@dataclass(frozen=True)
class Piece:
    """A part of the slot `base`, from byte `offset` on, that holds a value of `buffer`."""

    base: int
    offset: int
    buffer: int


class Slots:
    """Numbers for slots. Pieces get theirs when they are first asked for; several threads may ask."""

    def __init__(self, buffers: int, copies: Mapping[int, tuple[int, ...]]) -> None:
        self._buffers = {slot: buffer for buffer, slots in copies.items() for slot in slots}
        self._numbers: dict[Piece, int] = {}
        self._pieces: dict[int, Piece] = {}
        self._next = max([buffers, *self._buffers]) + 1
        self._lock = threading.Lock()

    def piece(self, base: int, offset: int, buffer: int) -> int:
        """Return the slot for a part of another one, which may be a part itself."""
        whole = self._pieces.get(base)
        piece = Piece(base, offset, buffer) if whole is None else Piece(whole.base, whole.offset + offset, buffer)
        number = self._numbers.get(piece)
        if number is None:
            with self._lock:
                number = self._numbers.get(piece)
                if number is None:
                    number = self._next
                    self._pieces[number] = piece
                    self._numbers[piece] = number
                    self._next += 1
        return number

    def piece_at(self, slot: int) -> Piece | None:
        """Return what a slot is a piece of, None if it has memory of its own."""
        return self._pieces.get(slot)

    def base(self, slot: int) -> int:
        """Return the slot whose memory a slot lies in."""
        piece = self._pieces.get(slot)
        return slot if piece is None else piece.base

    def buffer(self, slot: int) -> int:
        """Return the buffer whose values a slot holds."""
        piece = self._pieces.get(slot)
        return self._buffers.get(slot, slot) if piece is None else piece.buffer


@dataclass(frozen=True)
class InPlace:
    """A row that is written where `result` collects it: at the number of the trip times `stride` bytes."""

    result: int
    trip: str
    stride: int


@dataclass(frozen=True)
class Storage:
    """The places of a plan's values for one set of dims.

    `copies` are the slots of buffers that have several. `sizes` are bytes by slot, room for the largest value, `fixed` the
    buffers that have one size in every run; `limits` are the most trips of each loop, where something bounds them. `owned`
    are outputs with storage of their own, `memory` places the other temporaries.
    """

    slots: Slots
    copies: Mapping[int, tuple[int, ...]]
    in_place: Mapping[int, InPlace]
    sizes: Mapping[int, int]
    fixed: frozenset[int]
    limits: Mapping[Span, int]
    owned: tuple[int, ...]
    memory: MemoryPlan


def place_values(plan: Plan, survey: Survey, dims: Mapping[str, int]) -> Storage:
    """Give every value of the plan a place. Values that are needed together never share memory."""
    rooms = _Rooms(plan, survey, dims)
    in_place = _rows_in_place(survey, rooms)
    stored = {buffer for buffer in survey.home if buffer not in in_place}
    origins = _Origins(survey, in_place)
    numbers = _copies(survey, stored, origins, max(rooms.sizes, default=-1) + 1)
    slots = Slots(max(rooms.sizes, default=-1), numbers)
    sizes = dict(rooms.sizes)
    for buffer, copies in numbers.items():
        sizes.update(dict.fromkeys(copies, sizes[buffer]))
    outputs = {port.buffer for port in plan.outputs}
    owned = {buffer for buffer in outputs & stored if not survey.home[buffer] and buffer not in numbers}
    lifetimes = _lifetimes(survey, stored, origins)
    placed: dict[int, tuple[int, int]] = {}
    for buffer, lifetime in lifetimes.items():
        if buffer not in owned:
            placed.update(dict.fromkeys(numbers.get(buffer, (buffer,)), lifetime))
    return Storage(
        slots=slots,
        copies=numbers,
        in_place=in_place,
        sizes=sizes,
        fixed=frozenset(rooms.fixed),
        limits=rooms.limits,
        owned=tuple(sorted(owned)),
        memory=plan_memory({slot: sizes[slot] for slot in placed}, placed),
    )


class _Rooms:
    """Bytes by buffer: for shapes with symbols that the plan sets itself, the most that they can be."""

    def __init__(self, plan: Plan, survey: Survey, dims: Mapping[str, int]) -> None:
        self.plan, self.dims, self.late = plan, dims, survey.late
        self.ranges: dict[str, Range] = {}
        self.limits: dict[Span, int] = {}
        if survey.late:
            self._bound_symbols(survey.root)
        self.fixed: set[int] = set()  # buffers of one size, whatever the run
        self.sizes = {buffer.id: self._size(buffer) for buffer in plan.buffers}

    def _size(self, buffer: Buffer) -> int:
        if not self.late or not symbols_in(buffer.shape) & self.late:
            self.fixed.add(buffer.id)
            return math.prod(numbers(buffer.shape, self.dims)) * buffer.dtype.size
        most = self._most(product(buffer.shape))
        if most is None:
            raise LuminalError(
                f"buffer {buffer.name!r} of {buffer.dtype}[{', '.join(map(str, buffer.shape))}] has no largest size: "
                f"nothing bounds {', '.join(sorted(symbols_in(buffer.shape) & self.late - set(self.ranges)))}"
            )
        return max(most, 0) * buffer.dtype.size

    def _most(self, dim: Dim) -> int | None:
        return bounds(substitute(dim, self.dims), self.ranges)[1]

    def _bound_symbols(self, node: Node) -> None:
        tree = node.tree
        if isinstance(tree, Size):
            least = max(bounds(substitute(tree.least, self.dims), self.ranges)[0] or 0, 0)
            most = self._most(tree.most)
            if most is not None:
                self._bound(tree.symbol, least, most)
        if isinstance(tree, Loop):
            most = self._most(tree.trips) if tree.trips is not None else None
            known = self.plan.ranges.get(tree.count) if tree.count is not None else None
            if known is not None:
                most = known.max if most is None else min(most, known.max)
            if most is not None:
                self.limits[node.span] = max(most, 0)
                self._bound(tree.trip, 0, most - 1)
                if tree.count is not None:
                    self._bound(tree.count, 0, most)
        for child in node.children:
            self._bound_symbols(child)

    def _bound(self, name: str, least: int, most: int) -> None:
        """Note a symbol's range. The same one may be set in two branches."""
        most = max(least, most)
        known = self.ranges.get(name)
        if known is not None:
            least, most = min(least, known.min), max(most, known.max)
        self.ranges[name] = Range(least, least, most)


def _rows_in_place(survey: Survey, rooms: _Rooms) -> dict[int, InPlace]:
    """Return the rows that the body writes itself, once in a trip, and whose places in the result are aligned."""
    found: dict[int, InPlace] = {}
    for span in survey.spans:
        for row in span.loop.rows:
            size = rooms.sizes[row.row]
            written = survey.scope.get(row.row) == span.scope and row.row not in survey.flows
            if written and row.row not in found and row.row in rooms.fixed and size % ROW_ALIGNMENT == 0:
                found[row.row] = InPlace(row.result, span.loop.trip, size)
    return found


class _Origins:
    """The written buffers in whose memory a buffer's value may lie."""

    def __init__(self, survey: Survey, in_place: Mapping[int, InPlace]) -> None:
        flows = {**survey.flows, **{row: (place.result,) for row, place in in_place.items()}}
        self._found: dict[int, frozenset[int]] = {buffer: frozenset() for buffer in flows}
        changed = bool(flows)
        while changed:
            changed = False
            for buffer, sources in flows.items():
                found = frozenset(origin for source in sources for origin in self.of(source))
                if found != self._found[buffer]:
                    self._found[buffer] = found
                    changed = True

    def of(self, buffer: int) -> frozenset[int] | tuple[int]:
        return self._found.get(buffer, (buffer,))


def _copies(survey: Survey, stored: set[int], origins: _Origins, first: int) -> dict[int, tuple[int, ...]]:
    """Return the slots of buffers that need several: one for each state that may hold a value of an earlier trip, and
    one for the value that the present trip writes."""
    holders: dict[int, int] = {}
    for span in survey.spans:
        for carried in span.loop.carried:
            for buffer in origins.of(carried.state):
                if buffer in stored and span in survey.home[buffer]:
                    holders[buffer] = holders.get(buffer, 0) + 1
    found: dict[int, tuple[int, ...]] = {}
    for buffer, count in sorted(holders.items()):
        found[buffer] = (buffer, *range(first, first + count))
        first += count
    return found


def _lifetimes(survey: Survey, stored: set[int], origins: _Origins) -> dict[int, tuple[int, int]]:
    """Return the first and last position at which each stored buffer's memory is needed.

    What a loop's body uses from outside is needed until the loop's end, what its states hold from its beginning on too.
    """
    found: dict[int, tuple[int, int]] = {}
    for buffer, position, path in survey.uses:
        for origin in origins.of(buffer):
            if origin not in stored:
                continue
            needed = position
            if path:
                shared = common(path, survey.home[origin])
                needed = path[shared].end if len(path) > shared else position
            first, last = found.get(origin, (position, position))  # positions only grow
            found[origin] = (first, needed if needed > last else last)
    for span in survey.spans:
        for origin in _held(span, survey, stored, origins):
            first, last = found[origin]
            found[origin] = (min(first, span.begin), max(last, span.end))
    return found


def _held(span: Span, survey: Survey, stored: set[int], origins: _Origins) -> Iterator[int]:
    for carried in span.loop.carried:
        for origin in origins.of(carried.state):
            if origin in stored and span in survey.home[origin]:
                yield origin
