"""The table of scalar functions: one row each, with its NumPy meaning, C expression, dtype rule, cost and facts.

Adding a function is adding a row. Contracts that hold for every row:

- All operands have one dtype (but for the condition of `where` and the shift counts, see the row); so has the result,
  or it is bool.
- Integers are exact and wrap around; integer division by zero gives 0. Floats follow IEEE 754, and NaN propagates.
- 16-bit floats are held in float32 registers: they are computed there and rounded when they are stored.
- A C expression may name an argument more than once, so arguments are names or parenthesised pure expressions. It is
  assigned to a variable of the result's register type, which makes small integers wrap. Signed overflow wraps too: the
  host compiler gets `-fwrapv`, and the device's arithmetic does so anyway.
- Besides CUDA's math functions, expressions use these, from `codegen/cuda/prelude.cuh` (overloads for each dtype):
  `nan_max nan_min` (NaN if either is NaN), `floor_div floor_mod trunc_div trunc_mod` (integers: x/0 = x%0 = 0, and the
  lowest / -1 wraps; floats have `floor_mod` only, with the divisor's sign), `ipow` (integers: wraps; a negative
  exponent gives 0 unless the base is 1 or -1), `shift_left shift_right` (a count outside 0..bits-1 shifts everything out),
  `saturate_cast<T>` (float to integer: truncates, clamps to T's range, NaN gives 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..plan.dtypes import DType, bool_, float64
from ..plan.errors import LuminalError
from .erf import erf

CKind = str  # "half", "float", "double", "int" or "bool": the kind of value that picks a C template


@dataclass(frozen=True)
class Scalar:
    """One scalar function.

    `kinds` are the operand kinds it takes (letters of `DType.kind`), `result` is "same", "bool" or "cast". `c` is one
    template for all kinds or one per kind ("double" and "half", a 16-bit float in a float register, fall back to
    "float", "bool" to "int"). A "half" template need only be far better than half a unit in the last place. `cost` is in
    units of a float32 addition. `facts` are algebraic truths that rewrite rules may rely on *exactly*: a float addition
    is commutative but not associative, so "associative" here means up to rounding for floats, exactly for integers.
    """

    name: str
    arity: int
    kinds: str
    numpy: Callable[..., np.ndarray]
    c: str | Mapping[CKind, str]
    result: str = "same"
    cost: float = 1.0
    facts: frozenset[str] = frozenset()

    def template(self, dtype: DType) -> str:
        """Return the C template for operands of `dtype`; `{0}`, `{1}`, ... stand for the arguments."""
        if isinstance(self.c, str):
            return self.c
        for kind in _FALLBACKS[_register_kind(dtype)]:
            if kind in self.c:
                return self.c[kind]
        raise LuminalError(f"scalar function {self.name!r} has no C expression for {dtype}")


_FALLBACKS = {
    "half": ("half", "float"),
    "float": ("float",),
    "double": ("double", "float"),
    "int": ("int",),
    "bool": ("bool", "int"),
}


def _register_kind(dtype: DType) -> CKind:
    if dtype.is_float:
        return {64: "double", 32: "float", 16: "half"}[dtype.bits]
    return "bool" if dtype.kind == "b" else "int"


def _math(name: str) -> dict[CKind, str]:
    return {"float": f"{name}f({{0}})", "double": f"{name}({{0}})"}


def _math2(name: str) -> dict[CKind, str]:
    return {"float": f"{name}f({{0}}, {{1}})", "double": f"{name}({{0}}, {{1}})"}


def _truncating_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    inexact_negative = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return (quotient + inexact_negative).astype(a.dtype)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.power(a, b)
    result = np.power(a, np.maximum(b, 0))
    if a.dtype.kind == "u":
        return result
    of_negative = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0)).astype(a.dtype)
    return np.where(b < 0, of_negative, result)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


def _bits(text: str = "") -> frozenset[str]:
    return frozenset(text.split())


_COMMUTES = _bits("commutative")
_RING = _bits("commutative associative")
_LATTICE = _bits("commutative associative idempotent")

_ROWS = (
    # arithmetic
    Scalar("add", 2, "fiu", np.add, "{0} + {1}", facts=_RING),
    Scalar("sub", 2, "fiu", np.subtract, "{0} - {1}"),
    Scalar("mul", 2, "fiu", np.multiply, "{0} * {1}", facts=_RING),
    Scalar("div", 2, "fiu", _truncating_div, {"float": "{0} / {1}", "int": "trunc_div({0}, {1})"}, cost=8),
    Scalar("neg", 1, "fiu", np.negative, "-{0}"),
    Scalar("abs", 1, "fiu", np.abs, {**_math("fabs"), "int": "{0} < 0 ? -{0} : {0}"}, facts=_bits("idempotent")),
    Scalar(
        "sign", 1, "fiu", np.sign,
        {
            "float": "{0} > 0.0f ? 1.0f : ({0} < 0.0f ? -1.0f : ({0} == 0.0f ? 0.0f : {0}))",
            "double": "{0} > 0.0 ? 1.0 : ({0} < 0.0 ? -1.0 : ({0} == 0.0 ? 0.0 : {0}))",
            "int": "({0} > 0) - ({0} < 0)",
        },
        cost=3, facts=_bits("idempotent"),
    ),
    Scalar("recip", 1, "f", np.reciprocal, {"float": "1.0f / {0}", "double": "1.0 / {0}"}, cost=8),
    Scalar("floor_mod", 2, "fiu", np.mod, "floor_mod({0}, {1})", cost=20),
    Scalar("trunc_mod", 2, "fiu", np.fmod, {**_math2("fmod"), "int": "trunc_mod({0}, {1})"}, cost=20),
    Scalar("pow", 2, "fiu", _power, {**_math2("pow"), "int": "ipow({0}, {1})"}, cost=40),
    Scalar(
        "min", 2, "fiub", np.minimum,
        {"float": "nan_min({0}, {1})", "int": "{0} < {1} ? {0} : {1}", "bool": "{0} && {1}"}, facts=_LATTICE,
    ),
    Scalar(
        "max", 2, "fiub", np.maximum,
        {"float": "nan_max({0}, {1})", "int": "{0} > {1} ? {0} : {1}", "bool": "{0} || {1}"}, facts=_LATTICE,
    ),
    # roots, exponentials, logarithms
    Scalar("sqrt", 1, "f", np.sqrt, _math("sqrt"), cost=8),
    Scalar(
        "rsqrt", 1, "f", lambda x: np.reciprocal(np.sqrt(x)),
        {"float": "1.0f / sqrtf({0})", "double": "1.0 / sqrt({0})"}, cost=10,
    ),
    Scalar("exp", 1, "f", np.exp, _math("exp"), cost=10),
    Scalar("exp2", 1, "f", np.exp2, _math("exp2"), cost=8),
    Scalar("log", 1, "f", np.log, _math("log"), cost=16),
    Scalar("log2", 1, "f", np.log2, _math("log2"), cost=16),
    # trigonometry and its relatives
    Scalar("sin", 1, "f", np.sin, _math("sin"), cost=20),
    Scalar("cos", 1, "f", np.cos, _math("cos"), cost=20),
    Scalar("tan", 1, "f", np.tan, _math("tan"), cost=30),
    Scalar("asin", 1, "f", np.arcsin, _math("asin"), cost=20),
    Scalar("acos", 1, "f", np.arccos, _math("acos"), cost=20),
    Scalar("atan", 1, "f", np.arctan, _math("atan"), cost=20),
    Scalar("sinh", 1, "f", np.sinh, _math("sinh"), cost=25),
    Scalar("cosh", 1, "f", np.cosh, _math("cosh"), cost=25),
    Scalar("tanh", 1, "f", np.tanh, _math("tanh"), cost=20),
    Scalar("asinh", 1, "f", np.arcsinh, _math("asinh"), cost=30),
    Scalar("acosh", 1, "f", np.arccosh, _math("acosh"), cost=30),
    Scalar("atanh", 1, "f", np.arctanh, _math("atanh"), cost=30),
    Scalar("erf", 1, "f", erf, {**_math("erf"), "half": "erf_to_half({0})"}, cost=25),
    Scalar(
        "sigmoid", 1, "f", _sigmoid,
        {"float": "1.0f / (1.0f + expf(-{0}))", "double": "1.0 / (1.0 + exp(-{0}))"}, cost=20,
    ),
    # rounding
    Scalar("floor", 1, "f", np.floor, _math("floor"), facts=_bits("idempotent")),
    Scalar("ceil", 1, "f", np.ceil, _math("ceil"), facts=_bits("idempotent")),
    Scalar("trunc", 1, "f", np.trunc, _math("trunc"), facts=_bits("idempotent")),
    Scalar("round_even", 1, "f", np.rint, _math("rint"), facts=_bits("idempotent")),
    # comparisons
    Scalar("less", 2, "fiu", np.less, "{0} < {1}", result="bool"),
    Scalar("less_equal", 2, "fiu", np.less_equal, "{0} <= {1}", result="bool"),
    Scalar("greater", 2, "fiu", np.greater, "{0} > {1}", result="bool"),
    Scalar("greater_equal", 2, "fiu", np.greater_equal, "{0} >= {1}", result="bool"),
    Scalar("equal", 2, "fiub", np.equal, "{0} == {1}", result="bool", facts=_COMMUTES),
    Scalar("not_equal", 2, "fiub", np.not_equal, "{0} != {1}", result="bool", facts=_COMMUTES),
    Scalar("isnan", 1, "f", np.isnan, "isnan({0})", result="bool"),
    Scalar("isinf", 1, "f", np.isinf, "isinf({0})", result="bool"),
    # logic and choice; the first operand of `where` is bool, the others have the result's dtype
    Scalar("and", 2, "b", np.logical_and, "{0} && {1}", facts=_LATTICE),
    Scalar("or", 2, "b", np.logical_or, "{0} || {1}", facts=_LATTICE),
    Scalar("xor", 2, "b", np.logical_xor, "{0} != {1}", facts=_RING),
    Scalar("not", 1, "b", np.logical_not, "!{0}"),
    Scalar("where", 3, "fiub", np.where, "{0} ? {1} : {2}"),
    # bits
    Scalar("bit_and", 2, "iu", np.bitwise_and, "{0} & {1}", facts=_LATTICE),
    Scalar("bit_or", 2, "iu", np.bitwise_or, "{0} | {1}", facts=_LATTICE),
    Scalar("bit_xor", 2, "iu", np.bitwise_xor, "{0} ^ {1}", facts=_RING),
    Scalar("bit_not", 1, "iu", np.invert, "~{0}"),
    Scalar("shift_left", 2, "iu", np.left_shift, "shift_left({0}, {1})"),
    Scalar("shift_right", 2, "iu", np.right_shift, "shift_right({0}, {1})"),
    # conversion; its C text depends on both dtypes (`c_expression`), its meaning is `convert`
    Scalar("cast", 1, "fiub", lambda x: x, "{0}", result="cast"),
)

TABLE: Mapping[str, Scalar] = {row.name: row for row in _ROWS}
if len(TABLE) != len(_ROWS):
    raise LuminalError("two rows of the scalar table have one name")


@dataclass(frozen=True)
class Reduction:
    """How a `reduce` combines: by `combine`, starting from `identity(dtype)`, which is the value of no elements."""

    name: str
    combine: str
    kinds: str
    identity: Callable[[DType], float | bool]


def lowest(dtype: DType) -> float | bool:
    """Return the value that every other is greater than or equal to: -inf, the least integer, or False."""
    if dtype.is_float:
        return -np.inf
    return int(np.iinfo(dtype.numpy).min) if dtype.is_integer else False


def highest(dtype: DType) -> float | bool:
    """Return the value that no other exceeds: inf, the greatest integer, or True."""
    if dtype.is_float:
        return np.inf
    return int(np.iinfo(dtype.numpy).max) if dtype.is_integer else True


REDUCTIONS: Mapping[str, Reduction] = {
    reduction.name: reduction
    for reduction in (
        Reduction("sum", "add", "fiu", lambda dtype: 0),
        Reduction("prod", "mul", "fiu", lambda dtype: 1),
        Reduction("max", "max", "fiub", lowest),
        Reduction("min", "min", "fiub", highest),
    )
}


def row(fn: str) -> Scalar:
    """Return the row of `fn`; LuminalError if the table has none."""
    try:
        return TABLE[fn]
    except KeyError:
        raise LuminalError(f"there is no scalar function {fn!r}; known: {', '.join(TABLE)}") from None


def result_dtype(fn: str, operands: Sequence[DType], declared: DType | None = None) -> DType:
    """Return the dtype of `fn` of operands of these dtypes; only `cast` needs `declared`, the dtype to convert to."""
    scalar = row(fn)
    if len(operands) != scalar.arity:
        raise LuminalError(f"{fn} takes {scalar.arity} operands, not {len(operands)}")
    values = operands
    if fn == "where":
        if operands[0] is not bool_:
            raise LuminalError(f"where needs a bool condition, not {operands[0]}")
        values = operands[1:]
    if any(dtype is not values[0] for dtype in values):
        raise LuminalError(f"{fn} needs operands of one dtype, not {', '.join(map(str, values))}")
    if values[0].kind not in scalar.kinds:
        raise LuminalError(f"{fn} does not take {values[0]}; it takes the kinds {', '.join(scalar.kinds)}")
    if scalar.result == "bool":
        return bool_
    if scalar.result == "same":
        return values[0]
    if declared is None:
        raise LuminalError("cast needs the dtype to convert to")
    return declared


def evaluate(fn: str, operands: Sequence[np.ndarray], dtype: DType | None = None) -> np.ndarray:
    """Return the NumPy value of `fn` point by point; operands broadcast. `cast` converts to `dtype`.

    16-bit floats are computed in float32 and rounded once at the end.
    """
    scalar = row(fn)
    if fn == "cast":
        return convert(operands[0], dtype.numpy)
    narrow = next((x.dtype for x in operands if _is_narrow_float(x.dtype)), None)
    if narrow is not None:
        operands = [x.astype(np.float32) if x.dtype == narrow else x for x in operands]
    with np.errstate(all="ignore"):
        result = np.asarray(scalar.numpy(*operands))
        return result.astype(narrow) if narrow is not None and result.dtype == np.float32 else result


def _is_narrow_float(dtype: np.dtype) -> bool:
    return dtype.itemsize == 2 and dtype.kind not in "iub"


def convert(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return `array` in another NumPy dtype.

    Float to integer truncates toward zero, clamps to the range, and takes NaN to 0; to bool is `!= 0`; integer to
    integer wraps; anything to float rounds to nearest even.
    """
    if array.dtype == dtype:
        return array
    if _is_narrow_float(array.dtype):
        array = array.astype(np.float32)
    with np.errstate(all="ignore"):
        if array.dtype.kind == "f" and dtype.kind in "iu":
            return _truncate(array, dtype)
        if _is_narrow_float(dtype) and array.dtype.kind in "iub":
            array = array.astype(np.float32)
        return array.astype(dtype)


