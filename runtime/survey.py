"""One look over a plan's tree: where each value is written and used, and which buffers may share their memory.

Positions number the steps, and the beginnings and ends of loops and branches, in the order in which they stand. A loop's
body has its positions once, whatever the number of trips: what is dead at a position is dead there in every trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ..plan.control import If, Loop, Segment, Sequence, Tree, bound_symbols
from ..plan.dims import Dim, Expr, symbols
from ..plan.records import Plan
from ..plan.steps import Step, symbols_of


@dataclass(eq=False)
class Span:
    """A loop's place: `begin` lies before its first trip, `end` after its last. `path` are the loops around it."""

    loop: Loop
    path: Path
    scope: int
    begin: int
    end: int = 0


Path = tuple[Span, ...]


@dataclass(frozen=True)
class StepUse:
    """A step, the buffers that it is the first to write, and the late symbols that its sizes need."""

    step: Step
    number: int
    begins: frozenset[int]
    late: tuple[str, ...]


@dataclass(eq=False)
class Node:
    """A tree of the plan with what the survey found. `decides` says that running it needs a value of the run."""

    tree: Tree
    children: tuple[Node, ...] = ()
    steps: tuple[StepUse, ...] = ()
    span: Span | None = None
    decides: bool = False
    path: Path = ()

    def below(self) -> Iterator[Node]:
        """Yield the node and all below it."""
        yield self
        for child in self.children:
            yield from child.below()

    @cached_property
    def defined(self) -> frozenset[int]:
        """Buffers that get their values inside."""
        found: set[int] = set()
        for node in self.below():
            tree = node.tree
            for use in node.steps:
                found |= use.begins
            if isinstance(tree, Loop):
                for carried in tree.carried:
                    found |= {carried.state, carried.result}
                found |= {row.result for row in tree.rows}
            elif isinstance(tree, If):
                found |= {merged.result for merged in tree.results}
        return frozenset(found)

    @cached_property
    def outside(self) -> tuple[int, ...]:
        """Buffers from outside whose places decide what is launched: those it reads, and states of the loops around."""
        found: set[int] = set()
        for node in self.below():
            tree = node.tree
            for use in node.steps:
                found |= {*use.step.reads, *use.step.writes}
            if isinstance(tree, Loop):
                for carried in tree.carried:
                    found |= {carried.initial, carried.next}
                found |= {row.row for row in tree.rows}
        for span in self.path:
            found |= {carried.state for carried in span.loop.carried}
            found |= {row.result for row in span.loop.rows}
        return tuple(sorted(found - self.defined))

    @cached_property
    def trips(self) -> frozenset[str]:
        """The symbols of the loops inside."""
        return frozenset(node.tree.trip for node in self.below() if isinstance(node.tree, Loop))


@dataclass
class Survey:
    """What was found; `survey` makes it.

    `home` are the loops around the steps, or the loop, that write a buffer; `scope` is the body or branch. `flows` are the
    buffers whose memory a buffer may share. `uses` are (buffer, position, loops around).
    """

    root: Node
    late: frozenset[str]
    home: dict[int, Path] = field(default_factory=dict)
    scope: dict[int, int] = field(default_factory=dict)
    flows: dict[int, tuple[int, ...]] = field(default_factory=dict)
    uses: list[tuple[int, int, Path]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


def survey(plan: Plan) -> Survey:
    """Look over a valid plan."""
    return _Surveyor(plan).run()


def symbols_in(dims: Iterable[Dim]) -> set[str]:
    """Return the symbols of dims."""
    return {name for dim in dims if isinstance(dim, Expr) for name in symbols(dim)}


def common(path: Path, other: Path) -> int:
    """Return how many loops, from the outermost on, two places share."""
    shared = 0
    for one, two in zip(path, other):
        if one is not two:
            break
        shared += 1
    return shared


class _Surveyor:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.found = Survey(Node(plan.root), frozenset(bound_symbols(plan.root)))
        self.position = 0
        self.steps = 0
        self.scopes = 0

    def run(self) -> Survey:
        found = self.found
        found.root = self.node(self.plan.root, (), self.new_scope())
        for port in self.plan.outputs:
            self.use(port.buffer, ())
        return found

    def new_scope(self) -> int:
        self.scopes += 1
        return self.scopes

    def use(self, buffer: int, path: Path) -> None:
        self.found.uses.append((buffer, self.position, path))

    def write(self, buffer: int, path: Path, scope: int) -> bool:
        """Note a write; say whether it is the first."""
        self.use(buffer, path)
        if buffer in self.found.home:
            return False
        self.found.home[buffer] = path
        self.found.scope[buffer] = scope
        return True

    def node(self, tree: Tree, path: Path, scope: int) -> Node:
        if isinstance(tree, Segment):
            return Node(tree, steps=tuple(self.step(step, path, scope) for step in tree.steps), path=path)
        if isinstance(tree, Sequence):
            children = _grouped([self.node(child, path, scope) for child in tree.children], path)
            return Node(tree, children, decides=any(child.decides for child in children), path=path)
        if isinstance(tree, Loop):
            return self.loop(tree, path, scope)
        if isinstance(tree, If):
            return self.branch(tree, path)
        self.use(tree.buffer, path)
        self.position += 1
        return Node(tree, decides=True, path=path)

    def step(self, step: Step, path: Path, scope: int) -> StepUse:
        for buffer in step.reads:
            self.use(buffer, path)
        begins = frozenset([buffer for buffer in step.writes if self.write(buffer, path, scope)])
        self.position += 1
        self.steps += 1
        late = tuple(sorted(symbols_of(step) & self.found.late)) if self.found.late else ()
        return StepUse(step, self.steps - 1, begins, late)

    def loop(self, loop: Loop, path: Path, scope: int) -> Node:
        span = Span(loop, path, self.new_scope(), self.position)
        self.found.spans.append(span)
        for carried in loop.carried:
            self.use(carried.initial, path)
            self.found.flows[carried.state] = (carried.initial, carried.next)
            self.found.flows[carried.result] = (carried.initial, carried.state, carried.next)
        for row in loop.rows:
            self.write(row.result, path, scope)
        if loop.condition is not None:
            self.use(loop.condition[0], path)
        self.position += 1
        inside = (*path, span)
        body = self.node(loop.body, inside, span.scope)
        for carried in loop.carried:
            self.use(carried.next, inside)
        for row in loop.rows:
            self.use(row.row, inside)
            self.use(row.result, inside)
        if loop.condition is not None:
            self.use(loop.condition[1], inside)
        span.end = self.position
        self.position += 1
        return Node(loop, (body,), span=span, decides=body.decides or loop.condition is not None, path=path)

    def branch(self, tree: If, path: Path) -> Node:
        self.use(tree.condition, path)
        self.position += 1
        children = tuple(self.node(side, path, self.new_scope()) for side in (tree.then, tree.otherwise))
        for merged in tree.results:
            self.found.flows[merged.result] = (merged.then, merged.otherwise)
            self.use(merged.then, path)
            self.use(merged.otherwise, path)
        self.position += 1
        return Node(tree, children, decides=True, path=path)


def _grouped(children: list[Node], path: Path) -> tuple[Node, ...]:
    """Put children that stand side by side and decide nothing into one, since they are launched together."""
    if not any(child.decides for child in children):
        return tuple(children)
    groups: list[list[Node]] = []
    for child in children:
        if groups and not child.decides and not groups[-1][-1].decides:
            groups[-1].append(child)
        else:
            groups.append([child])
    return tuple(
        group[0] if len(group) == 1 else Node(Sequence(tuple(n.tree for n in group)), tuple(group), path=path)
        for group in groups
    )
