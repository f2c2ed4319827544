"""The program: a graph of primitive operations on typed tensors.

A `Graph` is what the importer builds, what the interpreter runs and what the e-graph is filled from. It knows neither
ONNX nor CUDA. Broadcasting, dtype changes and index arithmetic are all explicit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..plan.dims import Dim, Expr, Range, symbols
from ..plan.dtypes import DType
from ..plan.view import View


@dataclass(frozen=True)
class TensorType:
    """What is known of a tensor before running: its dtype and its shape, whose dims may be symbolic."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """One use of a primitive (`ir/primitives.py` has the table), a loop or a branch (`ir/control.py`). Compared by identity.

    `origin` lists the names of the ONNX nodes that it came from, so that any kernel leads back to the model.
    """

    op: str
    inputs: tuple[Value, ...]
    attrs: Mapping[str, Any]
    types: tuple[TensorType, ...]
    origin: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Leave out the operands: through them a node would show all that lies before it."""
        return f"<{self.op}{list(self.origin)} -> {', '.join(map(str, self.types))}>"

    @property
    def output(self) -> Value:
        """The only output; most primitives have one."""
        (value,) = self.outputs
        return value

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(Value(self, index) for index in range(len(self.types)))


@dataclass(frozen=True)
class Value:
    """One output of a node: a tensor."""

    node: Node
    index: int = 0

    @property
    def type(self) -> TensorType:
        return self.node.types[self.index]

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape


@dataclass(frozen=True)
class Size:
    """A size that is known only when the graph runs: the number in `value`, an int64 scalar, or of trips of a loop.

    `least` and `most` bound it, in terms of dims that are known before running.
    """

    value: Value
    least: Dim
    most: Dim


@dataclass
class Graph:
    """A whole program. `inputs` are `input` nodes' values in signature order; `ranges` bounds every symbolic dim.

    `input_names` and `output_names` run parallel to `inputs` and `outputs`; one value may be several outputs. `sizes`
    has the symbols whose values the graph itself computes: a node in whose types or attributes such a symbol stands
    depends on its value, as it does on its operands.
    """

    name: str
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    input_names: list[str] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    ranges: dict[str, Range] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)

    def nodes(self) -> list[Node]:
        """Every node that an output depends on, and every input, each after its operands; the order is stable."""
        return topological([*self.inputs, *self.outputs], self.size_nodes if self.sizes else None)

    def size_nodes(self, node: Node) -> list[Node]:
        """Return the nodes that compute the sizes which `node` needs to be known."""
        needed = [self.sizes[name].value.node for name in sorted(node_symbols(node) & self.sizes.keys())]
        return [other for other in needed if other is not node]  # a branch gives the sizes of its own results

    def live_sizes(self) -> dict[str, Size]:
        """Return those of `sizes` that some node needs, and those that loops count."""
        nodes = self.nodes() if self.sizes else ()
        used = {name for node in nodes for name in (*node_symbols(node), node.attrs.get("count"))}
        return {name: size for name, size in self.sizes.items() if name in used}


def topological(roots: Iterable[Value], more: Callable[[Node], Iterable[Node]] | None = None) -> list[Node]:
    """Nodes reachable from `roots`, operands first, in a deterministic order. Iterative: depth has no limit.

    `more` gives what else a node comes after.
    """
    order: list[Node] = []
    done: set[int] = set()
    for root in roots:
        stack: list[tuple[Node, list[Node] | None]] = [(root.node, None)]
        while stack:
            node, waiting = stack.pop()
            if id(node) in done:
                continue
            if waiting is None:
                waiting = [value.node for value in reversed(node.inputs)]
                if more is not None:
                    waiting[:0] = more(node)
            if waiting:
                operand = waiting.pop()
                stack.append((node, waiting))
                if id(operand) not in done:
                    stack.append((operand, None))
                continue
            done.add(id(node))
            order.append(node)
    return order


def node_symbols(node: Node) -> set[str]:
    """Return the symbols in a node's types and attributes that must have a value before it; not those that it gives one."""
    found = symbols_in((*(type.shape for type in node.types), *node.attrs.values()))
    return found - {node.attrs.get("trip"), node.attrs.get("count")}


def symbols_in(thing: Any) -> set[str]:
    """Return the symbols in a dim, a view, a graph's nodes, or in all members of a tuple or values of a mapping."""
    if isinstance(thing, Expr):
        return symbols(thing)
    if isinstance(thing, View):
        return symbols_in((*thing.index, *map(vars, thing.valid)))
    if isinstance(thing, Graph):
        return {name for node in thing.nodes() for name in node_symbols(node)} - thing.sizes.keys()
    if isinstance(thing, tuple | dict):
        parts = thing.values() if isinstance(thing, dict) else thing
        return {name for part in parts for name in symbols_in(part)}
    return set()
