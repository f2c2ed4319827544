"""From chosen candidates to a program: tensor numbers, launch order, and the way back to the graph's nodes."""

from __future__ import annotations

from collections.abc import Sequence

from ..blueprint import Blueprint, Place
from ..graph import TensorType, Value
from ..program import Kernel, LtKernel, Program, RegionKernel, ScatterKernel, SizeRead
from ..schedule import ATTENTION
from .candidates import Candidate
from .classes import Classes
from .lift import dtype_of
from .waits import rounds


class Assembler:
    """Turns choices of one e-graph into programs."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self.graph = classes.saturated.graph
        self.lifted = classes.saturated.lifted
        self.joined = classes.saturated.joined
        self.origins = self._origins()

    def program(self, ordered: Sequence[Candidate]) -> Program:
        """Return the program that launches the candidates in this order."""
        return self.blueprint(ordered).program(self.graph.name, self.lifted.nodes, self.graph.ranges)

    def blueprint(self, ordered: Sequence[Candidate]) -> Blueprint:
        """Return it without weights and names; nodes are named by their number in the graph's order."""
        numbers: dict[int, int] = {}
        tensors: list[Place] = []
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
        origins: list[tuple[int, ...]] = []
        for sizes, launched in rounds(ordered, self.classes.sizes, lambda tensor: tensor in self.classes.inputs):
            kernels.extend(self._size_read(name, numbers) for name in sizes)
            origins.extend((self.lifted.value_number(self.graph.sizes[name].value),) for name in sizes)
            kernels.extend(self._kernel(candidate, numbers) for candidate in launched)
            origins.extend(self._origin(candidate) for candidate in launched)
        return Blueprint(tuple(tensors), tuple(kernels), tuple(origins), inputs, tuple(outputs))

    def _size_read(self, name: str, numbers: dict[int, int]) -> SizeRead:
        size = self.graph.sizes[name]
        return SizeRead(name, size.least, size.most, (numbers[self.classes.sizes[name]],))

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

    def _number(self, tensor: int, numbers: dict[int, int], tensors: list[Place], name: str = "") -> int:
        if tensor not in numbers:
            numbers[tensor] = len(tensors)
            tensors.append(self._place(tensor, name))
        return numbers[tensor]

    def _place(self, tensor: int, name: str) -> Place:
        if tensor not in self.classes.inputs:
            return Place(TensorType(dtype_of(self.classes.tensor_dtypes[tensor]), self.classes.shape_of(tensor)))
        value = self.classes.inputs[tensor]
        if value in self.joined:
            return Place(self.joined[value].type, joined=self.joined[value])
        node = self.lifted.nodes[value]
        if node.op == "input":
            return Place(node.types[0], input=name or node.attrs["name"])
        return Place(node.types[0], weight=value)

    def _kernel(self, candidate: Candidate, numbers: dict[int, int]) -> Kernel:
        reads = tuple(numbers[tensor] for tensor in candidate.operands)
        writes = tuple(numbers[tensor] for tensor in candidate.writes)
        if candidate.kind == "lt":
            return LtKernel(candidate.matmul, reads, writes)
        if candidate.kind == "scatter":
            return ScatterKernel(candidate.fn, reads, writes)
        return RegionKernel(candidate.region, candidate.schedule, reads, writes)

    def _origins(self) -> dict[tuple[str, int], set[int]]:
        """Return the graph's nodes for each register and tensor class."""
        found: dict[tuple[str, int], set[int]] = {}
        for number, node in enumerate(self.lifted.nodes):
            if node.op in ("input", "constant") or self._is_constant(number):
                continue
            found.setdefault(("tensor", self.classes.value_class[number]), set()).add(number)
            if 2 * number in self.classes.register_class:
                found.setdefault(("register", self.classes.register_class[2 * number]), set()).add(number)
        for joint, parts in self.classes.parts.items():
            for part in parts:
                found.setdefault(("tensor", joint), set()).update(found.get(("tensor", part), ()))
        return found

    def _is_constant(self, number: int) -> bool:
        """Say whether a value is the same number everywhere: such values are shared between unrelated nodes."""
        register = self.classes.register_class.get(2 * number)
        return any(node.kind == "const" for node in self.classes.registers.get(register, ()))

    def _origin(self, candidate: Candidate) -> tuple[int, ...]:
        nodes: set[int] = set()
        for register in candidate.registers:
            nodes.update(self.origins.get(("register", register), ()))
        for tensor in candidate.writes:
            nodes.update(self.origins.get(("tensor", tensor), ()))
        if not any(self.lifted.nodes[node].origin for node in nodes):
            for tensor in candidate.operands:  # a copy that a rewrite brought in comes from what it copies
                nodes.update(self.origins.get(("tensor", tensor), ()))
        return tuple(sorted(nodes))