def _truncate(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    wide = np.trunc(array.astype(np.float64))
    above = wide >= float(info.max) + 1.0  # exact: a power of two, or its nearest double, which is one
    below = wide < float(info.min)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide).astype(dtype)
    return np.where(above, info.max, np.where(below, info.min, inside)).astype(dtype)


def c_expression(fn: str, arguments: Sequence[str], operands: Sequence[DType], dtype: DType) -> str:
    """Return the C expression of `fn` over register variables `arguments`, whose tensors have dtypes `operands`.

    `dtype` is the result's. The value is to be assigned to a variable of type `dtype.compute.c_type`. A cast to a
    16-bit float is not rounded here, since its register is wider; the caller rounds it.
    """
    if fn == "cast":
        return _c_cast(arguments[0], operands[0].compute, dtype.compute)
    return row(fn).template(operands[-1]).format(*arguments)


def _c_cast(argument: str, source: DType, target: DType) -> str:
    if source is target:
        return argument
    if target is bool_:
        return f"{argument} != 0"
    if source.is_float and target.is_integer:
        return f"saturate_cast<{target.c_type}>({argument})"
    return f"({target.c_type}){argument}"


def c_literal(value: float | bool, dtype: DType) -> str:
    """Return a C literal of exactly `value` in a register that holds `dtype`; floats are written in hexadecimal."""
    if dtype is bool_:
        return "true" if value else "false"
    if dtype.is_integer:
        return _c_integer(int(value), dtype)
    suffix = "" if dtype is float64 else "f"
    value = float(value) if dtype is float64 else float(np.float32(value))
    if math.isnan(value):
        return "NAN" if suffix else "(double)NAN"
    if value in (np.inf, -np.inf):
        infinity = "INFINITY" if suffix else "(double)INFINITY"
        return infinity if value > 0 else f"(-{infinity})"
    text = repr(value) if value.is_integer() and abs(value) < 1e6 else value.hex()
    return f"({text}{suffix})" if text.startswith("-") else text + suffix


def _c_integer(value: int, dtype: DType) -> str:
    if dtype.kind == "u":
        return f"{value}{'ull' if dtype.bits == 64 else 'u'}"
    if value == -(2**63):
        return "(-9223372036854775807ll - 1)"
    if value == -(2**31):
        return "(-2147483647 - 1)"
    text = f"{value}{'ll' if dtype.bits == 64 else ''}"
    return f"({text})" if value < 0 else text
