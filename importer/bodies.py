"""Bodies of loops and branches: cut out of the graph that one builder builds.

A body is imported with the builder of the graph around it: its states are `input` nodes that the graph does not list, its
trip a symbol. Afterwards what belongs into the body is copied out into a graph of its own, and what it reads of the rest
becomes its captures. So a loop's body has only what differs from trip to trip; all else stays outside and is computed
once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ..ir.builder_core import BuilderCore
from ..ir.control import BODY_NAMES, BRANCH, LOOP, Loop
from ..ir.graph import Graph, Node, Size, TensorType, Value, node_symbols, topological
from ..ir.primitives import make_node
from ..ir.rebuild import copy_outputs
from ..plan.dims import Dim, Expr, Range, bounds, evaluate, maximum, symbol, symbols
from ..plan.dtypes import int64
from .context import NodeBuilder

UNBOUNDED = 2**31 - 1  # what the number of a trip is taken to stay below where nothing else bounds it


@contextmanager
def trip_symbol(b: NodeBuilder, trips: Dim | None) -> Iterator[Expr]:
    """Give a name to the number of a loop's trip while its body is imported.

    Loops of equal bounds at equal depth use one name, so that equal bodies have equal kernels.
    """
    low, high = (0, UNBOUNDED) if trips is None else bounds(trips, b.ranges)
    most = max((UNBOUNDED if high is None else high) - 1, 0)
    usual = 16 if trips is None else int(evaluate(trips, {name: known.opt for name, known in b.ranges.items()}))
    wanted = Range(0, min(max(usual // 2, 0), most), most)
    number = 0
    while f"trip{number}" in b.ranges or b.trip_ranges.get(f"trip{number}", wanted) != wanted:
        number += 1
    name = f"trip{number}"
    b.trip_ranges[name] = b.ranges[name] = wanted
    try:
        yield symbol(name)
    finally:
        del b.ranges[name]


def state(b: NodeBuilder, type: TensorType) -> Value:
    """Return a value that stands for a loop's state while its body is imported."""
    b.states_made += 1
    return Value(make_node("input", (), {"name": f"state{b.states_made}"}, type, b.origin))


def fitted(b: NodeBuilder, value: Value, type: TensorType, what: str) -> Value:
    """Return a value that must be of this type as just that; UnsupportedModel, naming `what`, if it is not known to be."""
    alike = value.dtype is type.dtype and value.type.rank == type.rank
    if not alike or not all(b.agree(one, other) for one, other in zip(value.shape, type.shape)):
        b.fail(f"{what} is {value.type}, which is not known to be {type}")
    return b.reshape(value, type.shape)


def loop(
    b: NodeBuilder,
    trip: Expr,
    trips: Dim | None,
    initial: Sequence[Value],
    states: Sequence[Value],
    following: Sequence[Value],
    rows: Sequence[Value],
    condition: tuple[Value, Value] | None = None,
    count: str | None = None,
) -> tuple[Value, ...]:
    """Return the last states and the collected rows of a loop whose body was imported within `trip_symbol`.

    `following` are the states after a trip, of the same types as `states`. `condition` is looked at before the first
    trip, then after each.
    """
    (name,) = symbols(trip)
    outputs = [*([] if condition is None else [condition[1]]), *following, *rows]
    changing = {id(value.node) for value in states}
    late = {name}  # symbols that differ from trip to trip
    for node in topological(outputs, b.graph.size_nodes):
        if any(id(value.node) in changing for value in node.inputs) or not late.isdisjoint(node_symbols(node)):
            changing.add(id(node))
            late |= {size for size, known in b.graph.sizes.items() if known.value.node is node}
    captured: dict[Value, str] = {}
    body = _Cut(b, f"{b.node.name}/body", states, changing, captured).graph(outputs, {name})
    body = _with_captures(body, captured)
    attrs = Loop(body, name, trips, len(states), condition is not None, count)
    operands = [*([] if condition is None else [condition[0]]), *initial, *captured]
    return b.control(LOOP, operands, vars(attrs))


def branch(
    b: NodeBuilder, condition: Value, made_before: int, then: Sequence[Value], otherwise: Sequence[Value]
) -> tuple[Value, ...]:
    """Return what one of two branches gives; both were imported when the builder had made `made_before` nodes.

    Results are of one dtype and rank. Where their shapes differ, the result has a size that is known when the model runs.
    """
    types, differing = _merged_types(b, then, otherwise)
    sides = [
        [*values, *(b.dim_value(values[number].shape[axis]) for number, axis, _ in differing)]
        for values in (then, otherwise)
    ]
    own = {id(node) for node in b.made_since(made_before)}
    captured: dict[Value, str] = {}
    names = (f"{b.node.name}/then", f"{b.node.name}/otherwise")
    cut = [_Cut(b, name, (), own, captured).graph(outputs) for name, outputs in zip(names, sides)]
    attrs = {name: _with_captures(body, captured) for name, body in zip(BODY_NAMES[BRANCH], cut)}
    outputs = b.control(BRANCH, [condition, *captured], {**attrs, "types": types})
    for (number, axis, name), value in zip(differing, outputs[len(then) :]):
        b.graph.sizes[name] = Size(value, 0, _most(b, then[number].shape[axis], otherwise[number].shape[axis]))
    return outputs[: len(then)]


