"""The ways to compute one register value inside one kernel: what it loads, and what it computes from that.

A class holds a value many times over, as a load of where it is stored and as a computation. Choosing once per class
could not express fusion, since different kernels want different choices; so for each class and space some whole *cuts*
are kept, and each becomes a kernel to choose from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import fsum
from typing import NamedTuple

from ...plan.view import View
from ..cost import CostModel
from ..scalars import TABLE
from .classes import Classes, Inner, Leaf
from .handles import Handles, Shape
from .lift import dtype_of

Key = tuple[int, int]  # register class, handle of the space

MOST_LEAVES = 24
MOST_NODES = 96


class Cut(NamedTuple):
    """One way to compute `key`.

    `cost` is a rough time, with a share of what its leaves cost to make but without its own launch and store; `rows`
    the reductions' (space, extents).

    `leaves` are the (tensor, view) pairs that are read, `nodes` the (key, node) pairs that are computed, `args` the
    cuts of `node`'s operands.
    """

    cost: float
    key: Key
    node: Leaf | Inner
    args: tuple[Cut, ...]
    leaves: frozenset[tuple[int, int]]
    nodes: frozenset[tuple[Key, Inner]]
    rows: tuple[int, int] | None

    @property
    def tensors(self) -> frozenset[int]:
        return frozenset(tensor for tensor, _ in self.leaves)


@dataclass(frozen=True)
class CutLimits:
    """How many cuts to keep for each value: `best` by cost, and `per_rows` for each kind of reduction inside."""

    best: int = 6
    per_rows: int = 2


class CutFinder:
    """Finds and remembers cuts for one e-graph."""

    def __init__(self, classes: Classes, costs: CostModel, limits: CutLimits = CutLimits()) -> None:
        self.classes = classes
        self.handles: Handles = classes.saturated.handles
        self.costs = costs
        self.limits = limits
        self._cuts: dict[Key, list[Cut]] = {}  # what a reader of the value may choose from
        self._whole: dict[Key, list[Cut]] = {}  # all cuts, where readers do not see all
        self._leaf_seconds: dict[tuple[int, int], float] = {}
        self._tensor_seconds: dict[int, float] = {}
        self.stored_at: dict[Key, list[int]] = {}
        for tensor, stores in classes.stores.items():
            for key in stores:
                self.stored_at.setdefault(key, []).append(tensor)
        self._node_seconds: dict[tuple[Key, Inner], float] = {}
        self._volumes: dict[int, int] = {}

    def cuts(self, register: int, shape: int) -> list[Cut]:
        """Return the cuts of a register class over the space with this handle, cheapest first."""
        root = (register, shape)
        for key in self._operands_first(root):
            if key not in self._cuts:
                self._find(key)
        return self._whole.get(root, self._cuts[root])

    def _find(self, key: Key) -> None:
        """Find the cuts of a key whose operands' cuts are known.

        What is stored from this key is priced by the ways to compute it, so its loads come last.
        """
        own = self.stored_at.get(key, ())
        loads = [node for node in self._nodes(key) if node.kind == "load" and node.tensor in own]
        others = [node for node in self._nodes(key) if node not in loads]
        found = [cut for node in others for cut in self._of_node(key, node) if cut.tensors.isdisjoint(own)]
        self._cuts[key] = self._kept(found)
        if loads:
            read = [cut for node in loads for cut in self._leaf(key, node)]
            if any(node.tensor in self.classes.ends and self.classes.sinks.get(node.tensor, 0) > 1 for node in loads):
                # It is in memory in any case, and several want it: nobody computes it again.
                self._whole[key] = self._kept(found + read)
                found = []
            self._cuts[key] = self._kept(found + read)

    def _operands_first(self, root: Key) -> Iterable[Key]:
        """Yield what the root may need, operands first. A value met on the way to itself is no operand of itself."""
        visited: set[Key] = set()
        stack: list[tuple[Key, Iterator[Key] | None]] = [(root, None)]
        while stack:
            key, operands = stack.pop()
            if operands is None:
                if key in visited or key in self._cuts:
                    continue
                visited.add(key)
                operands = iter([needed for node in self._nodes(key) for needed in self._needed(node, key)])
            for operand in operands:
                if operand not in visited and operand not in self._cuts:
                    stack.append((key, operands))
                    stack.append((operand, None))
                    break
            else:
                yield key

    def _needed(self, node: Leaf | Inner, key: Key) -> Iterable[Key]:
        """Yield the keys of a node's operands, and of what is stored in a tensor that it loads: its price counts."""
        if not isinstance(node, Leaf):
            yield from self._argument_keys(node, key)
        elif node.kind == "load":
            yield from self.classes.stores.get(node.tensor, ())
            for call in self.classes.library.get(node.tensor, ()):
                for operand in call.operands:
                    yield from self.classes.stores.get(operand, ())

    def tensor_seconds(self, tensor: int) -> float:
        """Return roughly what having the tensor costs one of its readers: nothing if it is there in any case."""
        if tensor in self.classes.inputs or tensor in self.classes.ends:
            return 0.0
        if tensor not in self._tensor_seconds:
            self._tensor_seconds[tensor] = self.costs.target.launch  # for whoever comes round to it meanwhile
            ways = [
                cut.cost
                for key in self.classes.stores.get(tensor, ())
                for cut in self._whole.get(key, self._cuts.get(key, ()))
                if tensor not in cut.tensors
            ]
            size = dtype_of(self.classes.tensor_dtypes[tensor]).size
            written = self.costs.volume(self.classes.shape_of(tensor)) * size
            seconds = self.costs.target.launch + min(ways, default=0.0) + written / self.costs.target.bandwidth
            for call in self.classes.library.get(tensor, ()):
                operands = sum(self.tensor_seconds(operand) for operand in call.operands)
                seconds = min(seconds, operands + self.costs.lt(self.handles.thing(call.record)))
            self._tensor_seconds[tensor] = seconds / max(1, self.classes.sinks.get(tensor, 0))
        return self._tensor_seconds[tensor]

    def _nodes(self, key: Key) -> list[Leaf | Inner]:
        return self.classes.registers.get(key[0], [])

    def _argument_keys(self, node: Leaf | Inner, key: Key) -> list[Key]:
        """Return the keys of a node's operands, computed over the key's space; [] where the node does not fit there."""
        if isinstance(node, Leaf):
            return []
        space = key[1]
        if node.kind == "reduce":
            space = self.handles.shape(self.space(space) + self.space(node.extents))
        elif node.kind == "broadcast":
            full, extents = self.space(space), self.space(node.extents)
            if full[len(full) - len(extents) :] != extents:
                return []
            space = self.handles.shape(full[: len(full) - len(extents)])
        return [(arg, space) for arg in node.args]

    def space(self, handle: int) -> Shape:
        return self.handles.thing(handle)

    def volume(self, shape: int) -> int:
        if shape not in self._volumes:
            self._volumes[shape] = self.costs.volume(self.space(shape))
        return self._volumes[shape]

    def _of_node(self, key: Key, node: Leaf | Inner) -> Iterable[Cut]:
        return self._leaf(key, node) if isinstance(node, Leaf) else self._inner(key, node)

    def _leaf(self, key: Key, node: Leaf) -> Iterable[Cut]:
        if node.kind == "load":
            view: View = self.handles.thing(node.handle)
            if view.out_shape == self.space(key[1]):
                leaf = (node.tensor, node.handle)
                seconds = self.leaf_seconds(leaf, node.dtype)
                yield Cut(seconds, key, node, (), frozenset([leaf]), frozenset(), None)
        elif node.kind == "const" or node.shape == key[1]:
            yield Cut(0.0, key, node, (), frozenset(), frozenset(), None)

    def leaf_seconds(self, leaf: tuple[int, int], dtype: int) -> float:
        if leaf not in self._leaf_seconds:
            view: View = self.handles.thing(leaf[1])
            repeated = set(view.broadcast_axes())
            touched = self.costs.volume(tuple(d for axis, d in enumerate(view.out_shape) if axis not in repeated))
            held = self.costs.volume(view.in_shape)
            seconds = min(touched, held) * dtype_of(dtype).size / self.costs.target.bandwidth
            self._leaf_seconds[leaf] = seconds + self.tensor_seconds(leaf[0])
        return self._leaf_seconds[leaf]

    def _inner(self, key: Key, node: Inner) -> Iterable[Cut]:
        arguments = self._argument_keys(node, key)
        choices = [self._cuts.get(argument, []) for argument in arguments]
        if not arguments or not all(choices):
            return
        if len(choices) > 2:
            choices = [_few(cuts) for cuts in choices]
        for args in product(*choices):
            cut = self._combined(key, node, args)
            if cut is not None:
                yield cut

    def _combined(self, key: Key, node: Inner, args: tuple[Cut, ...]) -> Cut | None:
        rows = None
        for arg in args:
            if arg.rows is not None:
                if rows is not None and rows != arg.rows:
                    return None
                rows = arg.rows
        if node.kind == "reduce":
            own = (key[1], node.extents)
            if rows is not None and rows != own:
                return None
            rows = own
        elif node.kind == "broadcast" and (rows is None or rows[1] != node.extents):
            return None  # without a reduction below, the load through the repeating view says the same
        if rows is not None and self.space(key[1]) not in (self.space(rows[0]), self._full(rows)):
            return None
        if len(args) == 1:
            leaves, nodes = args[0].leaves, args[0].nodes | {(key, node)}
        else:
            leaves = frozenset().union(*(arg.leaves for arg in args))
            nodes = frozenset([(key, node)]).union(*(arg.nodes for arg in args))
        if node.kind == "gather":
            leaves = leaves | {(node.tensor, 0)}
        if len(leaves) > MOST_LEAVES or len(nodes) > MOST_NODES:
            return None
        shared = len(args) > 1 and sum(len(arg.nodes) for arg in args) + 1 > len(nodes)
        overlap = len(args) > 1 and sum(len(arg.leaves) for arg in args) > len(leaves)
        cost = sum(arg.cost for arg in args) + self._seconds(key, node)
        if shared or overlap:
            cost -= self._counted_twice(args)
        return Cut(cost, key, node, args, leaves, nodes, rows)

    def _full(self, rows: tuple[int, int]) -> Shape:
        return self.space(rows[0]) + self.space(rows[1])

    def _counted_twice(self, args: tuple[Cut, ...]) -> float:
        """Return the cost of what several operands have in common, but for its first time."""
        again: list[float] = []
        leaves = set(args[0].leaves)
        nodes = set(args[0].nodes)
        for arg in args[1:]:
            again += [self._leaf_seconds.get(leaf, 0.0) for leaf in arg.leaves & leaves]
            again += [self._node_seconds[item] for item in arg.nodes & nodes]
            leaves |= arg.leaves
            nodes |= arg.nodes
        return fsum(again)  # exact, so that the order of a set does not show

    def _seconds(self, key: Key, node: Inner) -> float:
        item = (key, node)
        if item not in self._node_seconds:
            volume = self.volume(key[1])
            if node.kind == "reduce":
                volume *= self.volume(node.extents)
            cost = TABLE[node.fn].cost if node.kind == "elementwise" else 0.0 if node.kind == "broadcast" else 1.0
            seconds = volume * cost * 2 / self.costs.target.f32_flops
            if node.kind == "gather":
                seconds += volume * dtype_of(node.dtype).size / self.costs.target.bandwidth
            self._node_seconds[item] = seconds
        return self._node_seconds[item]

    def _kept(self, found: list[Cut]) -> list[Cut]:
        """Return the cheapest cuts, one for each set of leaves, the least fused of all, and some for each `rows`."""
        found.sort(key=lambda cut: (cut.cost, len(cut.nodes)))
        distinct: dict[tuple, Cut] = {}
        for cut in found:
            distinct.setdefault((cut.leaves, cut.rows), cut)
        kept, counts = [], {}
        for cut in distinct.values():
            counts[cut.rows] = counts.get(cut.rows, 0) + 1
            if len(kept) < self.limits.best or counts[cut.rows] <= self.limits.per_rows:
                kept.append(cut)
        if found:
            least = min(found, key=lambda cut: len(cut.nodes))
            if all(cut is not least for cut in kept) and not any(
                cut.leaves == least.leaves and len(cut.nodes) == len(least.nodes) for cut in kept
            ):
                kept.append(least)
        return kept


def _few(cuts: list[Cut]) -> list[Cut]:
    """Return the four cheapest cuts, and the least fused: with it the node fits into a kernel however large."""
    least = min(cuts, key=lambda cut: len(cut.nodes))
    return cuts[:4] if least in cuts[:4] else [*cuts[:4], least]
