"""Writes the values of a region's nodes at one point, or at a vector of neighbouring points (lanes)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..ir.region import Broadcast, Constant, Elementwise, Gather, Iota, Load, Region
from ..ir.scalars import c_expression, c_literal
from ..plan.dims import index_axes, product
from ..plan.dtypes import DType
from .accesses import LANES, UNIFORM, VECTOR, Access, Accesses
from .dim_writer import DimWriter
from .kernel_text import Lines


@dataclass(frozen=True)
class Vector:
    """Lanes along `axis`; a width of 1 means a plain point. Points have index variables `i<axis>`, lane 0 of a vector
    `first<axis>`."""

    axis: int = -1
    width: int = 1


def needed(region: Region, roots: Iterable[int], known: Mapping[int, str] = {}) -> list[int]:
    """Return the nodes to compute for the roots, operands first; known ones and what only they need are left out."""
    found: set[int] = set()
    stack = [at for at in roots if at not in known]
    while stack:
        at = stack.pop()
        if at in found:
            continue
        found.add(at)
        stack += [arg for arg in region.nodes[at].args if arg not in known]
    return sorted(found)


class PointWriter:
    """Writes nodes as C variables `v<position>`. One writer serves one kernel."""

    def __init__(self, region: Region, accesses: Accesses, dims: DimWriter) -> None:
        self.region = region
        self.accesses = accesses
        self.dims = dims

    def values(self, lines: Lines, roots: Iterable[int], known: Mapping[int, str]) -> dict[int, str]:
        """Write the roots' values at the point whose index variables are in scope; return every node's C expression."""
        names = dict(known)
        for at in needed(self.region, roots, known):
            self._declare(lines, at, names)
        return names

    def vector(
        self,
        lines: Lines,
        vector: Vector,
        roots: Iterable[int],
        known: Mapping[int, str],
        each: Callable[[dict[int, str]], Iterable[str]],
        stores: Mapping[int, int] = {},
        guard: str = "",
    ) -> None:
        """Write the roots at every lane of a vector, and in each lane the lines of `each(names)`.

        `stores` maps store numbers to the nodes that they write; `known` expressions may mention the lane, `lane`.
        With a `guard`, for plain points only, nothing is stored where that condition is false.
        """
        if vector.width == 1:
            names = self.values(lines, roots, known)
            lines.add(*each(names))
            condition = f"if ({guard}) " if guard else ""
            for number, at in stores.items():
                lines.add(f"{condition}{self.target(number)} = {self.narrowed(at, names[at])};")
            return
        names = dict(known)
        first = {vector.axis: f"first{vector.axis}"}
        in_lanes = []
        for at in needed(self.region, roots, known):
            kind = self.kind(at, vector)
            if kind == VECTOR:
                lines.add(f"const {self._pack(at, vector)} pack{at} = {self.pack_load(at, vector)};")
                in_lanes.append(at)
            elif kind == UNIFORM and isinstance(self.region.nodes[at], Load):
                self._declare(lines, at, names, first)
            else:
                in_lanes.append(at)
        packed = {number for number in stores if self._store_kind(number, vector) == VECTOR}
        for number in sorted(packed):
            dtype = self.region.nodes[stores[number]].dtype
            lines.add(f"Pack<{dtype.c_type}, {vector.width}> result{number};")
        lines.add("#pragma unroll")
        with lines.block(f"for (int lane = 0; lane < {vector.width}; ++lane)"):
            inner = Lines(lines.depth)
            for at in in_lanes:
                if self.kind(at, vector) == VECTOR:
                    names[at] = f"v{at}"
                    inner.add(f"const {self.register(at)} v{at} = widen(pack{at}[lane]);")
                else:
                    self._declare(inner, at, names)
            inner.add(*each(names))
            for number, at in stores.items():
                target = f"result{number}[lane]" if number in packed else self.target(number)
                inner.add(f"{target} = {self.narrowed(at, names[at])};")
            if any(f"i{vector.axis}" in _words(line) for line in inner.lines):
                lines.add(f"const Index i{vector.axis} = first{vector.axis} + lane;")
            lines.lines += inner.lines
        for number in sorted(packed):
            offset = self.dims.c(self.accesses.stores[number].offset, first)
            lines.add(f"store_pack<{vector.width}>(out{number} + {_operand(offset)}, result{number});")

    def register(self, at: int) -> str:
        """Return the C type of the node's value."""
        return self.region.nodes[at].dtype.compute.c_type

    def narrowed(self, at: int, value: str) -> str:
        """Return a register value as the type that memory holds."""
        dtype = self.region.nodes[at].dtype
        return value if dtype.compute is dtype else f"convert<{dtype.c_type}>({value})"

    def target(self, number: int) -> str:
        """Return the element that store `number` writes at the point in scope."""
        return f"out{number}[{self.dims.c(self.accesses.stores[number].offset)}]"

    def width_of(self, vector_axis: int, width: int, nodes: Iterable[int], stores: Iterable[int]) -> tuple[int, int]:
        """Return (vector accesses, lane-by-lane accesses) that vectors of this width would make."""
        vector = Vector(vector_axis, width)
        kinds = [self.kind(at, vector) for at in nodes if isinstance(self.region.nodes[at], Load)]
        kinds += [self._store_kind(number, vector) for number in stores]
        return kinds.count(VECTOR), kinds.count(LANES)

    def kind(self, at: int, vector: Vector) -> str:
        """Say how a vector's lanes see a node: one of `accesses.VECTOR`, `UNIFORM`, `LANES`."""
        node = self.region.nodes[at]
        if isinstance(node, Load):
            return self.accesses.along(self.accesses.loads[at], vector.axis, vector.width)
        if isinstance(node, Iota):
            return LANES if vector.axis in index_axes(self.accesses.iotas[at]) else UNIFORM
        return LANES

    def _store_kind(self, number: int, vector: Vector) -> str:
        return self.accesses.along(self.accesses.stores[number], vector.axis, vector.width)

    def _pack(self, at: int, vector: Vector) -> str:
        return f"Pack<{self.region.nodes[at].dtype.c_type}, {vector.width}>"

    def pack_load(self, at: int, vector: Vector) -> str:
        """Return the Pack that a load of kind VECTOR reads."""
        names = {vector.axis: f"first{vector.axis}"}
        node, access = self.region.nodes[at], self.accesses.loads[at]
        load = f"load_pack<{vector.width}>(in{node.slot} + {_operand(self.dims.c(access.offset, names))})"
        condition = self.dims.condition(access.valid, names)
        if condition == "true":
            return load
        fill = f"filled_pack<{node.dtype.c_type}, {vector.width}>({_fill(node)})"
        return f"{condition} ? {load} : {fill}"

    def element_load(self, at: int) -> str:
        """Return what a load reads at the point in scope, in the type that memory holds."""
        node, access = self.region.nodes[at], self.accesses.loads[at]
        value = f"in{node.slot}[{self.dims.c(access.offset)}]"
        condition = self.dims.condition(access.valid)
        if condition == "true":
            return value
        fill = _fill(node) if node.dtype.compute is node.dtype else f"convert<{node.dtype.c_type}>({_fill(node)})"
        return f"{condition} ? {value} : {fill}"

    def _declare(self, lines: Lines, at: int, names: dict[int, str], indices: Mapping[int, str] = {}) -> None:
        """Write the node's value as a variable, unless it is as good as a name already."""
        node = self.region.nodes[at]
        if isinstance(node, Broadcast):
            names[at] = names[node.args[0]]
        elif isinstance(node, Constant):
            names[at] = constant(node)
        else:
            names[at] = f"v{at}"
            lines.add(f"const {self.register(at)} v{at} = {self._expression(at, names, indices)};")

    def _expression(self, at: int, names: Mapping[int, str], indices: Mapping[int, str]) -> str:
        node = self.region.nodes[at]
        if isinstance(node, Load):
            return self._load(node, self.accesses.loads[at], indices)
        if isinstance(node, Iota):
            return self.dims.c_int64(self.accesses.iotas[at], indices)
        if isinstance(node, Gather):
            count = self.dims.c(product(self.region.operands[node.slot].shape))
            return f"widen(in{node.slot}[clamped_index({names[node.args[0]]}, {count})])"
        if isinstance(node, Elementwise):
            return self._elementwise(node, names)
        raise TypeError(f"{type(node).__name__} is no value at a point")

    def _load(self, node: Load, access: Access, indices: Mapping[int, str]) -> str:
        value = f"widen(in{node.slot}[{self.dims.c(access.offset, indices)}])"
        condition = self.dims.condition(access.valid, indices)
        return value if condition == "true" else f"{condition} ? {value} : {_fill(node)}"

    def _elementwise(self, node: Elementwise, names: Mapping[int, str]) -> str:
        operands = [self.region.nodes[arg].dtype for arg in node.args]
        expression = c_expression(node.fn, [names[arg] for arg in node.args], operands, node.dtype)
        if node.fn == "cast" and _loses_precision(operands[0], node.dtype):
            return f"widen(convert<{node.dtype.c_type}>({expression}))"
        return expression


def constant(node: Constant) -> str:
    """Return the constant as a C literal of its register type, in exactly its bits."""
    return c_literal(np.frombuffer(node.bits, dtype=node.dtype.numpy)[0], node.dtype)


def _fill(node: Load) -> str:
    return c_literal(node.view.fill, node.dtype)


def _loses_precision(source: DType, target: DType) -> bool:
    """An explicit cast to a 16-bit float rounds, even though the value stays in a wider register."""
    return target.compute is not target and source is not target


def _operand(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _words(line: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in line).split())

