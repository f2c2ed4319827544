"""What the folder does with loops and branches: makes their bodies smaller, and folds inside of them.

- Outputs that nobody reads vanish, and with them the states and rows that only they needed.
- A state that never changes is a capture.
- A capture that is a constant, or a view of one, stands in the body as itself: so the body is folded further, its products
  know their weights, and no weight is stored twice, since the array is the same one.
- A capture that a body does not read any more vanishes; what is captured twice is captured once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...plan.dims import Range
from ..control import BODY_NAMES, LOOP, Loop, bodies, loop_of
from ..graph import Graph, Node, Value, topological

Fold = Callable[[Graph, Mapping[Value, Value]], Graph]


@dataclass(frozen=True)
class Smaller:
    """A control node made smaller: its operands and attributes, and which of the old outputs are left."""

    inputs: tuple[Value, ...]
    attrs: dict[str, object]
    kept: tuple[int, ...]


def smaller(
    node: Node, inputs: Sequence[Value], used: Iterable[int], ranges: Mapping[str, Range], fold: Fold
) -> Smaller:
    """Return the control node over these operands with only the outputs `used`.

    `fold(body, known)` folds a body of which some inputs are the values `known`: other inputs, or made of constants.
    """
    kept = sorted(used)
    if node.op == LOOP:
        return _smaller_loop(loop_of(node), list(inputs), kept, ranges, fold)
    condition, *captures = inputs
    folded = [
        _folded(body, [body.outputs[number] for number in kept], body.inputs, captures, ranges, fold)
        for body in bodies(node)
    ]
    read = {name for body in folded for name in _read_names(body)}
    left = [(name, value) for name, value in zip(bodies(node)[0].input_names, captures) if name in read]
    branches = [_with_inputs(body, [name for name, _ in left]) for body in folded]
    attrs = {**dict(zip(BODY_NAMES[node.op], branches)), "types": tuple(node.types[number] for number in kept)}
    return Smaller((condition, *(value for _, value in left)), attrs, tuple(kept))


def _smaller_loop(loop: Loop, inputs: list[Value], used: list[int], ranges: Mapping[str, Range], fold: Fold) -> Smaller:
    body, first = loop.body, int(loop.conditional)
    following = body.outputs[first : first + loop.states]
    constant = {number for number, value in enumerate(following) if value == body.inputs[number]}
    needed = _needed(loop, used)
    states = [number for number in range(loop.states) if number in needed and not (number in constant - set(used))]
    rows = [number for number in range(loop.states, len(body.outputs) - first) if number in used]
    initial, captures = inputs[first : first + loop.states], inputs[first + loop.states :]
    outputs = [*body.outputs[:first], *(body.outputs[first + number] for number in (*states, *rows))]
    others = [number for number in range(loop.states) if number not in states]
    given = [*(body.inputs[number] for number in others), *body.inputs[loop.states :]]
    captured = [*(initial[number] for number in others), *captures]
    kept_states = [body.inputs[number] for number in states]
    inner = {**ranges, loop.trip: body.ranges[loop.trip]}
    folded = _folded(body, outputs, given, captured, inner, fold, kept_states)
    read = _read_names(folded)
    left = [
        (value.node.attrs["name"], outer) for value, outer in zip(given, captured) if value.node.attrs["name"] in read
    ]
    names = [*(value.node.attrs["name"] for value in kept_states), *(name for name, _ in left)]
    attrs = {**vars(loop), "body": _with_inputs(folded, names), "states": len(states)}
    operands = (*inputs[:first], *(initial[number] for number in states), *(outer for _, outer in left))
    return Smaller(operands, attrs, (*states, *rows))


def _needed(loop: Loop, used: Iterable[int]) -> set[int]:
    """Return the states and rows, numbered as outputs of the loop, that those in `used` and the condition depend on."""
    body, first = loop.body, int(loop.conditional)
    number_of = {id(value.node): number for number, value in enumerate(body.inputs[: loop.states])}
    needed = set(used)
    while True:
        roots = [*body.outputs[:first], *(body.outputs[first + number] for number in sorted(needed))]
        reached = {number_of[id(node)] for node in topological(roots, body.size_nodes) if id(node) in number_of}
        if reached <= needed:
            return needed
        needed |= reached


def _folded(
    body: Graph,
    outputs: Sequence[Value],
    given: Sequence[Value],
    captured: Sequence[Value],
    ranges: Mapping[str, Range],
    fold: Fold,
    states: Sequence[Value] = (),
) -> Graph:
    """Fold a body with these outputs, whose inputs `given` are captured from `captured`."""
    known: dict[Value, Value] = {}
    first_of: dict[Value, Value] = {}
    for value, outer in zip(given, captured, strict=True):
        if is_made_of_constants(outer):
            known[value] = outer
        else:
            known[value] = first_of.setdefault(outer, value)
    open_inputs = [value for value in given if known[value] == value]
    graph = Graph(
        body.name,
        [*states, *open_inputs],
        list(outputs),
        [value.node.attrs["name"] for value in (*states, *open_inputs)],
        [f"y{number}" for number in range(len(outputs))],
        {name: ranges.get(name, range_) for name, range_ in body.ranges.items()},
        dict(body.sizes),
    )
    return fold(graph, {value: other for value, other in known.items() if other != value})


def is_made_of_constants(value: Value) -> bool:
    """Say whether a value is a constant or a view of one."""
    while value.node.op == "view":
        value = value.node.inputs[0]
    return value.node.op == "constant"


def _read_names(body: Graph) -> set[str]:
    """Return the names of the inputs that the outputs depend on."""
    nodes = topological(body.outputs, body.size_nodes)
    return {node.attrs["name"] for node in nodes if node.op == "input"}


def _with_inputs(body: Graph, names: Sequence[str]) -> Graph:
    """Return the body with only these of its inputs, in this order."""
    by_name = dict(zip(body.input_names, body.inputs, strict=True))
    return replace(body, inputs=[by_name[name] for name in names], input_names=list(names))
