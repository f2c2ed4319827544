"""The tree that orders a plan's steps: segments, sequences, and the control flow between them.

Bodies and branches have scopes of their own. They read what was written before them, and what they write is seen outside
only through the results that their node names. "←" below is what a node means; a runtime may let two buffers share their
memory instead of copying one into the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .dims import Dim
from .steps import Step


@dataclass(frozen=True)
class Segment:
    """Steps that run one after another on one stream and may be captured in one CUDA graph."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Sequence:
    """Children in order."""

    children: tuple[Tree, ...]


@dataclass(frozen=True)
class Carried:
    """A value that goes from trip to trip: state ← initial; after each trip state ← next; at the end result ← state.

    All four buffers have one type, whose shape is free of the trip's symbol. `next` may be any buffer that the body sees:
    one that it writes, its own or another state, an input, a weight. All states change at once.
    """

    initial: int
    state: int
    next: int
    result: int


@dataclass(frozen=True)
class Row:
    """A value collected over the trips: after trip t, result[t] ← row. The result's shape is (trips made, *row's shape)."""

    row: int
    result: int


@dataclass(frozen=True)
class Loop:
    """Run `body` for trip = 0, 1, …

    `trip` is the symbol that holds the trip's number inside the body. `trips` is how often at most, None for no limit.
    `condition` is a pair of bool scalars: the first is looked at before the first trip, the second, which the body may
    write, after every trip; false ends the loop. Without a condition there are exactly `trips` trips. `count` is a symbol
    that holds the number of trips made for everything after the loop; only a loop with a condition may have one.
    """

    trip: str
    trips: Dim | None
    body: Tree
    carried: tuple[Carried, ...] = ()
    rows: tuple[Row, ...] = ()
    condition: tuple[int, int] | None = None
    count: str | None = None


@dataclass(frozen=True)
class Merged:
    """A value that both branches give: result ← `then` or `otherwise`, whichever branch ran."""

    then: int
    otherwise: int
    result: int


@dataclass(frozen=True)
class If:
    """Run `then` if the bool scalar `condition` holds, else `otherwise`."""

    condition: int
    then: Tree
    otherwise: Tree
    results: tuple[Merged, ...] = ()


@dataclass(frozen=True)
class Size:
    """Read the int64 scalar `buffer`: `symbol` has that value for everything after, in the scope that the node stands in.

    A value outside of `least`..`most` is an error. Buffers whose shape has the symbol get room for `most`.
    """

    symbol: str
    buffer: int
    least: Dim
    most: Dim


Tree = Segment | Sequence | Loop | If | Size


def children_of(tree: Tree) -> tuple[Tree, ...]:
    """Return the trees right below, in order."""
    if isinstance(tree, Sequence):
        return tree.children
    if isinstance(tree, Loop):
        return (tree.body,)
    return (tree.then, tree.otherwise) if isinstance(tree, If) else ()


def walk(tree: Tree) -> Iterator[Tree]:
    """Yield the tree and every tree below, each before its children, in order."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children_of(node)))


def steps_of(tree: Tree) -> Iterator[Step]:
    """Yield every step once, in order: those of a body once, those of both branches."""
    for node in walk(tree):
        if isinstance(node, Segment):
            yield from node.steps


def buffers_of(tree: Tree) -> set[int]:
    """Return the buffers that the tree names."""
    found: set[int] = set()
    for node in walk(tree):
        if isinstance(node, Segment):
            found.update(at for step in node.steps for at in (*step.reads, *step.writes))
        elif isinstance(node, Loop):
            found.update(at for carried in node.carried for at in vars(carried).values())
            found.update(at for row in node.rows for at in vars(row).values())
            found.update(node.condition or ())
        elif isinstance(node, If):
            found.add(node.condition)
            found.update(at for merged in node.results for at in vars(merged).values())
        elif isinstance(node, Size):
            found.add(node.buffer)
    return found


def placed_steps(tree: Tree, inside: tuple[str, ...] = ()) -> Iterator[tuple[Step, tuple[str, ...]]]:
    """Yield every step as `steps_of` does, with the loops and branches that it stands in, such as "t < n" and "else"."""
    if isinstance(tree, Segment):
        for step in tree.steps:
            yield step, inside
    elif isinstance(tree, Loop):
        yield from placed_steps(tree.body, (*inside, loop_text(tree)))
    elif isinstance(tree, If):
        yield from placed_steps(tree.then, (*inside, "if"))
        yield from placed_steps(tree.otherwise, (*inside, "else"))
    elif isinstance(tree, Sequence):
        for child in tree.children:
            yield from placed_steps(child, inside)


def loop_text(loop: Loop) -> str:
    """Return how often a loop runs, such as "t < n", or "t < 8 while true" with a condition."""
    limit = loop.trip if loop.trips is None else f"{loop.trip} < {loop.trips}"
    return limit if loop.condition is None else f"{limit} while true"


def decisions(tree: Tree) -> list[str]:
    """Return what a run must look at to know what comes next, one entry a node; a run reads each as often as it gets there."""
    found = []
    for node in walk(tree):
        if isinstance(node, If):
            found.append("a branch")
        elif isinstance(node, Size):
            found.append(f"size {node.symbol} in {node.least}..{node.most}")
        elif isinstance(node, Loop) and node.condition is not None:
            found.append(f"the condition of loop {loop_text(node)}")
    return found


def bound_symbols(tree: Tree) -> set[str]:
    """Return the symbols that get their values from nodes of the tree, not from the shapes of inputs."""
    found: set[str] = set()
    for node in walk(tree):
        if isinstance(node, Loop):
            found.add(node.trip)
            found |= {node.count} - {None}
        elif isinstance(node, Size):
            found.add(node.symbol)
    return found


def has_control(tree: Tree) -> bool:
    """Say whether the tree has more than segments and sequences of them."""
    return any(not isinstance(node, (Segment, Sequence)) for node in walk(tree))
