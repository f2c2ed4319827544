"""Control flow: the two kinds of node that hold whole graphs, their bodies.

A body is a `Graph` of its own. What it takes from around it comes in through its inputs, which stand in the order of the
node's operands; it may use the symbols of the graph around it. A node's operands are:

- `loop`: the condition if it is conditional, the states before the first trip, then what the body captures. The body's
  inputs are the states and the captures; its outputs the condition, the next states, and one row for each further output.
  The node's outputs are the states after the last trip, then the rows of all trips.
- `branch`: the condition, then what either body captures. Both bodies have all captures as inputs, and as many outputs.
  `types` are those of the results. Where the bodies' shapes differ from them, the dim is a size of the graph that another
  result of the branch gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..plan.dims import Dim, symbol, symbols
from ..plan.dtypes import bool_
from ..plan.errors import LuminalError
from .graph import Graph, Node, TensorType, Value

LOOP, BRANCH = "loop", "branch"
ATTRIBUTES: Mapping[str, frozenset[str]] = {
    LOOP: frozenset({"body", "trip", "trips", "states", "conditional", "count"}),
    BRANCH: frozenset({"then", "otherwise", "types"}),
}
BODY_NAMES = {LOOP: ("body",), BRANCH: ("then", "otherwise")}


@dataclass(frozen=True)
class Loop:
    """A loop node's attributes.

    `trip` is the symbol of the trip's number in the body. There are at most `trips` trips, as many as the condition
    lets pass if it is None. Without a condition there are exactly `trips`. `states` counts the states. `count` is the
    symbol that stands for the trips made in the shapes of the rows; only a conditional loop has one, and the graph's
    `sizes` list it with an output of the loop.
    """

    body: Graph
    trip: str
    trips: Dim | None
    states: int
    conditional: bool = False
    count: str | None = None

    @property
    def made(self) -> Dim | None:
        """How many rows there are."""
        return self.trips if self.count is None else symbol(self.count)


def is_control(node: Node) -> bool:
    """Say whether a node is a loop or a branch."""
    return node.op in ATTRIBUTES


def loop_of(node: Node) -> Loop:
    """Return a loop node's attributes."""
    return Loop(**node.attrs)


def bodies(node: Node) -> tuple[Graph, ...]:
    """Return the graphs that a node holds; most hold none."""
    return tuple(node.attrs[name] for name in BODY_NAMES.get(node.op, ()))


def with_bodies(node: Node, graphs: Sequence[Graph]) -> dict[str, Any]:
    """Return a control node's attributes with other bodies."""
    return {**node.attrs, **dict(zip(BODY_NAMES[node.op], graphs, strict=True))}


def make_control(op: str, inputs: Sequence[Value], attrs: Mapping[str, Any], origin: tuple[str, ...] = ()) -> Node:
    """Return a new loop or branch; LuminalError if its operands and bodies do not fit together."""
    if set(attrs) != ATTRIBUTES[op]:
        raise LuminalError(f"{op} has the attributes {sorted(ATTRIBUTES[op])}, not {sorted(attrs)}")
    types = control_types(op, [value.type for value in inputs], attrs)
    return Node(op, tuple(inputs), dict(attrs), types, origin)


def control_types(op: str, operands: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    """Return the types of the outputs; LuminalError if operands and bodies do not fit together."""
    problem = next(_loop_problems(operands, Loop(**attrs)) if op == LOOP else _branch_problems(operands, attrs), None)
    if problem is not None:
        raise LuminalError(f"{op}: {problem}")
    if op == BRANCH:
        return tuple(attrs["types"])
    loop = Loop(**attrs)
    results = [value.type for value in loop.body.outputs[loop.conditional :]]
    rows = [TensorType(row.dtype, (loop.made, *row.shape)) for row in results[loop.states :]]
    return (*results[: loop.states], *rows)


def _loop_problems(operands: Sequence[TensorType], loop: Loop) -> Iterator[str]:
    inputs = [value.type for value in loop.body.inputs]
    results = [value.type for value in loop.body.outputs]
    if len(operands) != loop.conditional + len(inputs):
        yield f"{len(operands)} operands, expected {loop.conditional + len(inputs)}"
        return
    if len(inputs) < loop.states or len(results) < loop.conditional + loop.states:
        yield f"the body has {len(inputs)} inputs and {len(results)} outputs for {loop.states} states"
        return
    if loop.trips is None and not loop.conditional:
        yield "it has neither a number of trips nor a condition"
    if loop.count is not None and not loop.conditional:
        yield "it counts its trips, which only a loop with a condition does"
    conditions = [operands[0], results[0]] if loop.conditional else []
    yield from (f"a condition of {type}, expected a scalar bool" for type in conditions if not _is_condition(type))
    yield from _unlike("operand", operands[loop.conditional :], inputs)
    yield from _unlike("state", results[loop.conditional : loop.conditional + loop.states], inputs[: loop.states])
    rows = results[loop.conditional + loop.states :]
    if rows and loop.made is None or (rows and loop.conditional and loop.count is None):
        yield "it has rows but does not count its trips"
    inner = {loop.trip} | loop.body.sizes.keys()
    for type in results:
        if late := sorted(name for extent in type.shape for name in symbols(extent) & inner):
            yield f"a result of {type}, whose shape has {late[0]!r}, which differs from trip to trip"


def _branch_problems(operands: Sequence[TensorType], attrs: Mapping[str, Any]) -> Iterator[str]:
    if not operands or not _is_condition(operands[0]):
        yield f"a condition of {operands[0] if operands else 'nothing'}, expected a scalar bool"
        return
    for name in BODY_NAMES[BRANCH]:
        body: Graph = attrs[name]
        yield from _unlike(f"capture of {name}", operands[1:], [value.type for value in body.inputs])
        if len(body.outputs) != len(attrs["types"]):
            yield f"{len(body.outputs)} results of {name}, expected {len(attrs['types'])}"
        for number, (value, type) in enumerate(zip(body.outputs, attrs["types"])):
            free = [_is_symbol(extent) for extent in type.shape]
            alike = value.dtype is type.dtype and value.type.rank == type.rank
            if not alike or any(a != b and not late for a, b, late in zip(value.shape, type.shape, free)):
                yield f"result {number} of {name} is {value.type}, expected {type}"
            elif late := sorted(
                symbol_name
                for extent, stated in zip(value.shape, type.shape)
                if extent == stated
                for symbol_name in symbols(extent) & body.sizes.keys()
            ):
                yield f"a result of {type}, whose shape has the size {late[0]!r} that one branch computes"


def differing(node: Node) -> set[str]:
    """Return the symbols in a branch's types that stand for what differs between its bodies."""
    return {
        name
        for body in bodies(node)
        for value, type in zip(body.outputs, node.types)
        for extent, stated in zip(value.shape, type.shape)
        if extent != stated
        for name in symbols(stated)
    }


def _is_symbol(extent: Dim) -> bool:
    return any(extent == symbol(name) for name in symbols(extent))


def _is_condition(type: TensorType) -> bool:
    return type.dtype is bool_ and not type.shape


def _unlike(what: str, found: Sequence[TensorType], expected: Sequence[TensorType]) -> Iterator[str]:
    if len(found) != len(expected):
        yield f"{len(found)} {what}s, expected {len(expected)}"
    for number, (one, other) in enumerate(zip(found, expected)):
        if one != other:
            yield f"{what} {number} is {one}, expected {other}"
