"""A program without its weights: what the search of one part gives, for every part that does the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..plan.dims import Range
from .graph import Node, TensorType
from .program import Kernel, Program, Tensor


@dataclass(frozen=True)
class JoinedWeight:
    """A weight made of others: that of node `parts[p]` is reshaped to `shapes[p]`, then all are concatenated along `axis`."""

    type: TensorType
    parts: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    axis: int

    def tensor(self, number: int, nodes: Sequence[Node], arrays: dict[tuple, np.ndarray]) -> Tensor:
        own = [nodes[part] for part in self.parts]
        what = (*map(id, own), self.shapes, self.axis)
        if what not in arrays:
            pieces = [node.attrs["data"].reshape(shape) for node, shape in zip(own, self.shapes, strict=True)]
            arrays[what] = np.ascontiguousarray(np.concatenate(pieces, self.axis))
        return Tensor(number, self.type, "weight", "+".join(map(weight_name, own)), arrays[what])


@dataclass(frozen=True)
class Place:
    """A tensor of a blueprint: an input by its name, the weight of the node at `weight`, a joined one, or computed."""

    type: TensorType
    input: str | None = None
    weight: int | None = None
    joined: JoinedWeight | None = None

    def tensor(self, number: int, nodes: Sequence[Node], arrays: dict[tuple, np.ndarray]) -> Tensor:
        if self.joined is not None:
            return self.joined.tensor(number, nodes, arrays)
        if self.weight is not None:
            node = nodes[self.weight]
            return Tensor(number, node.types[0], "weight", weight_name(node), node.attrs["data"])
        if self.input is not None:
            return Tensor(number, self.type, "input", self.input)
        return Tensor(number, self.type, "computed", f"t{number}")


@dataclass(frozen=True)
class Blueprint:
    """Kernels over tensors by number, and for each kernel the nodes that it comes from.

    Nodes are named by their position: in the searched graph, or in any that does the same with other weights.
    """

    tensors: tuple[Place, ...]
    kernels: tuple[Kernel, ...]
    origins: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[str, TensorType, int], ...]
    outputs: tuple[tuple[str, TensorType, int], ...]

    def at(self, positions: Sequence[int]) -> Blueprint:
        """Return the same over nodes in another order: what was node p is node positions[p]."""

        def moved(place: Place) -> Place:
            if place.joined is not None:
                parts = tuple(positions[part] for part in place.joined.parts)
                return replace(place, joined=replace(place.joined, parts=parts))
            return place if place.weight is None else replace(place, weight=positions[place.weight])

        origins = tuple(tuple(sorted(positions[node] for node in origin)) for origin in self.origins)
        return replace(self, tensors=tuple(map(moved, self.tensors)), origins=origins)

    def program(
        self, name: str, nodes: Sequence[Node], ranges: Mapping[str, Range], arrays: dict[tuple, np.ndarray] | None = None
    ) -> Program:
        """Return the program with the weights and names of these nodes. Calls that share `arrays` share joined weights."""
        arrays = {} if arrays is None else arrays
        kernels = []
        for kernel, origin in zip(self.kernels, self.origins, strict=True):
            names = {name for node in origin for name in nodes[node].origin}
            kernels.append(replace(kernel, origin=tuple(sorted(names))))
        tensors = tuple(place.tensor(number, nodes, arrays) for number, place in enumerate(self.tensors))
        return Program(name, tensors, tuple(kernels), self.inputs, self.outputs, dict(ranges))


def weight_name(node: Node) -> str:
    """Return the name of a constant in the model, or what it is."""
    return node.origin[0] if node.origin else f"constant {node.types[0]}"
