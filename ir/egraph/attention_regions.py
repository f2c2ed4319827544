"""From what the rules call attention to regions that compute all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...plan.dims import Ranges
from ...plan.dtypes import DType
from ..graph import TensorType
from ..region import Broadcast, Elementwise, Load, Reduce, Region, RegionNode
from ..region_moves import moved
from .attention import Reading, beside
from .classes import Classes, Inner
from .cuts import CutFinder
from .handles import over_shape
from .lift import dtype_of
from .regions import RegionBuilder, Sketch


class Found(NamedTuple):
    """A region for an attention, the tensors that it reads, and the register classes that it computes."""

    region: Region
    reads: tuple[int, ...]
    registers: tuple[int, ...]


class AttentionFinder:
    """Turns what the rules call attention, and the ways to compute its logits, into regions."""

    def __init__(self, classes: Classes, cuts: CutFinder, builder: RegionBuilder) -> None:
        self.classes, self.cuts, self.builder = classes, cuts, builder
        self.handles = classes.saturated.handles
        self.found: dict[int, list[tuple[int, int, int, Reading]]] = {}
        for logits, probabilities, weighed, values, handle, tensor in classes.saturated.rows["Attend"]:
            # A tensor that nobody should load any more is no way to read the values either.
            if any(node.kind == "load" and node.tensor == values for node in classes.registers[weighed]):
                read = self.handles.thing(handle)
                self.found.setdefault(tensor, []).append((logits, probabilities, values, read))
        self._regions: dict[tuple, Region] = {}

    def of_tensor(self, tensor: int) -> Iterator[Found]:
        """Yield the ways to make the tensor by attention: one for each way to get from both factors to the logits."""
        for logits, probabilities, values, read in self.found.get(tensor, ()):
            shape = self.handles.shape(read.probabilities.in_shape)
            between = self._between(probabilities, logits)
            own = self._products(tensor)
            for cut in self.cuts.cuts(logits, shape):
                if cut.rows is None or cut.rows[0] != shape or tensor in cut.tensors or values == tensor:
                    continue
                sketch = self.builder.sketch(cut)
                reads = sketch.reads if values in sketch.reads else (*sketch.reads, values)
                computed = [step.key[0] for step in sketch.steps if step.is_computed]
                region = self._region(sketch, (logits, shape), tensor, values, probabilities, read)
                yield Found(region, reads, (*computed, *between, *own))

    def _products(self, tensor: int) -> list[int]:
        """Return the register classes stored in the tensor, and in the attention that it holds in another order."""
        own = [register for register, _ in self.classes.stores[tensor]]
        loads = [node for register in own for node in self.classes.registers.get(register, ()) if node.kind == "load"]
        origins = {node.tensor for node in loads if node.tensor in self.found and node.tensor != tensor}
        return [*own, *(register for origin in sorted(origins) for register, _ in self.classes.stores[origin])]

    def _between(self, probabilities: int, logits: int) -> list[int]:
        """Return the register classes on the way from the logits to the probabilities, which are among them."""
        found: dict[int, None] = {}
        stack = [probabilities]
        while stack:
            register = stack.pop()
            if register != logits and register not in found:
                nodes = [node for node in self.classes.registers.get(register, ()) if isinstance(node, Inner)]
                if nodes:
                    found[register] = None
                stack += [arg for node in nodes for arg in node.args]
        return list(found)

    def _region(
        self, sketch: Sketch, key: tuple[int, int], tensor: int, values: int, probabilities: int, read: Reading
    ) -> Region:
        narrow = self.builder.region(sketch, (key,))
        slot = sketch.reads.index(values) if values in sketch.reads else len(sketch.reads)
        dtypes = (dtype_of(self.classes.dtypes[probabilities]), dtype_of(self.classes.tensor_dtypes[tensor]))
        name = (id(narrow), slot, dtypes, read)
        if name not in self._regions:
            self._regions[name] = attention_region(narrow, read, slot, *dtypes, self.handles.ranges)
        return self._regions[name]


def attention_region(
    narrow: Region, read: Reading, slot: int, weights: DType, result: DType, ranges: Ranges
) -> Region:
    """Return the region from the one that stores the logits: all of it over the result's space, see `ir/attention.py`.

    `slot` is the values' operand, perhaps a new one; `weights` is the dtype in which probabilities are multiplied.
    """
    moves = {read.probabilities.in_shape: read.probabilities}
    for node in narrow.reductions:
        moves[node.space + node.extents] = beside(read.probabilities, node.extents, ranges)
    slots = {number: number for number in range(len(narrow.operands))}
    own = {at: at for at in range(len(narrow.nodes))}
    nodes: list[RegionNode] = [moved(node, own, moves, slots, ranges) for node in narrow.nodes]
    space, extents = read.space, read.extents
    full = space + extents

    def add(node: RegionNode) -> int:
        nodes.append(node)
        return len(nodes) - 1

    logits = narrow.stores[0]
    dtype = nodes[logits].dtype
    top = add(Broadcast((add(Reduce("max", (logits,), extents, dtype, space)),), extents, dtype, full))
    powers = add(Elementwise("exp", (add(Elementwise("sub", (logits, top), dtype, full)),), dtype, full))
    total = add(Broadcast((add(Reduce("sum", (powers,), extents, dtype, space)),), extents, dtype, full))
    weighted = add(Elementwise("div", (powers, total), dtype, full))
    if weights is not dtype:
        weighted = add(Elementwise("cast", (weighted,), weights, full))
    operands = list(narrow.operands)
    if slot == len(operands):
        operands.append(TensorType(weights, read.values.in_shape))
    values = over_shape(read.values, operands[slot].shape, ranges)
    loaded = add(Load(slot, values, weights, full))
    out = add(Reduce("sum", (add(Elementwise("mul", (weighted, loaded), result, full)),), extents, result, space))
    return Region(tuple(nodes), (out,), tuple(operands))
