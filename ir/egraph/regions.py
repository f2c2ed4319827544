"""From a cut to a `Region`: the small program that one generated kernel runs."""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.dtypes import int64
from ...plan.errors import LuminalError
from ...plan.view import View
from ..graph import TensorType
from ..region import Broadcast, Constant, Elementwise, Gather, Iota, Load, Reduce, Region, RegionNode
from .classes import Classes, Inner, Leaf
from .cuts import Cut, Key
from .handles import Handles, Shape, over_shape
from .lift import dtype_of


@dataclass(frozen=True)
class BuiltRegion:
    """A region that stores nothing yet, the tensor that each slot reads, and where each key was computed or loaded."""

    nodes: tuple[RegionNode, ...]
    operands: tuple[TensorType, ...]
    reads: tuple[int, ...]
    places: dict[Key, int]

    def storing(self, keys: tuple[Key, ...]) -> Region:
        """Return the region that stores these values, in this order."""
        return Region(self.nodes, tuple(self.places[key] for key in keys), self.operands)


class RegionBuilder:
    """Turns cuts of one e-graph into regions; one node for each register class and space."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self.handles: Handles = classes.saturated.handles

    def build(self, cut: Cut) -> BuiltRegion:
        """Return the region of a cut. Where two operands chose different cuts of one value, the first stands."""
        nodes: list[RegionNode] = []
        operands: list[TensorType] = []
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
            args = tuple(places[arg.key] for arg in current.args)
            places[key] = len(nodes)
            nodes.append(self._node(current, args, slots, operands))
        return BuiltRegion(tuple(nodes), tuple(operands), tuple(slots), places)

    def _node(
        self, cut: Cut, args: tuple[int, ...], slots: dict[int, int], operands: list[TensorType]
    ) -> RegionNode:
        node, space = cut.node, self.handles.thing(cut.key[1])
        if isinstance(node, Leaf):
            return self._leaf(node, space, slots, operands)
        dtype = dtype_of(self.classes.dtypes[cut.key[0]])
        if node.kind == "elementwise":
            return Elementwise(node.fn, args, dtype, space)
        if node.kind == "gather":
            slot = self._slot(node, self.classes.shape_of(node.tensor), slots, operands)
            return Gather(slot, args, dtype, space)
        extents: Shape = self.handles.thing(node.extents)
        if node.kind == "reduce":
            return Reduce(node.fn, args, extents, dtype, space)
        return Broadcast(args, extents, dtype, space)

    def _leaf(self, node: Leaf, space: Shape, slots: dict[int, int], operands: list[TensorType]) -> RegionNode:
        if node.kind == "const":
            return Constant(self.handles.thing(node.handle), dtype_of(node.dtype), space)
        if node.kind == "iota":
            return Iota(self.handles.thing(node.handle), int64, space)
        view: View = self.handles.thing(node.handle)
        slot = self._slot(node, view.in_shape, slots, operands)
        seen = over_shape(view, operands[slot].shape, self.handles.ranges)
        if seen is None:
            raise LuminalError(f"tensor class {node.tensor} is read as {view} and as {operands[slot]}")
        return Load(slot, seen, dtype_of(node.dtype), space)

    def _slot(self, node: Leaf | Inner, shape: Shape, slots: dict[int, int], operands: list[TensorType]) -> int:
        if node.tensor not in slots:
            slots[node.tensor] = len(slots)
            operands.append(TensorType(dtype_of(self.classes.tensor_dtypes[node.tensor]), shape))
        return slots[node.tensor]
