"""One program out of the programs of a graph's parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .graph import Graph, Node, Value
from .parts import key
from .program import Kernel, Program, Tensor


class ProgramJoin:
    """Collects the programs of parts, in order, and numbers their tensors anew: what one gives the next ones read."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors: list[Tensor] = []
        self._kernels: list[Kernel] = []
        self._values: dict[tuple[int, int], int] = {}
        self._weights: dict[int, int] = {}  # by the id of their arrays, which the graph's constants keep alive
        self._held: list[np.ndarray] = []
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

    def program(self) -> Program:
        """Return the whole program."""
        graph = self._graph
        inputs = tuple((name, v.type, self._values[key(v)]) for name, v in zip(graph.input_names, graph.inputs))
        outputs = tuple((name, v.type, self._output(v)) for name, v in zip(graph.output_names, graph.outputs))
        return Program(graph.name, tuple(self._tensors), tuple(self._kernels), inputs, outputs, dict(graph.ranges))

    def _output(self, value: Value) -> int:
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
    name = node.origin[0] if node.origin else "constant"
    return Tensor(0, node.types[0], "weight", name, node.attrs["data"])
