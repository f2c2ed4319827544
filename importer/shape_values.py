"""What is known of small tensors before running: their elements as numbers or as dims.

ONNX models compute shapes with ordinary tensors: they take the shape of one, pick an extent, multiply, concatenate and
reshape by the result. Those tensors are imported as ordinary nodes, whose elements this module works out again on the
primitives. So whatever operators a model uses for it, a value that depends on nothing but dims is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from ..ir.graph import Node, Value
from ..ir.primitives import gather_array, reduce_array
from ..ir.scalars import evaluate
from ..plan.dims import (
    Dim,
    Expr,
    Range,
    ceil_div,
    floor_div,
    floor_mod,
    maximum,
    minimum,
    product,
    prove_nonnegative,
    simplify,
    substitute,
    symbols,
)

MOST_ELEMENTS = 1024


class _Undecided(Exception):
    """An element is not a function of the dims that can be written down, at least while it is not known whether
    `question`, a dim, is 0 or more."""

    def __init__(self, question: Dim | None = None) -> None:
        self.question = question


@dataclass(frozen=True)
class Ratio:
    """A float that is a dim over a number, as quotients of sizes are before they are rounded."""

    over: Dim
    under: int


class ShapeValues:
    """Works out and remembers the elements of values. `ranges` bounds the dims."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.ranges = ranges
        self._found: dict[Value, np.ndarray | None] = {}
        self._questions: dict[Value, Dim] = {}
        self._dims = DimArithmetic(ranges)

    def of(self, value: Value) -> np.ndarray | None:
        """Return the elements: a numeric array, or one of objects where some are dims; None if they are not known."""
        if value not in self._found:
            self._found[value] = self._work_out(value.node) if _is_small(value) else None
        return self._found[value]

    def question(self, value: Value) -> Dim | None:
        """Return a dim of which it must be known whether it is 0 or more before the elements of a value can be."""
        return self._questions.get(value) if self.of(value) is None else None

    def _work_out(self, node: Node) -> np.ndarray | None:
        if node.op == "constant":
            return node.attrs["data"]
        rule = _RULES.get(node.op)
        if rule is None:
            return None
        operands = []
        for value in node.inputs:
            operand = self.of(value)
            if operand is None:
                if value in self._questions:
                    self._questions[node.output] = self._questions[value]
                return None
            operands.append(operand)
        try:
            return rule(self, node, operands)
        except _Undecided as undecided:
            if undecided.question is not None:
                self._questions[node.output] = undecided.question
            return None

    def _iota(self, node: Node, operands: list[np.ndarray]) -> np.ndarray:
        shape = node.types[0].shape
        elements = np.empty(shape, object)
        for at in np.ndindex(*shape):
            elements[at] = simplify(substitute(node.attrs["expr"], {}, dict(enumerate(at))), self.ranges)
        return _plain(elements, node)

    def _view(self, node: Node, operands: list[np.ndarray]) -> np.ndarray:
        view = node.attrs["view"]
        expressions = [*view.index, *(part for bound in view.valid for part in (bound.expr, bound.low, bound.high))]
        if any(symbols(expression) for expression in expressions):
            raise _Undecided
        return _plain(view.apply(operands[0]), node)

    def _elementwise(self, node: Node, operands: list[np.ndarray]) -> np.ndarray:
        fn, dtype = node.attrs["fn"], node.types[0].dtype
        if all(operand.dtype != object for operand in operands):
            return evaluate(fn, operands, dtype)
        if fn == "cast":
            return self._cast(node, operands[0])
        rule = self._dims.table.get(fn)
        if rule is None:
            raise _Undecided
        elements = np.empty(node.types[0].shape, object)
        is_float = node.inputs[-1].dtype.is_float
        for at in np.ndindex(*elements.shape):
            elements[at] = rule(*(_element(operand[at], is_float) for operand in operands))
        return _plain(elements, node)

    def _cast(self, node: Node, operand: np.ndarray) -> np.ndarray:
        source, target = node.inputs[0].dtype, node.types[0].dtype
        elements = np.empty(operand.shape, object)
        for at in np.ndindex(*elements.shape):
            element = _element(operand[at], source.is_float)
            if target.kind == "b":
                element = self._dims.differ(element, 0)
            elif target.is_integer:
                element = self._dims.trunc(element)
            elements[at] = element
        return _plain(elements, node)

    def _reduce(self, node: Node, operands: list[np.ndarray]) -> np.ndarray:
        (operand,) = operands
        fn, count = node.attrs["fn"], node.attrs["count"]
        if operand.dtype != object:
            return reduce_array(fn, operand, count)
        combine = self._dims.table[{"sum": "add", "prod": "mul"}.get(fn, fn)]
        elements = np.empty(node.types[0].shape, object)
        for at in np.ndindex(*elements.shape):
            row = [_element(element, node.types[0].dtype.is_float) for element in operand[at].reshape(-1)]
            if not row:
                raise _Undecided
            total = row[0]
            for element in row[1:]:
                total = combine(total, element)
            elements[at] = total
        return _plain(elements, node)

    def _gather(self, node: Node, operands: list[np.ndarray]) -> np.ndarray:
        data, index = operands
        if index.dtype == object:
            raise _Undecided
        return _plain(gather_array(data, index), node)

    def _scatter(self, node: Node, operands: list[np.ndarray]) -> np.ndarray:
        dest, index, source = operands
        if index.dtype == object or node.attrs["fn"] != "none":
            raise _Undecided
        elements = dest.astype(object)
        flat = elements.reshape(-1)
        for place, element in zip(index.reshape(-1).tolist(), source.reshape(-1).tolist(), strict=True):
            if 0 <= place < flat.size:
                flat[place] = element
        return _plain(elements, node)


