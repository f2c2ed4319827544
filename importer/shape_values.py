"""What is known of small tensors before running: their elements as numbers or as dims.

ONNX models compute shapes with ordinary tensors: they take the shape of one, pick an extent, multiply, concatenate and
reshape by the result. Those tensors are imported as ordinary nodes, whose elements this module works out again on the
primitives. So whatever operators a model uses for it, a value that depends on nothing but dims is known.

An element that data decides is an `Unknown`, which keeps track of where it comes from: a shape of which some elements
are known and others not is known as far as can be, and one number that goes into several shapes is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
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
from ..plan.dtypes import int64

MOST_ELEMENTS = 1024
MOST_UNKNOWN = 64  # tensors that are shapes have fewer elements


class _Undecided(Exception):
    """An element is not a function of the dims that can be written down, at least while it is not known whether
    `question`, a dim, is 0 or more."""

    def __init__(self, question: Dim | None = None) -> None:
        self.question = question


@dataclass(frozen=True)
class Unknown:
    """An element that data decides: number `place`, in row-major order, of the elements of `value`."""

    value: Value
    place: int


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
        self._sizes: dict[Unknown, Dim] = {}
        self._dims = DimArithmetic(ranges)

    def of(self, value: Value) -> np.ndarray | None:
        """Return the elements: a numeric array, or one of objects where some are dims; None if they are not known."""
        elements = self.elements(value)
        return None if elements is None or _has_unknown(elements) else elements

    def elements(self, value: Value) -> np.ndarray | None:
        """Return the elements as `of` does, those that data decides as Unknown; None if nothing is kept of any."""
        if value not in self._found:
            self._found[value] = self._work_out(value) if _is_small(value) else None
        return self._found[value]

    def question(self, value: Value) -> Dim | None:
        """Return a dim of which it must be known whether it is 0 or more before the elements of a value can be."""
        return self._asked(value) if self.of(value) is None else None

    def define(self, unknown: Unknown, dim: Dim) -> None:
        """Let a dim stand for an element that data decides."""
        self._sizes[unknown] = dim
        stale = [value for value, found in self._found.items() if found is not None and _has_unknown(found)]
        for value in stale:
            del self._found[value]
        for value in stale:  # in the order in which they were found: what one is computed from comes before it
            self.elements(value)

    def _work_out(self, value: Value) -> np.ndarray | None:
        node = value.node
        if node.op == "constant":
            return node.attrs["data"]
        rule = _RULES.get(node.op)
        operands = [self.elements(operand) for operand in node.inputs]
        if rule is None or any(operand is None for operand in operands):
            return self._decided_by_data(value)
        try:
            return rule(self, node, operands)
        except _Undecided as undecided:
            self._ask(value, undecided.question)
            return self._decided_by_data(value)

    def _ask(self, value: Value, question: Dim | None) -> None:
        """Remember what must be known before the elements of a value can be: this, or what its operands wait for."""
        questions = [question, *map(self._asked, value.node.inputs)]
        found = next((question for question in questions if question is not None), None)
        if found is not None:
            self._questions.setdefault(value, found)

    def _asked(self, value: Value) -> Dim | None:
        if value not in self._questions:
            elements = self.elements(value)
            unknown = [] if elements is None or elements.dtype != object else elements.reshape(-1).tolist()
            origins = [element.value for element in unknown if isinstance(element, Unknown)]
            return next((self._questions[origin] for origin in origins if origin in self._questions), None)
        return self._questions[value]

    def _decided_by_data(self, value: Value) -> np.ndarray | None:
        self._ask(value, None)
        count = product(value.shape)
        if count == 0:
            return np.empty(value.shape, value.dtype.numpy)
        if value.dtype.is_float or count > MOST_UNKNOWN:
            return None
        elements = np.empty(count, object)
        for place in range(count):
            unknown = Unknown(value, place)
            elements[place] = self._sizes.get(unknown, unknown)
        return _plain(elements.reshape(value.shape), value.node)

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
        for place, at in enumerate(np.ndindex(*elements.shape)):
            arguments = [_element(operand[at], is_float) for operand in operands]
            elements[at] = self._or_unknown(node, place, rule, arguments)
        return _plain(elements, node)

    def _or_unknown(self, node: Node, place: int, rule: Callable[..., Any], arguments: list[Any]) -> Any:
        """Return what the rule makes of these elements, or that data decides it."""
        if rule is _choice and not isinstance(arguments[0], Unknown):
            return rule(*arguments)
        question = None
        if not any(isinstance(argument, Unknown) for argument in arguments):
            try:
                return rule(*arguments)
            except _Undecided as undecided:
                question = undecided.question
        if node.types[0].dtype.is_float:
            raise _Undecided(question)
        self._ask(node.output, question)
        unknown = Unknown(node.output, place)
        return self._sizes.get(unknown, unknown)

    def _cast(self, node: Node, operand: np.ndarray) -> np.ndarray:
        source, target = node.inputs[0].dtype, node.types[0].dtype
        elements = np.empty(operand.shape, object)
        if target.kind == "b":
            rule = partial(self._dims.differ, b=0)
        else:
            rule = self._dims.trunc if target.is_integer else lambda element: element
        same = source.is_integer and target is int64
        for place, at in enumerate(np.ndindex(*elements.shape)):
            element = _element(operand[at], source.is_float)
            if same and isinstance(element, Unknown):
                elements[at] = element
            else:
                elements[at] = self._or_unknown(node, place, rule, [element])
        return _plain(elements, node)

    def _reduce(self, node: Node, operands: list[np.ndarray]) -> np.ndarray:
        (operand,) = operands
        fn, count = node.attrs["fn"], node.attrs["count"]
        if operand.dtype != object:
            return reduce_array(fn, operand, count)
        combine = self._dims.table[{"sum": "add", "prod": "mul"}.get(fn, fn)]
        elements = np.empty(node.types[0].shape, object)
        for place, at in enumerate(np.ndindex(*elements.shape)):
            row = [_element(element, node.types[0].dtype.is_float) for element in operand[at].reshape(-1)]
            if not row:
                raise _Undecided
            elements[at] = self._or_unknown(node, place, lambda *row: reduce(combine, row), row)
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
            "where": _choice,
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


def _choice(condition: bool, a: Any, b: Any) -> Any:
    return a if condition else b


def _ratio(a: Any) -> tuple[Dim, int]:
    return (a.over, a.under) if isinstance(a, Ratio) else (a, 1)


def _reduced(over: Dim, under: int, *operands: Any) -> Any:
    return Ratio(over, under) if any(isinstance(operand, Ratio) for operand in operands) else over


def _element(element: Any, is_float: bool) -> Any:
    """Return one element as a dim, a bool or, of a float, a ratio; an unknown one as it is."""
    if isinstance(element, Unknown):
        return element
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
        isinstance(element, Expr | Unknown) or (isinstance(element, Ratio) and type(element.over) is not int) for element in flat
    ):
        return elements
    numbers = [element.over / element.under if isinstance(element, Ratio) else element for element in flat]
    return np.array(numbers, dtype=node.types[0].dtype.numpy).reshape(elements.shape)


def _has_unknown(elements: np.ndarray) -> bool:
    return elements.dtype == object and any(isinstance(element, Unknown) for element in elements.reshape(-1).tolist())


def _is_small(value: Value) -> bool:
    return all(type(extent) is int for extent in value.shape) and product(value.shape) <= MOST_ELEMENTS
