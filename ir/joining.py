"""One program out of the programs of a graph's parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .blueprint import weight_name
from .control import LOOP, loop_of
from .graph import Graph, Node, Value
from .parts import key
from .program import BranchKernel, Kernel, LoopKernel, Program, SizeRead, Tensor


class ProgramJoin:
    """Collects the programs of parts, in order, and numbers their tensors anew: what one gives the next ones read."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors: list[Tensor] = []
        self._kernels: list[Kernel] = []
        self._values: dict[tuple[int, int], int] = {}
        self._weights: dict[int, int] = {}  # by the id of their arrays, which the graph's constants keep alive
        self._held: list[np.ndarray] = []
        self._sizes = graph.live_sizes()
        for name, value in zip(graph.input_names, graph.inputs):
            self._values[key(value)] = self._add(Tensor(0, value.type, "input", name))

    @property
    def kernels(self) -> int:
        """How many kernels there are so far."""
        return len(self._kernels)

    def add(self, program: Program, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Append a part's program; `inputs` and `outputs` are the graph's values that its inputs and outputs are."""
        numbers = {
            at: self._values[key(value)] for value, (_, _, at) in zip(inputs, program.inputs, strict=True)
        }
        for tensor in program.tensors:
            if tensor.id not in numbers:
                numbers[tensor.id] = self._weight(tensor) if tensor.kind == "weight" else self._add(tensor)
        for kernel in program.kernels:
            reads, writes = (tuple(numbers[at] for at in ids) for ids in (kernel.reads, kernel.writes))
            self._kernels.append(replace(kernel, reads=reads, writes=writes))
        for value, (_, _, at) in zip(outputs, program.outputs, strict=True):
            self._values[key(value)] = numbers[at]

    def add_control(self, node: Node, programs: Sequence[Program]) -> None:
        """Append a loop or branch; `programs` are those of its bodies."""
        reads = tuple(map(self._number, node.inputs))
        writes = []
        for value in node.outputs:
            self._values[key(value)] = self._add(Tensor(0, value.type, "computed", ""))
            writes.append(self._values[key(value)])
        if node.op == LOOP:
            loop = loop_of(node)
            made = LoopKernel(
                programs[0], loop.trip, loop.trips, loop.states, loop.conditional, loop.count, reads, tuple(writes), node.origin
            )
        else:
            made = BranchKernel(*programs, reads, tuple(writes), node.origin)
        self._kernels.append(made)

    def read_sizes(self) -> None:
        """Read the sizes that can be and are not read yet; loops count their trips themselves."""
        known = {kernel.symbol for kernel in self._kernels if isinstance(kernel, SizeRead)}
        for name, size in self._sizes.items():
            is_counted = size.value.node.attrs.get("count") == name
            if name not in known and not is_counted and key(size.value) in self._values:
                at = (self._values[key(size.value)],)
                self._kernels.append(SizeRead(name, size.least, size.most, at, (), size.value.node.origin))

    def program(self) -> Program:
        """Return the whole program."""
        graph = self._graph
        inputs = tuple((name, v.type, self._values[key(v)]) for name, v in zip(graph.input_names, graph.inputs))
        outputs = tuple((name, v.type, self._number(v)) for name, v in zip(graph.output_names, graph.outputs))
        return Program(graph.name, tuple(self._tensors), tuple(self._kernels), inputs, outputs, dict(graph.ranges))

    def _number(self, value: Value) -> int:
        if key(value) not in self._values:  # a constant that no part reads
            self._values[key(value)] = self._weight(_constant(value.node))
        return self._values[key(value)]

    def _weight(self, tensor: Tensor) -> int:
        """Return the number of a weight; several parts may read the same one."""
        if id(tensor.data) not in self._weights:
            self._weights[id(tensor.data)] = self._add(tensor)
            self._held.append(tensor.data)
        return self._weights[id(tensor.data)]

    def _add(self, tensor: Tensor) -> int:
        number = len(self._tensors)
        name = f"t{number}" if tensor.kind == "computed" else tensor.name
        self._tensors.append(replace(tensor, id=number, name=name))
        return number


def _constant(node: Node) -> Tensor:
    return Tensor(0, node.types[0], "weight", weight_name(node), node.attrs["data"])