_RULES: dict[str, Callable[[ShapeValues, Node, list[np.ndarray]], np.ndarray]] = {
    "iota": ShapeValues._iota,
    "view": ShapeValues._view,
    "elementwise": ShapeValues._elementwise,
    "reduce": ShapeValues._reduce,
    "gather": ShapeValues._gather,
    "scatter": ShapeValues._scatter,
}


class DimArithmetic:
    """Scalar functions on dims and ratios; `_Undecided` where the result is not certain over all sizes in range."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.ranges = ranges
        self.table: dict[str, Callable[..., Any]] = {
            "add": lambda a, b: self._linear(a, b, 1),
            "sub": lambda a, b: self._linear(a, b, -1),
            "mul": self._mul,
            "div": self._div,
            "neg": lambda a: self._linear(0, a, -1),
            "abs": lambda a: (
                a if self._nonnegative(a) else self._linear(0, a, -1) if self._nonpositive(a) else _ask(_ratio(a)[0])
            ),
            "floor_mod": self._mod,
            "trunc_mod": self._mod,
            "min": lambda a, b: self._choose(minimum, a, b),
            "max": lambda a, b: self._choose(maximum, a, b),
            "floor": self.floor,
            "ceil": self.ceil,
            "trunc": self.trunc,
            "less": lambda a, b: self._less(a, b),
            "less_equal": lambda a, b: not self._less(b, a),
            "greater": lambda a, b: self._less(b, a),
            "greater_equal": lambda a, b: not self._less(a, b),
            "equal": lambda a, b: not self.differ(a, b),
            "not_equal": self.differ,
            "where": lambda condition, a, b: a if condition else b,
            "and": lambda a, b: a and b,
            "or": lambda a, b: a or b,
            "not": lambda a: not a,
        }

    def floor(self, a: Any) -> Dim:
        over, under = _ratio(a)
        return simplify(floor_div(over, under), self.ranges)

    def ceil(self, a: Any) -> Dim:
        over, under = _ratio(a)
        return simplify(ceil_div(over, under), self.ranges)

    def trunc(self, a: Any) -> Dim:
        if isinstance(a, Ratio) and not self._nonnegative(a):
            _ask(a.over)
        return self.floor(a)

    def differ(self, a: Any, b: Any) -> bool:
        difference, _ = _ratio(self._linear(a, b, -1))
        if type(difference) is int:
            return difference != 0
        if self._positive(difference) or self._positive(-difference):
            return True
        _ask(
            -difference
            if self._nonnegative(difference)
            else difference
            if self._nonpositive(difference)
            else difference - 1
        )

    def _less(self, a: Any, b: Any) -> bool:
        difference, _ = _ratio(self._linear(b, a, -1))
        if self._positive(difference):
            return True
        if prove_nonnegative(-difference, self.ranges):
            return False
        _ask(difference - 1)

    def _linear(self, a: Any, b: Any, factor: int) -> Any:
        (over, under), (other, below) = _ratio(a), _ratio(b)
        return _reduced(over * below + other * under * factor, under * below, a, b)

    def _mul(self, a: Any, b: Any) -> Any:
        (over, under), (other, below) = _ratio(a), _ratio(b)
        return _reduced(over * other, under * below, a, b)

    def _div(self, a: Any, b: Any) -> Any:
        (over, under), (other, below) = _ratio(a), _ratio(b)
        if isinstance(a, Ratio) or isinstance(b, Ratio):
            if type(other) is not int or other <= 0:
                raise _Undecided
            return _reduced(over * below, under * other, a, b)
        if not (self._nonnegative(a) and self._positive(b)):  # integers round toward zero, dims round down
            raise _Undecided
        return simplify(floor_div(a, b), self.ranges)

    def _mod(self, a: Any, b: Any) -> Dim:
        if isinstance(a, Ratio) or isinstance(b, Ratio) or not (self._nonnegative(a) and self._positive(b)):
            raise _Undecided
        return simplify(floor_mod(a, b), self.ranges)

    def _choose(self, function: Callable[[Dim, Dim], Dim], a: Any, b: Any) -> Any:
        (over, under), (other, below) = _ratio(a), _ratio(b)
        return _reduced(simplify(function(over * below, other * under), self.ranges), under * below, a, b)

    def _nonnegative(self, a: Any) -> bool:
        return prove_nonnegative(_ratio(a)[0], self.ranges)

    def _nonpositive(self, a: Any) -> bool:
        return prove_nonnegative(-_ratio(a)[0], self.ranges)

    def _positive(self, a: Any) -> bool:
        return prove_nonnegative(_ratio(a)[0] - 1, self.ranges)


def _ask(question: Dim) -> NoReturn:
    raise _Undecided(question)


def _ratio(a: Any) -> tuple[Dim, int]:
    return (a.over, a.under) if isinstance(a, Ratio) else (a, 1)


def _reduced(over: Dim, under: int, *operands: Any) -> Any:
    return Ratio(over, under) if any(isinstance(operand, Ratio) for operand in operands) else over


def _element(element: Any, is_float: bool) -> Any:
    """Return one element as a dim, a bool or, of a float, a ratio."""
    if isinstance(element, Ratio | bool | np.bool_):
        return element if isinstance(element, Ratio) else bool(element)
    if not is_float:
        return element if isinstance(element, Expr) else int(element)
    if isinstance(element, Expr):
        return Ratio(element, 1)
    if not np.isfinite(element):
        raise _Undecided
    return _nearest_ratio(float(element))


def _nearest_ratio(number: float) -> Ratio:
    """Read a float as the simplest fraction that it is the nearest float32 to: 0.1 means 1/10."""
    exact = Fraction(number)
    simple = exact.limit_denominator(100_000)
    chosen = simple if np.float32(float(simple)) == np.float32(number) else exact
    return Ratio(chosen.numerator, chosen.denominator)


def _plain(elements: np.ndarray, node: Node) -> np.ndarray:
    """Return the array in its own dtype if all elements are numbers, else as objects."""
    if elements.dtype != object:
        return elements
    flat = elements.reshape(-1).tolist()
    if any(
        isinstance(element, Expr) or (isinstance(element, Ratio) and type(element.over) is not int) for element in flat
    ):
        return elements
    numbers = [element.over / element.under if isinstance(element, Ratio) else element for element in flat]
    return np.array(numbers, dtype=node.types[0].dtype.numpy).reshape(elements.shape)


def _is_small(value: Value) -> bool:
    return all(type(extent) is int for extent in value.shape) and product(value.shape) <= MOST_ELEMENTS
