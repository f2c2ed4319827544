"""The program: a graph of primitive operations on typed tensors.

A `Graph` is what the importer builds, what the interpreter runs and what the e-graph is filled from. It knows neither
ONNX nor CUDA. Broadcasting, dtype changes and index arithmetic are all explicit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..plan.dims import Dim, Range
from ..plan.dtypes import DType


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


@dataclass(frozen=True, eq=False)
class Node:
    """One use of a primitive (`ir/primitives.py` has the table). Compared by identity.

    `origin` lists the names of the ONNX nodes that it came from, so that any kernel leads back to the model.
    """

    op: str
    inputs: tuple[Value, ...]
    attrs: Mapping[str, Any]
    types: tuple[TensorType, ...]
    origin: tuple[str, ...] = ()

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


@dataclass
class Graph:
    """A whole program. `inputs` are `input` nodes' values in signature order; `ranges` bounds every symbolic dim.

    `input_names` and `output_names` run parallel to `inputs` and `outputs`; one value may be several outputs.
    """

    name: str
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    input_names: list[str] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    ranges: dict[str, Range] = field(default_factory=dict)

    def nodes(self) -> list[Node]:
        """Every node that an output depends on, and every input, each after its operands; the order is stable."""
        return topological([*self.inputs, *self.outputs])


def topological(roots: Iterable[Value]) -> list[Node]:
    """Nodes reachable from `roots`, operands first, in a deterministic order. Iterative: depth has no limit."""
    order: list[Node] = []
    done: set[int] = set()
    for root in roots:
        stack: list[tuple[Node, int]] = [(root.node, 0)]
        while stack:
            node, position = stack.pop()
            if id(node) in done:
                continue
            if position < len(node.inputs):
                stack.append((node, position + 1))
                operand = node.inputs[position].node
                if id(operand) not in done:
                    stack.append((operand, 0))
                continue
            done.add(id(node))
            order.append(node)
    return order
