"""Cutting a graph where its structure repeats, so that equal layers are searched once.

Nodes in topological order, each labelled by what it does and not by what it reads, spell a word in which a deep model
repeats itself. Every cut of that order is sound: a part reads what lies before it. Cuts are made right before a matrix
product or convolution, since what such a kernel reads is stored in any case and no good kernel reaches over the cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from .control import is_control
from .egraph.lift import splat_bits
from .graph import Graph, Node, Size, Value
from .stages import stages

LEAST_PERIOD = 16  # nodes of a layer
LEAST_SAVED = 256  # nodes: below, starting another search costs more than it saves
PERIODS_TRIED = 24


@dataclass
class Part:
    """A stretch of a graph. `nodes` are its own in order, each behind its operands, with the constants that they read.

    `inputs` are values of nodes before it, or the graph's, in the order of their first use; `outputs` are those of its
    values that are read behind it or are the graph's outputs. Parts of equal `signature` are the same program.
    """

    nodes: list[Node]
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    signature: Hashable = None

    @property
    def stand_ins(self) -> list[Node]:
        """The nodes in the order in which a blueprint of the part names them: those of its inputs, then its own."""
        return [*(value.node for value in self.inputs), *self.nodes]

    def graph(self, whole: Graph) -> tuple[Graph, list[Node]]:
        """Return the part as a graph of its own, and for each of its inputs and nodes the node that stands for it."""
        made: dict[tuple[int, int], Value] = {}
        inputs, stands = [], []
        for number, value in enumerate(self.inputs):
            node = Node("input", (), {"name": f"in{number}"}, (value.type,))
            made[key(value)] = node.output
            inputs.append(node.output)
            stands.append(node)
        for node in self.nodes:
            copy = node
            if node.inputs:
                copy = Node(node.op, tuple(made[key(v)] for v in node.inputs), node.attrs, node.types, node.origin)
            stands.append(copy)
            for own, value in zip(node.outputs, copy.outputs, strict=True):
                made[key(own)] = value
        graph = Graph(
            whole.name,
            inputs,
            [made[key(value)] for value in self.outputs],
            [value.node.attrs["name"] for value in inputs],
            [f"out{number}" for number in range(len(self.outputs))],
            dict(whole.ranges),
            {name: replace(size, value=made[key(size.value)]) for name, size in self._own_sizes(whole)},
        )
        return graph, stands

    def _own_sizes(self, whole: Graph) -> list[tuple[str, Size]]:
        """Return the sizes that the part computes; it knows those of earlier parts as it knows any dim."""
        own = {id(node) for node in self.nodes}
        return [(name, size) for name, size in whole.sizes.items() if id(size.value.node) in own]


def key(value: Value) -> tuple[int, int]:
    """Return what tells a value from others: nodes are compared by identity."""
    return id(value.node), value.index


def split(graph: Graph) -> list[Part | Node]:
    """Return the graph in parts, in an order in which each reads what earlier ones gave.

    Loops and branches stand between the parts as themselves. A graph without them in which nothing repeats is one part.
    A graph that computes sizes is cut at loops and branches only: what needs a size comes after it, whichever part it is in.
    """
    nodes = graph.nodes()
    computed = [node for node in nodes if node.op != "input"]
    if graph.sizes and not any(map(is_control, nodes)):
        return [Part(nodes)]
    behind = [*graph.outputs, *(size.value for size in graph.live_sizes().values())]
    needed = {id(value.node) for value in (*behind, *(v for node in nodes if is_control(node) for v in node.inputs))}
    shared = _made_of_constants(nodes, needed)
    pieces: list[Part | Node] = []
    for stage in stages(graph, [node for node in computed if id(node) not in shared]):
        pieces.extend([stage] if isinstance(stage, Node) else _cut(graph, stage, shared))
    if len(pieces) < 2 and not any(isinstance(piece, Node) for piece in pieces):
        return pieces or [Part([])]
    wanted = {key(value) for value in behind}
    for piece in reversed(pieces):
        if isinstance(piece, Node):
            wanted |= {key(value) for value in piece.inputs}
        else:
            _complete(piece, shared, wanted)
            piece.signature = _signature(piece)
    return pieces


def whole_part(graph: Graph) -> Part:
    """Return a graph without loops and branches as one part, which may stand for others of equal signature."""
    nodes = graph.nodes()
    shared = _made_of_constants(nodes, {id(value.node) for value in graph.outputs})
    part = Part([node for node in nodes if id(node) not in shared and node.op != "input"])
    _complete(part, shared, {key(value) for value in graph.outputs})
    part.signature = _signature(part)
    return part


def _cut(graph: Graph, own: Sequence[Node], shared: set[int]) -> list[Part]:
    """Cut a stretch of the graph where it repeats itself."""
    if graph.sizes:
        return [Part(list(own))]
    labels = _labels(own, shared)
    crossing = _Crossing(graph, own, shared)
    cuts = sorted({0, len(own), *_cuts(labels, crossing, 0, len(own))})
    return [Part(list(own[begin:end])) for begin, end in zip(cuts, cuts[1:]) if begin < end]


def _made_of_constants(nodes: Iterable[Node], kept: set[int]) -> set[int]:
    """Return, by id, constants and the points, views and iotas made of nothing else: every part has its own.

    Those in `kept` must be in memory for others, so one part computes them.
    """
    found: set[int] = set()
    for node in nodes:
        if node.op == "constant":
            found.add(id(node))
        elif id(node) in kept:
            continue
        elif node.op == "iota":
            found.add(id(node))
        elif node.op in ("elementwise", "view") and all(id(value.node) in found for value in node.inputs):
            found.add(id(node))
    return found


def _constant_label(node: Node) -> Hashable:
    """What the rules may know of a constant: its type, and its bits if all elements are the same."""
    return "constant", node.types, splat_bits(node.attrs["data"])


def _label(node: Node) -> Hashable:
    """Return what a node does, whatever it reads."""
    if node.op == "constant":
        return _constant_label(node)
    attrs = tuple(sorted((name, _hashable(value)) for name, value in node.attrs.items()))
    return node.op, node.types, attrs


def _hashable(value: object) -> Hashable:
    """Return the value, or what is equal for the same object only."""
    try:
        hash(value)
    except TypeError:
        return "object", id(value)
    return value


def _labels(own: Sequence[Node], shared: set[int]) -> list[int]:
    """Return a number for each node, equal for nodes that do the same to operands of the same kind."""
    known: dict[Hashable, int] = {}
    labels = []
    for node in own:
        kinds = tuple(_label(value.node) if id(value.node) in shared else "" for value in node.inputs)
        labels.append(known.setdefault((_label(node), kinds), len(known)))
    return labels


class _Crossing:
    """Which values a cut would have to hand over, and which cuts lie right before a product."""

    def __init__(self, graph: Graph, own: Sequence[Node], shared: set[int]) -> None:
        position = {id(node): place for place, node in enumerate(own)}
        self.spans: list[tuple[int, int]] = []  # of each value: where it is made, where it is read last
        last: dict[int, int] = {}
        for place, node in enumerate(own):
            for value in node.inputs:
                last[id(value.node)] = place
        for value in graph.outputs:
            last.setdefault(id(value.node), position.get(id(value.node), 0))
        self.spans = [(position[at], end) for at, end in last.items() if at in position]
        self.starts = {start for node in own if (start := _product_start(node, position)) is not None}
        self.counts = [0] * (len(own) + 1)
        for made, read in self.spans:
            self.counts[made + 1] += 1
            self.counts[min(read + 1, len(own))] -= 1
        for place in range(1, len(own) + 1):
            self.counts[place] += self.counts[place - 1]

    def best(self, begin: int, end: int) -> int:
        """Return the cut in [begin, end) that hands over the fewest values, right before a product if there is one."""
        starts = [place for place in range(begin, end) if place in self.starts] or range(begin, end)
        return min(starts, key=lambda place: (self.counts[place], place))


def _product_start(node: Node, position: dict[int, int]) -> int | None:
    """Return the first place of the views that bring a product its operands; None for other nodes."""
    if node.op != "reduce" or node.attrs["fn"] != "sum":
        return None
    times = node.inputs[0].node
    if times.op != "elementwise" or times.attrs["fn"] != "mul":
        return None
    first = None
    for value in times.inputs:
        brought = value.node
        while brought.op == "view" and id(brought) in position:
            first = position[id(brought)] if first is None else min(first, position[id(brought)])
            brought = brought.inputs[0].node
    return first


def _cuts(labels: Sequence[int], crossing: _Crossing, begin: int, end: int) -> Iterator[int]:
    """Yield cuts between repetitions in [begin, end): of the longest one first, then of what it leaves on both sides."""
    waiting = [(begin, end)]
    while waiting:
        begin, end = waiting.pop()
        found = _longest_repetition(labels, begin, end)
        if found is None:
            continue
        start, stop, period = found
        first = crossing.best(start, min(start + period, stop - period + 1))
        cuts = range(first, stop + 1, period)
        if len(cuts) < 3:  # two whole copies need three cuts
            cuts = range(start, stop + 1, period)
        yield from cuts
        waiting += [(begin, cuts[0]), (cuts[-1], end)]


def _longest_repetition(labels: Sequence[int], begin: int, end: int) -> tuple[int, int, int] | None:
    """Return (start, stop, period) of the stretch whose repetitions save most nodes; None if none is worth it."""
    best, most = None, 0
    for period in _likely_periods(labels, begin, end):
        start = begin
        for place in range(begin, end - period + 1):
            if place < end - period and labels[place] == labels[place + period]:
                continue
            saved = (place - start) // period * period
            if saved >= max(LEAST_SAVED, most + 1):
                best, most = (start, place + period, period), saved
            start = place + 1
    return best


def _likely_periods(labels: Sequence[int], begin: int, end: int) -> list[int]:
    """Return the commonest distances between one label and the next of its kind, and sums that those make up."""
    seen: dict[int, list[int]] = {}
    distances: Counter[int] = Counter()
    for place in range(begin, end):
        places = seen.setdefault(labels[place], [])
        for earlier in places[-8:]:
            distances[place - earlier] += 1
        places.append(place)
    found = [period for period, _ in distances.most_common(4 * PERIODS_TRIED) if period >= LEAST_PERIOD]
    return found[:PERIODS_TRIED]


def _complete(part: Part, shared: set[int], wanted: set[tuple[int, int]]) -> None:
    """Find a part's inputs and outputs and bring in the constants it reads; `wanted` is what is read behind it."""
    own = {id(node) for node in part.nodes}
    part.outputs = [value for node in part.nodes for value in node.outputs if key(value) in wanted]
    nodes: list[Node] = []
    placed: set[int] = set()
    given: set[tuple[int, int]] = set()
    for node in part.nodes:
        for value in node.inputs:
            if id(value.node) in shared:
                _place(value.node, nodes, placed)
            elif id(value.node) not in own and key(value) not in given:
                given.add(key(value))
                part.inputs.append(value)
        nodes.append(node)
    part.nodes = nodes
    wanted |= given


def _place(node: Node, nodes: list[Node], placed: set[int]) -> None:
    """Append a node that is made of constants, behind its operands, once."""
    waiting = [(node, False)]
    while waiting:
        node, ready = waiting.pop()
        if id(node) in placed:
            continue
        if ready or not node.inputs:
            placed.add(id(node))
            nodes.append(node)
        else:
            waiting.append((node, True))
            waiting.extend((value.node, False) for value in reversed(node.inputs))


def _signature(part: Part) -> Hashable:
    """Return what is equal for two parts only if they are the same program but for the data of their weights."""
    names = {key(value): ("in", number) for number, value in enumerate(part.inputs)}
    spelled = []
    for number, node in enumerate(part.nodes):
        spelled.append((_label(node), tuple(names[key(value)] for value in node.inputs)))
        names.update({key(value): (number, value.index) for value in node.outputs})
    return (
        tuple(value.type for value in part.inputs),
        tuple(spelled),
        tuple(names[key(value)] for value in part.outputs),
    )
