"""Between which dims the elements of an integer tensor lie, as far as the operations that computed it tell.

A size that data decides needs room in memory, so it needs a bound: a count of true elements is at most the number of
elements, a place that an argmax finds is less than the extent, a number that was clipped is within its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from ..ir.graph import Node, Value
from ..plan.dims import Dim, Range, floor_div, index_symbol, maximum, minimum, product, prove_nonnegative, simplify
from .shape_values import ShapeValues, Unknown

DEEPEST = 64  # operations that are looked back over


class Interval(NamedTuple):
    """The least and the greatest that an element can be, None where that is not known."""

    low: Dim | None
    high: Dim | None


ANYTHING = Interval(None, None)


class ValueBounds:
    """Finds and remembers the bounds of values. `ranges` bounds the dims, `shape_values` knows elements."""

    def __init__(self, ranges: Mapping[str, Range], shape_values: ShapeValues) -> None:
        self.ranges = ranges
        self.shape_values = shape_values

    def of(self, value: Value, depth: int = DEEPEST) -> Interval:
        """Return dims that every element of a tensor lies between, both ends included."""
        by_dtype = _of_dtype(value)
        if depth == 0 or value.dtype.is_float:
            return by_dtype
        known = self._of_elements(value)
        if known is not None:
            return known
        rule = _RULES.get(value.node.op)
        found = ANYTHING if rule is None else rule(self, value.node, depth - 1)
        return self.within(found, by_dtype)

    def within(self, one: Interval, other: Interval) -> Interval:
        """Return what lies in both: the tighter of two bounds where that is known, else the first."""
        low, high = one.low, one.high
        if low is None or (other.low is not None and self._less(low, other.low)):
            low = other.low
        if high is None or (other.high is not None and self._less(other.high, high)):
            high = other.high
        return Interval(low, high)

    def union(self, one: Interval, other: Interval) -> Interval:
        return Interval(self._both(minimum, one.low, other.low), self._both(maximum, one.high, other.high))

    def _both(self, fn: Callable[[Dim, Dim], Dim], a: Dim | None, b: Dim | None) -> Dim | None:
        return None if a is None or b is None else simplify(fn(a, b), self.ranges)

    def _either(self, fn: Callable[[Dim, Dim], Dim], a: Dim | None, b: Dim | None) -> Dim | None:
        return a if b is None else b if a is None else simplify(fn(a, b), self.ranges)

    def _less(self, a: Dim, b: Dim) -> bool:
        return prove_nonnegative(b - a - 1, self.ranges)

    def _nonnegative(self, dim: Dim | None) -> bool:
        return dim is not None and prove_nonnegative(dim, self.ranges)

    def _of_elements(self, value: Value) -> Interval | None:
        """Return the bounds of a tensor of which every element is known, or is one and the same dim."""
        elements = self.shape_values.elements(value)
        if elements is None or elements.size == 0:
            data = value.node.attrs["data"] if value.node.op == "constant" else None
            return None if data is None or data.size == 0 else Interval(int(data.min()), int(data.max()))
        flat = [int(e) if isinstance(e, bool | np.integer) else e for e in elements.reshape(-1).tolist()]
        if any(isinstance(element, Unknown) for element in flat):
            return None
        found = Interval(flat[0], flat[0])
        for element in dict.fromkeys(flat[1:]):
            found = self.union(found, Interval(element, element))
        return found

    def _iota(self, node: Node, depth: int) -> Interval:
        expr, shape = node.attrs["expr"], node.types[0].shape
        for axis, extent in enumerate(shape):
            if expr == index_symbol(axis):
                return Interval(0, extent - 1)
        return ANYTHING

    def _view(self, node: Node, depth: int) -> Interval:
        view = node.attrs["view"]
        found = self.of(node.inputs[0], depth)
        return found if view.is_total else self.union(found, Interval(int(view.fill), int(view.fill)))

    def _gather(self, node: Node, depth: int) -> Interval:
        return self.union(self.of(node.inputs[0], depth), Interval(0, 0))  # 0 where there is nothing to gather from

    def _scatter(self, node: Node, depth: int) -> Interval:
        if node.attrs["fn"] not in ("none", "max", "min"):
            return ANYTHING
        return self.union(self.of(node.inputs[0], depth), self.of(node.inputs[2], depth))

    def _reduce(self, node: Node, depth: int) -> Interval:
        found, count = self.of(node.inputs[0], depth), node.attrs["count"]
        total = product(node.inputs[0].shape[-count:])
        fn = node.attrs["fn"]
        if fn == "sum" and self._nonnegative(found.low):
            return Interval(0, None if found.high is None else found.high * total)
        if fn in ("max", "min") and self._nonnegative(total - 1):  # of nothing it would be the dtype's own bound
            return found
        return ANYTHING

    def _elementwise(self, node: Node, depth: int) -> Interval:
        fn = node.attrs["fn"]
        if fn == "cast":
            source = self.of(node.inputs[0], depth)
            return ANYTHING if node.inputs[0].dtype.is_float or not self._holds(node, source) else source
        if fn == "where":
            return self.union(self.of(node.inputs[1], depth), self.of(node.inputs[2], depth))
        operands = [self.of(value, depth) for value in node.inputs]
        low, high = zip(*operands, strict=True)
        match fn:
            case "add":
                return Interval(_added(*low), _added(*high))
            case "sub":
                return Interval(_added(low[0], _negated(high[1])), _added(high[0], _negated(low[1])))
            case "neg":
                return Interval(_negated(high[0]), _negated(low[0]))
            case "min":
                return Interval(self._both(minimum, *low), self._either(minimum, *high))
            case "max":
                return Interval(self._either(maximum, *low), self._both(maximum, *high))
            case "mul" if all(map(self._nonnegative, low)):
                return Interval(low[0] * low[1], None if None in high else high[0] * high[1])
            case "floor_mod" if low[1] is not None and self._less(0, low[1]) and high[1] is not None:
                return Interval(0, high[1] - 1)
            case "div" if self._nonnegative(low[0]) and low[1] is not None and self._less(0, low[1]):
                divisor = low[1] if type(low[1]) is int else 1
                return Interval(0, None if high[0] is None else simplify(floor_div(high[0], divisor), self.ranges))
            case "and" | "or" | "not" | "equal" | "less" | "greater":
                return Interval(0, 1)
        return ANYTHING

    def _holds(self, node: Node, source: Interval) -> bool:
        """Say whether every number between two bounds is itself in the dtype that a cast makes."""
        dtype = node.types[0].dtype
        if dtype.bits == 64 and dtype.kind == "i":
            return True
        limits = _limits(dtype)
        return (
            source.low is not None and source.high is not None
            and self._nonnegative(source.low - limits.low) and self._nonnegative(limits.high - source.high)
        )


_RULES: dict[str, Callable[[ValueBounds, Node, int], Interval]] = {
    "iota": ValueBounds._iota,
    "view": ValueBounds._view,
    "gather": ValueBounds._gather,
    "scatter": ValueBounds._scatter,
    "reduce": ValueBounds._reduce,
    "elementwise": ValueBounds._elementwise,
}


def _of_dtype(value: Value) -> Interval:
    """Return what the dtype alone says; of wide integers that is no bound to reckon with."""
    limits = _limits(value.dtype)
    if value.dtype.bits > 16:
        return Interval(limits.low if value.dtype.kind == "u" else None, None)
    return limits


def _limits(dtype) -> Interval:
    if dtype.is_float:
        return ANYTHING
    if dtype.kind == "b":
        return Interval(0, 1)
    info = np.iinfo(dtype.numpy)
    return Interval(int(info.min), int(info.max))


def _added(a: Dim | None, b: Dim | None) -> Dim | None:
    return None if a is None or b is None else a + b


def _negated(a: Dim | None) -> Dim | None:
    return None if a is None else -a
