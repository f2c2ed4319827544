"""From a cut to a `Region`: the small program that one generated kernel runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...plan.dtypes import int64
from ...plan.errors import LuminalError
from ...plan.view import View
from ..graph import TensorType
from ..region import Broadcast, Constant, Elementwise, Gather, Iota, Load, Reduce, Region, RegionNode
from .classes import Classes, Inner, Leaf
from .cuts import Cut, Key
from .handles import Handles, Shape, over_shape
from .lift import dtype_of


class Step(NamedTuple):
    """One node to be: what it is, over which space, its operands' positions, the slot that it reads or -1."""

    node: Leaf | Inner
    key: Key
    args: tuple[int, ...]
    slot: int

    @property
    def is_computed(self) -> bool:
        """Say whether the node is worth naming: neither read from memory nor made of nothing."""
        return isinstance(self.node, Inner)


@dataclass(frozen=True)
class Sketch:
    """A region in terms of one e-graph: its steps, the tensor class that each slot reads, where each key is."""

    steps: tuple[Step, ...]
    reads: tuple[int, ...]
    places: dict[Key, int]
    signature: tuple


class RegionBuilder:
    """Turns cuts of one e-graph into regions. Equal regions are one object."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self.handles: Handles = classes.saturated.handles
        self._bodies: dict[tuple, tuple[tuple[RegionNode, ...], tuple[TensorType, ...]]] = {}
        self._regions: dict[tuple, Region] = {}

    def sketch(self, cut: Cut) -> Sketch:
        """Lay out the nodes of a cut, one for each register class and space, operands first.

        Where two operands chose different cuts of one value, the first stands.
        """
        steps: list[Step] = []
        signature: list[tuple] = []
        slots: dict[int, int] = {}
        places: dict[Key, int] = {}
        chosen: dict[Key, Cut] = {}
        stack: list[tuple[Cut, bool]] = [(cut, False)]
        while stack:
            current, ready = stack.pop()
            key = current.key
            if key in places:
                continue
            if not ready:
                current = chosen.setdefault(key, current)
                stack.append((current, True))
                stack.extend((arg, False) for arg in reversed(current.args))
                continue
            node = current.node
            args = tuple([places[arg.key] for arg in current.args])
            reads = node.kind == "load" or node.kind == "gather"
            slot = slots.setdefault(node.tensor, len(slots)) if reads else -1
            places[key] = len(steps)
            steps.append(Step(node, key, args, slot))
            signature.append(self._signature(node, key, args, slot))
        return Sketch(tuple(steps), tuple(slots), places, tuple(signature))

    def _signature(self, node: Leaf | Inner, key: Key, args: tuple[int, ...], slot: int) -> tuple:
        if isinstance(node, Leaf):
            return (node.kind, node.handle, node.dtype, key[1], slot)
        held = self.handles.shape(self.classes.shape_of(node.tensor)) if node.kind == "gather" else 0
        return (node.kind, node.fn, args, node.extents, self.classes.dtypes[key[0]], key[1], slot, held)

    def region(self, sketch: Sketch, keys: tuple[Key, ...]) -> Region:
        """Return the region that stores these values, in this order."""
        stores = tuple(sketch.places[key] for key in keys)
        name = (sketch.signature, stores)
        if name not in self._regions:
            if sketch.signature not in self._bodies:
                self._bodies[sketch.signature] = self._body(sketch)
            nodes, operands = self._bodies[sketch.signature]
            self._regions[name] = Region(nodes, stores, operands)
        return self._regions[name]

    def _body(self, sketch: Sketch) -> tuple[tuple[RegionNode, ...], tuple[TensorType, ...]]:
        operands: list[TensorType] = []
        nodes = tuple(self._node(step, operands) for step in sketch.steps)
        return nodes, tuple(operands)

    def _node(self, step: Step, operands: list[TensorType]) -> RegionNode:
        node, space = step.node, self.handles.thing(step.key[1])
        if isinstance(node, Leaf):
            return self._leaf(node, space, step.slot, operands)
        dtype = dtype_of(self.classes.dtypes[step.key[0]])
        if node.kind == "elementwise":
            return Elementwise(node.fn, step.args, dtype, space)
        if node.kind == "gather":
            self._operand(node, step.slot, self.classes.shape_of(node.tensor), operands)
            return Gather(step.slot, step.args, dtype, space)
        extents: Shape = self.handles.thing(node.extents)
        if node.kind == "reduce":
            return Reduce(node.fn, step.args, extents, dtype, space)
        return Broadcast(step.args, extents, dtype, space)

    def _leaf(self, node: Leaf, space: Shape, slot: int, operands: list[TensorType]) -> RegionNode:
        if node.kind == "const":
            return Constant(self.handles.thing(node.handle), dtype_of(node.dtype), space)
        if node.kind == "iota":
            return Iota(self.handles.thing(node.handle), int64, space)
        view: View = self.handles.thing(node.handle)
        self._operand(node, slot, view.in_shape, operands)
        seen = over_shape(view, operands[slot].shape, self.handles.ranges)
        if seen is None:
            raise LuminalError(f"tensor class {node.tensor} is read as {view} and as {operands[slot]}")
        return Load(slot, seen, dtype_of(node.dtype), space)

    def _operand(self, node: Leaf | Inner, slot: int, shape: Shape, operands: list[TensorType]) -> None:
        """Note the slot's type at its first use; all its loads are then written over that shape."""
        if slot == len(operands):
            operands.append(TensorType(dtype_of(self.classes.tensor_dtypes[node.tensor]), shape))