def _merged_types(
    b: NodeBuilder, then: Sequence[Value], otherwise: Sequence[Value]
) -> tuple[tuple[TensorType, ...], list[tuple[int, int, str]]]:
    """Return the types of a branch's results, and (result, axis, name) of each size that differs; those are results too."""
    types, differing = [], []
    for number, (yes, no) in enumerate(zip(then, otherwise, strict=True)):
        shape = list(yes.shape)
        for axis, (one, other) in enumerate(zip(yes.shape, no.shape, strict=True)):
            if one != other:
                name = b.unused_dim("branch")
                _, high = bounds(_most(b, one, other), b.ranges)
                if high is None:
                    b.fail(f"nothing bounds the size of axis {axis} of its result {number}, {one} or {other}")
                usual = evaluate(maximum(one, other), {key: known.opt for key, known in b.ranges.items()})
                b.ranges[name] = Range(0, min(int(usual), high), high)
                differing.append((number, axis, name))
                shape[axis] = symbol(name)
        types.append(TensorType(yes.dtype, tuple(shape)))
    return (*types, *(TensorType(int64, ()) for _ in differing)), differing


def _most(b: NodeBuilder, one: Dim, other: Dim) -> Dim:
    """Return the larger of two dims, as far as it is known before the model runs."""
    most = b.larger(one, other)
    return bounds(most, b.ranges)[1] if symbols(most) & b.graph.sizes.keys() else most


class _Cut:
    """Copies nodes into a body. `inside` has the ids of those that belong there; `captured` gets what they read besides.

    Constants, index arithmetic and views are free, so they are copied too rather than captured.
    """

    def __init__(
        self, b: NodeBuilder, name: str, states: Sequence[Value], inside: set[int], captured: dict[Value, str]
    ) -> None:
        self.around = b
        self.builder = BuilderCore(name, b.ranges)
        self.inside, self.captured = inside, captured
        self.images = {value: self.input(value, value.node.attrs["name"]) for value in states}

    def graph(self, outputs: Sequence[Value], needed: Collection[str] = ()) -> Graph:
        """Return the body; of the dims it lists those it uses, and the `needed` ones."""
        sizes = self.around.graph.sizes
        for node in topological(outputs, self.around.graph.size_nodes):
            if id(node) in self.inside and node.op != "input":
                self.copy(node)
        for number, value in enumerate(outputs):
            self.builder.output(f"y{number}", self.image(value))
        graph = self.builder.graph
        own = {
            name: size
            for name, size in sizes.items()
            if id(size.value.node) in self.inside and size.value in self.images
        }
        graph.sizes = {name: replace(size, value=self.images[size.value]) for name, size in own.items()}
        used = {name for node in graph.nodes() for name in node_symbols(node)} | set(needed)
        used |= {name for size in own.values() for bound in (size.least, size.most) for name in symbols(bound)}
        used |= {node.attrs["count"] for node in graph.nodes() if node.attrs.get("count")}
        graph.ranges = {name: known for name, known in graph.ranges.items() if name in used}
        return graph

    def image(self, value: Value) -> Value:
        """Return the value in the body."""
        if value not in self.images:
            node = value.node
            if node.op in ("constant", "view") or _is_free(node):
                self.copy(node)
            else:
                name = self.captured.setdefault(value, f"capture{len(self.captured)}")
                self.images[value] = self.input(value, name)
        return self.images[value]

    def copy(self, node: Node) -> None:
        outputs = copy_outputs(self.builder, node, [self.image(value) for value in node.inputs])
        self.images.update(zip(node.outputs, outputs, strict=True))

    def input(self, value: Value, name: str) -> Value:
        self.builder.origin = ()
        return self.builder.input(name, value.dtype, value.shape)


def _is_free(node: Node) -> bool:
    """Say whether a node is made of indices and single numbers only, which any kernel computes on its way."""
    if node.op == "constant":
        return node.attrs["data"].size == 1
    return node.op == "iota" or (
        node.op in ("elementwise", "view") and all(_is_free(value.node) for value in node.inputs)
    )


def _with_captures(body: Graph, captured: Mapping[Value, str]) -> Graph:
    """Return the body with all captures as inputs, in order after its states."""
    by_name = dict(zip(body.input_names, body.inputs, strict=True))
    names = [name for name in body.input_names if name not in captured.values()]
    for value, name in captured.items():
        names.append(name)
        if name not in by_name:
            by_name[name] = Value(make_node("input", (), {"name": name}, value.type))
    return replace(body, inputs=[by_name[name] for name in names], input_names=names)
