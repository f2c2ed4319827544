"""From chosen candidates to a `Program`: tensor numbers, launch order, and the way back to the model's nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph import Node, TensorType, Value
from ..program import Kernel, LtKernel, Program, RegionKernel, ScatterKernel, SizeRead, Tensor
from ..schedule import ATTENTION
from .candidates import Candidate
from .classes import Classes
from .lift import dtype_of
from .siblings import Joined
from .waits import rounds


class Assembler:
    """Turns choices of one e-graph into programs.

    `nodes` may be others than the graph's, one for each and doing the same: weights and names are then theirs. `arrays`
    keeps joined weights, so that assemblers that share it make each only once.
    """

    def __init__(
        self, classes: Classes, nodes: Sequence[Node] | None = None, arrays: dict[tuple, np.ndarray] | None = None
    ) -> None:
        self.classes = classes
        self.graph = classes.saturated.graph
        self.lifted = classes.saturated.lifted
        self.nodes = self.lifted.nodes if nodes is None else nodes
        self.arrays = {} if arrays is None else arrays
        self.joined = classes.saturated.joined
        self.origins = self._origins()

    def program(self, ordered: Sequence[Candidate]) -> Program:
        """Return the program that launches the candidates in this order."""
        numbers: dict[int, int] = {}
        tensors: list[Tensor] = []
        for name, value in zip(self.graph.input_names, self.graph.inputs):
            self._number(self._class_of(value), numbers, tensors, name)
        for candidate in ordered:
            for tensor in (*candidate.operands, *candidate.writes):
                self._number(tensor, numbers, tensors)
        for tensor in self.classes.sizes.values():
            self._number(tensor, numbers, tensors)
        outputs = []
        for name, value in zip(self.graph.output_names, self.graph.outputs):
            outputs.append((name, value.type, self._number(self._class_of(value), numbers, tensors)))
        inputs = tuple(
            (name, value.type, numbers[self._class_of(value)])
            for name, value in zip(self.graph.input_names, self.graph.inputs)
        )
        kernels: list[Kernel] = []
        for sizes, launched in rounds(ordered, self.classes.sizes, lambda tensor: tensor in self.classes.inputs):
            kernels.extend(self._size_read(name, numbers) for name in sizes)
            kernels.extend(self._kernel(candidate, numbers) for candidate in launched)
        return Program(self.graph.name, tuple(tensors), tuple(kernels), inputs, tuple(outputs), dict(self.graph.ranges))

    def _size_read(self, name: str, numbers: dict[int, int]) -> SizeRead:
        size = self.graph.sizes[name]
        return SizeRead(name, size.least, size.most, (numbers[self.classes.sizes[name]],), (), size.value.node.origin)

    def label(self, candidate: Candidate) -> str:
        """Return the name of a well-known composition that the kernel computes whole, or ""."""
        if candidate.schedule == ATTENTION:
            return "attention"
        found = []
        for name, known in (
            ("softmax", self.classes.softmax),
            ("layer norm", self.classes.layer_norm),
            ("RMS norm", self.classes.rms_norm - self.classes.layer_norm),
        ):
            if candidate.region is not None and candidate.region.reductions and known.intersection(candidate.registers):
                found.append(name)
        return ", ".join(found)

    def _class_of(self, value: Value) -> int:
        return self.classes.value_class[self.lifted.value_number(value)]

    def _number(self, tensor: int, numbers: dict[int, int], tensors: list[Tensor], name: str = "") -> int:
        if tensor in numbers:
            return numbers[tensor]
        number = numbers[tensor] = len(tensors)
        if tensor in self.classes.inputs:
            value = self.classes.inputs[tensor]
            if value in self.joined:
                tensors.append(self._joined_weight(number, self.joined[value]))
                return number
            node = self.lifted.nodes[value]
            if node.op == "input":
                tensors.append(Tensor(number, node.types[0], "input", name or node.attrs["name"]))
            else:
                node = self.nodes[value]
                weight = node.origin[0] if node.origin else f"constant_{value}"
                tensors.append(Tensor(number, node.types[0], "weight", weight, node.attrs["data"]))
        else:
            type = TensorType(dtype_of(self.classes.tensor_dtypes[tensor]), self.classes.shape_of(tensor))
            tensors.append(Tensor(number, type, "computed", f"t{number}"))
        return number

    def _joined_weight(self, number: int, joined: Joined) -> Tensor:
        what = (*(id(self.nodes[part]) for part in joined.parts), joined.shapes, joined.axis)
        if what not in self.arrays:
            self.arrays[what] = joined.array(self.nodes)
        return Tensor(number, joined.type, "weight", joined.name(self.nodes), self.arrays[what])

    def _kernel(self, candidate: Candidate, numbers: dict[int, int]) -> Kernel:
        reads = tuple(numbers[tensor] for tensor in candidate.operands)
        writes = tuple(numbers[tensor] for tensor in candidate.writes)
        origin = self._origin(candidate)
        if candidate.kind == "lt":
            return LtKernel(candidate.matmul, reads, writes, origin)
        if candidate.kind == "scatter":
            return ScatterKernel(candidate.fn, reads, writes, origin)
        return RegionKernel(candidate.region, candidate.schedule, reads, writes, origin)

    def _origins(self) -> dict[tuple[str, int], dict[str, None]]:
        """Return the names of the model's nodes for each register and tensor class."""
        found: dict[tuple[str, int], dict[str, None]] = {}
        for number, node in enumerate(self.lifted.nodes):
            if node.op in ("input", "constant") or self._is_constant(number):
                continue
            names = dict.fromkeys(self.nodes[number].origin)
            found.setdefault(("tensor", self.classes.value_class[number]), {}).update(names)
            if 2 * number in self.classes.register_class:
                register = self.classes.register_class[2 * number]
                found.setdefault(("register", register), {}).update(names)
        for joint, parts in self.classes.parts.items():
            for part in parts:
                found.setdefault(("tensor", joint), {}).update(found.get(("tensor", part), {}))
        return found

    def _is_constant(self, number: int) -> bool:
        """Say whether a value is the same number everywhere: such values are shared between unrelated nodes."""
        register = self.classes.register_class.get(2 * number)
        return any(node.kind == "const" for node in self.classes.registers.get(register, ()))

    def _origin(self, candidate: Candidate) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for register in candidate.registers:
            names.update(self.origins.get(("register", register), {}))
        for tensor in candidate.writes:
            names.update(self.origins.get(("tensor", tensor), {}))
        for tensor in () if names else candidate.operands:  # a copy that a rewrite brought in comes from what it copies
            names.update(self.origins.get(("tensor", tensor), {}))
        return tuple(sorted(names))
