"""What a context runs for one set of shapes: one graph, or a graph for each part between decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .binding import BoundPlan, Outcome
from .launches import Launch
from .pool import BoundedCache
from .walk import Passage, Read

if TYPE_CHECKING:
    from .cuda_context import Context

NODES_KEPT = 20_000  # in the graphs of parts of one program


class Addresses(dict[int, int]):
    """Device addresses by slot; those of pieces are worked out when they are asked for."""

    def __init__(self, bound: BoundPlan) -> None:
        super().__init__()
        self._slots = bound.slots

    def __missing__(self, slot: int) -> int:
        piece = self._slots.piece_at(slot)
        assert piece is not None, f"slot {slot} has no memory"
        self[slot] = self[piece.base] + piece.offset
        return self[slot]


@dataclass
class Replay:
    """A part of a program: launched one by one when it is met first, captured when it is met again."""

    met: bool = False
    graph: Any = None
    nodes: int = 0


@dataclass
class Program:
    """`replay` is the one graph of a program that decides nothing; its `graph` is None while kernels are launched one by
    one. `parts` are the graphs of one that does; `outcome` and `trail` are where its last run ended and how it got there,
    `read_backs` how many scalars it looked at.
    """

    addresses: Addresses
    drop: Callable[[Replay], None]
    replay: Replay = field(default_factory=Replay)
    outcome: Outcome | None = None
    trail: list[Passage] = field(default_factory=list)
    read_backs: int = 0

    def __post_init__(self) -> None:
        self.parts: BoundedCache[Passage, Replay] = BoundedCache(
            NODES_KEPT, self.drop, weigh=lambda passage, _: len(passage.launches)
        )

    @property
    def nodes(self) -> int:
        """Nodes of all graphs."""
        return self.replay.nodes + sum(part.nodes for part in self.parts.values())

    @property
    def graphs(self) -> int:
        """How many graphs there are."""
        return sum(part.graph is not None for part in (self.replay, *self.parts.values()))

    @property
    def launches(self) -> list[Launch]:
        """What the last run launched."""
        return [launch for passage in self.trail for launch in passage.launches]

    def begin(self) -> None:
        """Forget the last run."""
        self.trail.clear()
        self.read_backs = 0

    def close(self) -> None:
        """Destroy the graphs."""
        self.drop(self.replay)
        self.parts.clear()


class DecidedRun:
    """A run that looks at scalars on the device to know what comes next."""

    def __init__(self, context: Context, program: Program) -> None:
        self._context, self._program = context, program

    def run(self, passage: Passage) -> None:
        """Enqueue a passage: its graph if it has one, else its launches. One launch alone gets no graph."""
        context, program = self._context, self._program
        program.trail.append(passage)
        if len(passage.launches) == 1 or not context.captures:
            context.enqueue(passage, program.addresses)
            return
        part = program.parts.get(passage, Replay)
        if part.met and part.graph is None:
            context.capture(passage, program.addresses, part)
        part.met = True
        if part.graph is not None:
            context.replay(part)
        else:
            context.enqueue(passage, program.addresses)

    def read(self, scalar: Read) -> int:
        """Wait, and copy a scalar to the host."""
        self._program.read_backs += 1
        return self._context.read_back(self._program.addresses[scalar.slot], scalar.dtype)
