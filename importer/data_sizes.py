"""Sizes that data decides: how an operator makes a dim from a number that is only known when the model runs.

Such a dim is a symbol of the graph's own (`Graph.sizes`). It is computed on the device and read back once, so an operator
makes as few of them as it can, each with the tightest bound that it can show: buffers get room for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ..ir.builder import Builder
from ..ir.graph import Size, Value
from ..plan.dims import Dim, Expr, Range, bounds, prove_nonnegative, simplify, substitute, symbol, symbols
from ..plan.dtypes import int64
from .shape_values import ShapeValues, Unknown
from .value_bounds import Interval, ValueBounds

Element = Dim | Unknown
MOST = 2**40  # no tensor has so many elements: a bound above it is none


class DataSizes(Builder):
    """A builder that can make dims of numbers in tensors. `shape_values` has what is known of small tensors."""

    def __init__(self, name: str, ranges: Mapping[str, Range]) -> None:
        super().__init__(name, ranges)
        self.shape_values = ShapeValues(self.ranges)
        self.value_bounds = ValueBounds(self.ranges, self.shape_values)

    def elements(self, value: Value) -> list[Element] | None:
        """Return the elements of a small integer tensor in one row: dims, and Unknown where data decides."""
        elements = self.shape_values.elements(value)
        if elements is None:
            return None
        return [int(e) if isinstance(e, bool | np.bool_) else e for e in elements.reshape(-1).tolist()]

    def scalar_of(self, element: Element) -> Value:
        """Return an element as an int64 scalar."""
        if not isinstance(element, Unknown):
            return self.dim_value(element)
        flat = self.reshape(element.value, (int(np.prod(element.value.shape)),))
        return self.cast(self.reshape(self.slice_axis(flat, 0, element.place, 1), ()), int64)

    def limits(self, element: Element) -> Interval:
        """Return dims that an element lies between, None where that is not known."""
        return self.value_bounds.of(self.scalar_of(element)) if isinstance(element, Unknown) else Interval(element, element)

    def distance(self, start: Element, end: Element) -> Dim | None:
        """Return how far an element is beyond another, if it is the other and a known number."""
        if not isinstance(end, Unknown):
            return end - start if not isinstance(start, Unknown) else None
        if start == end:
            return 0
        node = end.value.node
        if node.op != "elementwise" or node.attrs["fn"] not in ("add", "sub"):
            return None
        parts = [self.shape_values.elements(operand) for operand in node.inputs]
        if any(part is None for part in parts):
            return None
        first, second = (part.reshape(-1)[end.place] for part in parts)
        if node.attrs["fn"] == "add" and second == start:
            first, second = second, first
        if first != start or isinstance(second, Unknown):
            return None
        return int(second) if not isinstance(second, Expr) else second

    def size_of(self, value: Value, most: Dim | None = None, least: Dim = 0, name: str = "") -> Dim | None:
        """Return the number in an integer scalar as a dim; None if nothing bounds it.

        If data decides it, this is a symbol. A number outside of least..most stops the run with an error that names the
        symbol, so an operator that must refuse some input can make the number -1 there.
        """
        (element,) = self.elements(value)
        if not isinstance(element, Unknown):
            return element
        if most is not None:
            most = self.before_running(most)
        shown = self.value_bounds.of(value).high
        if shown is not None:
            shown = self.before_running(shown)
            most = shown if most is None or prove_nonnegative(most - shown, self.ranges) else most
        high = None if most is None else bounds(most, self.ranges)[1]
        if high is None or high > MOST:
            return None
        dim = self.size(self._free_name(name), self.scalar_of(element), least, most)
        self.shape_values.define(element, dim)
        return dim

    def before_running(self, dim: Dim) -> Dim:
        """Return a dim that is known before running and never less than this one."""
        for name in sorted(symbols(dim) & self.graph.sizes.keys()):
            more = substitute(dim, {name: symbol(name) + 1})
            if not prove_nonnegative(more - dim, self.ranges):  # it does not just grow with the size
                return bounds(dim, self.ranges)[1]
            dim = substitute(dim, {name: self.graph.sizes[name].most})
        return simplify(dim, self.ranges)

    def has_data_sizes(self, *dims: Dim) -> bool:
        """Say whether data decides one of the dims."""
        return any(not symbols(dim).isdisjoint(self.graph.sizes) for dim in dims)

    def at_least_when_run(self, dim: Dim, low: int) -> None:
        """Make it an error of the run if a dim that is a size, or a number more, is less than `low`."""
        for name in symbols(dim) & self.graph.sizes.keys():
            offset = dim - symbol(name)
            size, known = self.graph.sizes[name], self.ranges[name]
            if type(offset) is int and type(size.least) is int and size.least < low - offset <= known.max:
                least = low - offset
                self.graph.sizes[name] = Size(size.value, least, size.most)
                self.ranges[name] = Range(least, max(known.opt, least), known.max)

    def _free_name(self, name: str) -> str:
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower() or "size"
        if base[0].isdigit() or re.fullmatch(r"i\d+|max|min", base):
            base = f"size_{base}"
        free, count = base, 2
        while free in self.ranges:
            free, count = f"{base}_{count}", count + 1
        return free
