"""fold_constants: computes what no feed decides.

It takes any legal graph and returns one of equal meaning. It stands between import and the e-graph, which should see a
batch normalisation folded into its weights as the one constant that it is. Rules:

- A node whose operands come from constants is computed if the result takes no more bytes than the constants below it,
  or at most 64 KiB. What comes from iotas and single numbers only is cheap to compute anywhere and stays, beyond 1 KiB.
- A view of a constant stays a view, since it costs nothing; small ones that repeat no element are computed.
- Loops and branches are made smaller, and what is in them is folded too (`bodies`).
- A tensor of one repeated element becomes that element and a view, whatever its size; so does a constant of one.
- A tensor without elements becomes such a view too, of any element; so does a reduction over no elements, of the
  reduction's identity. No kernel is made for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...plan.dims import Dim, symbols
from ..builder_core import BuilderCore
from ..control import is_control
from ..graph import Graph, Node, TensorType, Value
from ..interpreter import run
from ..rebuild import copy_node
from ..scalars import REDUCTIONS, evaluate
from .bodies import smaller

SMALL_BYTES = 64 << 10
CHEAP_BYTES = 1 << 10  # results that come from iotas and single numbers only


@dataclass(frozen=True)
class _Known:
    """A value that no feed decides.

    `constants` maps the ids of the constant nodes below it that have more than one element to their bytes; `largest` is
    the size in bytes of the largest tensor that computing it makes.
    """

    constants: dict[int, int]
    largest: int


def fold_constants(graph: Graph, budget_bytes: int = 256 << 20) -> Graph:
    """Return an equal graph with constants folded. No tensor above `budget_bytes` is made on the way."""
    return _Folder(graph, budget_bytes).folded({})


class _Folder:
    def __init__(self, graph: Graph, budget_bytes: int) -> None:
        self.graph = graph
        self.budget = budget_bytes
        self.builder = BuilderCore(graph.name, graph.ranges)
        self.known: dict[Value, _Known] = {}

    def folded(self, known: Mapping[Value, Value]) -> Graph:
        """Return the folded graph. `known` has inputs that are other inputs, or values of other graphs made of constants."""
        images: dict[Value, Value] = {}
        for value in self.graph.inputs:
            images[value] = copy_node(self.builder, value.node, ())
        for value, other in known.items():
            images[value] = images[other] if other in images else self.constants(other)
        nodes = self.graph.nodes()
        used = self.used_outputs(nodes)
        for node in nodes:
            inputs = [images[value] for value in node.inputs]
            if is_control(node):
                images.update(self.control(node, inputs, used[id(node)]))
            elif node.op != "input":
                images[node.output] = self.image(node, inputs)
        for name, value in zip(self.graph.output_names, self.graph.outputs, strict=True):
            self.builder.output(name, images[value])
        result = self.builder.graph
        result.sizes = {
            name: replace(size, value=images[size.value]) for name, size in self.graph.live_sizes().items()
        }
        for name in self.graph.sizes.keys() - result.sizes.keys():
            result.ranges.pop(name, None)
        return result

    def used_outputs(self, nodes: Sequence[Node]) -> dict[int, set[int]]:
        """Return, by node id, which outputs of a node are read."""
        found: dict[int, set[int]] = {}
        sizes = [size.value for size in self.graph.live_sizes().values()]
        for value in (*(value for node in nodes for value in node.inputs), *self.graph.outputs, *sizes):
            found.setdefault(id(value.node), set()).add(value.index)
        return found

    def control(self, node: Node, inputs: Sequence[Value], used: set[int]) -> dict[Value, Value]:
        """Return the images of a loop's or branch's outputs."""

        def fold(body: Graph, known: Mapping[Value, Value]) -> Graph:
            return _Folder(body, self.budget).folded(known)

        made = smaller(node, inputs, used, self.builder.ranges, fold)
        self.builder.origin = node.origin
        outputs = self.builder.control(node.op, made.inputs, made.attrs)
        return {Value(node, index): output for index, output in zip(made.kept, outputs, strict=True)}

    def constants(self, value: Value) -> Value:
        """Build a value of another graph that is a constant, or views of one; the array stays the same object."""
        inputs = [self.constants(operand) for operand in value.node.inputs]
        return self.noted(copy_node(self.builder, value.node, inputs))

    def image(self, node: Node, inputs: list[Value]) -> Value:
        splat = self.of_nothing(node) or self.splat_of_splats(node, inputs)
        if splat is not None:
            return splat
        if node.op == "constant":
            self.builder.origin = node.origin
            return self.constant(node.attrs["data"])
        value = copy_node(self.builder, node, inputs)
        self.note(value)
        if value.node.op in ("constant", "iota") or value not in self.known or not self.is_worth(value):
            return value
        (data,) = run(Graph("", outputs=[value], output_names=["folded"]), {})
        return self.constant(data)

    def constant(self, data: np.ndarray) -> Value:
        """Return data as a constant; as one element and a view where all elements have the same bits."""
        if data.ndim and _repeats_one_element(data):
            element = self.noted(self.builder.constant(data.reshape(-1)[0]))
            return self.noted(self.builder.expand(element, data.shape))
        return self.noted(self.builder.constant(data))

    def of_nothing(self, node: Node) -> Value | None:
        """Return the image of a node that makes no element, or reduces none."""
        type = node.output.type
        if _has_no_element(type.shape):
            element: float | bool = 0
        elif node.op == "reduce" and _has_no_element(node.inputs[0].shape):
            element = REDUCTIONS[node.attrs["fn"]].identity(type.dtype)
        else:
            return None
        self.builder.origin = node.origin
        value = self.noted(self.builder.constant(np.array(element, type.dtype.numpy)))
        return self.noted(self.builder.expand(value, type.shape))

    def splat_of_splats(self, node: Node, inputs: list[Value]) -> Value | None:
        """Return the image of an elementwise node whose operands all repeat one known element."""
        if node.op != "elementwise":
            return None
        elements = [_splat(value) for value in inputs]
        if any(element is None for element in elements):
            return None
        self.builder.origin = node.origin
        result = self.noted(self.builder.constant(evaluate(node.attrs["fn"], elements, node.types[0].dtype)))
        return self.noted(self.builder.expand(result, node.types[0].shape))

    def noted(self, value: Value) -> Value:
        self.note(value)
        return value

    def note(self, value: Value) -> None:
        """Write down whether value is known, from what its operands are."""
        node = value.node
        size = _bytes(value.type)
        if value in self.known or size is None or node.op == "input":
            return
        if node.op == "constant":
            self.known[value] = _Known({id(node): size} if node.attrs["data"].size > 1 else {}, size)
        elif all(operand in self.known for operand in node.inputs) and not _has_symbols(node):
            below = [self.known[operand] for operand in node.inputs]
            constants = {key: bytes for operand in below for key, bytes in operand.constants.items()}
            self.known[value] = _Known(constants, max([size, *(operand.largest for operand in below)]))

    def is_worth(self, value: Value) -> bool:
        size, known = _bytes(value.type), self.known[value]
        if known.largest > self.budget:
            return False
        if value.node.op == "view":
            operand = value.node.inputs[0]
            total = value.node.attrs["view"].is_total
            return operand.node.op == "constant" and total and size <= min(SMALL_BYTES, _bytes(operand.type))
        if not known.constants:
            return size <= CHEAP_BYTES
        return size <= max(SMALL_BYTES, sum(known.constants.values()))


def _has_no_element(shape: Sequence[Dim]) -> bool:
    return any(type(extent) is int and extent == 0 for extent in shape)


def _bytes(type: TensorType) -> int | None:
    """Return the bytes of a tensor of known extents, else None."""
    if not all(isinstance(extent, int) for extent in type.shape):
        return None
    return math.prod(type.shape) * type.dtype.size


def _has_symbols(node: Node) -> bool:
    view = node.attrs.get("view")
    dims: list[Dim] = [*view.index, *(part for bound in view.valid for part in vars(bound).values())] if view else []
    return any(symbols(dim) for dim in (*dims, node.attrs.get("expr", 0)))


def _repeats_one_element(data: np.ndarray) -> bool:
    """Say whether all elements have the same bits; there is at least one."""
    if data.size == 0:
        return False
    bits = np.ascontiguousarray(data).reshape(-1).view(np.uint8).reshape(data.size, data.itemsize)
    sample = bits[: 1 << 10]  # enough to tell most weights without reading them
    return bool((sample == bits[0]).all() and (bits == bits[0]).all())


def _splat(value: Value) -> np.ndarray | None:
    """Return the one element that value repeats, of rank 0, if it is a constant one or a view of such."""
    node = value.node
    if node.op == "view" and node.attrs["view"].is_total:
        node = node.inputs[0].node
    if node.op != "constant" or node.attrs["data"].size != 1:
        return None
    return node.attrs["data"].reshape(())
