"""The scalar table against NumPy and Python's math, on awkward values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from luminal_onnx.ir.scalars import (
    REDUCTIONS,
    TABLE,
    c_expression,
    c_literal,
    convert,
    evaluate,
    result_dtype,
)
from luminal_onnx.plan import dtypes
from luminal_onnx.plan.dtypes import bool_, float16, float32, float64, int8, int32, int64, uint8
from luminal_onnx.plan.errors import LuminalError

from tolerances import ELEMENTWISE, assert_close

AWKWARD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -1e-40, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, 1e30]
FLOATS = [dtype for dtype in dtypes.ALL if dtype.is_float]
INTEGERS = [dtype for dtype in dtypes.ALL if dtype.is_integer]


def awkward(dtype) -> np.ndarray:
    """Return special values and a spread of ordinary ones."""
    if dtype.kind == "b":
        return np.array([False, True, True, False])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        values = [info.min, info.min + 1, 0, 1, 2, 3, 7, info.max - 1, info.max]
        return np.array(values + ([-1, -2, -7] if dtype.kind == "i" else []), dtype.numpy)
    spread = np.random.default_rng(5).uniform(-3, 3, 40)
    with np.errstate(over="ignore"):
        return np.concatenate([AWKWARD, spread]).astype(dtype.numpy)


def pairs(dtype) -> tuple[np.ndarray, np.ndarray]:
    values = awkward(dtype)
    return np.repeat(values, values.size), np.tile(values, values.size)


MATH_ORACLES = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "recip": lambda x: 1 / x, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[float]), "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round_even": np.round, "abs": np.abs, "neg": np.negative, "sign": np.sign,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("fn", MATH_ORACLES)
def test_float_functions_of_one_operand(fn, dtype):
    x = awkward(dtype)
    x = x[(np.abs(x.astype(float)) < 50) | ~np.isfinite(x.astype(float))]  # sin(1e30) in float32 is another number
    result = evaluate(fn, [x])
    assert result.dtype == dtype.numpy
    with np.errstate(all="ignore"):
        expected = MATH_ORACLES[fn](x.astype(np.float64)).astype(dtype.numpy)
    assert_close(result, expected, ELEMENTWISE)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("fn", "oracle"),
    [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide), ("min", np.minimum),
     ("max", np.maximum), ("floor_mod", np.mod), ("trunc_mod", np.fmod), ("pow", np.power)],
)
def test_float_functions_of_two_operands(fn, oracle, dtype):
    a, b = pairs(dtype)
    result = evaluate(fn, [a, b])
    assert result.dtype == dtype.numpy
    with np.errstate(all="ignore"):
        compute = dtype.compute.numpy
        expected = oracle(a.astype(compute), b.astype(compute)).astype(dtype.numpy)
    assert_close(result, expected, ELEMENTWISE)


def wrapped(value: int, dtype) -> int:
    """Return an exact integer as it wraps around in dtype."""
    value %= 2**dtype.bits
    return value - 2**dtype.bits if dtype.kind == "i" and value >= 2 ** (dtype.bits - 1) else value


def truncated_division(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def python_power(a: int, b: int) -> int:
    if b >= 0:
        return a**b if b < 200 else pow(a, b, 2**64)
    return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)


PYTHON_ORACLES = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max,
    "div": truncated_division, "trunc_mod": lambda a, b: a - truncated_division(a, b) * b if b else 0,
    "floor_mod": lambda a, b: a % b if b else 0, "pow": python_power,
    "bit_and": lambda a, b: a & b, "bit_or": lambda a, b: a | b, "bit_xor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("fn", PYTHON_ORACLES)
def test_integer_functions_are_exact_and_wrap(fn, dtype):
    a, b = pairs(dtype)
    result = evaluate(fn, [a, b])
    expected = [wrapped(PYTHON_ORACLES[fn](x, y), dtype) for x, y in zip(a.tolist(), b.tolist())]
    assert result.dtype == dtype.numpy
    assert result.tolist() == expected


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_functions_of_one_operand(dtype):
    x = awkward(dtype)
    oracles = {"neg": lambda v: -v, "abs": abs, "sign": lambda v: (v > 0) - (v < 0), "bit_not": lambda v: ~v}
    for fn, oracle in oracles.items():
        result = evaluate(fn, [x])
        assert result.dtype == dtype.numpy
        assert result.tolist() == [wrapped(oracle(value), dtype) for value in x.tolist()]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_beyond_the_width_shift_everything_out(dtype):
    x = np.repeat(awkward(dtype), 5)
    count = np.tile(np.array([0, 1, dtype.bits - 1, dtype.bits, dtype.bits + 3], dtype.numpy), awkward(dtype).size)
    for fn, oracle in (("shift_left", lambda a, n: a << n), ("shift_right", lambda a, n: a >> n)):
        expected = [wrapped(oracle(a, n), dtype) for a, n in zip(x.tolist(), count.tolist())]
        assert evaluate(fn, [x, count]).tolist() == expected


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_comparisons_give_bool_and_nan_compares_unequal(dtype):
    a, b = pairs(dtype)
    oracles = {"equal": np.equal, "not_equal": np.not_equal}
    if dtype is not bool_:
        oracles |= {
            "less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal
        }
    for fn, oracle in oracles.items():
        result = evaluate(fn, [a, b])
        assert result.dtype == bool
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(result, oracle(a, b))
    chosen = evaluate("where", [a == b, a, b])
    assert chosen.dtype == dtype.numpy


def test_logic_and_float_classification():
    a, b = pairs(bool_)
    for fn, oracle in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        np.testing.assert_array_equal(evaluate(fn, [a, b]), oracle(a, b))
    np.testing.assert_array_equal(evaluate("not", [a]), ~a)
    x = awkward(float16)
    np.testing.assert_array_equal(evaluate("isnan", [x]), np.isnan(x))
    np.testing.assert_array_equal(evaluate("isinf", [x]), np.isinf(x))


def test_erf_is_accurate_to_the_last_bits_of_float64():
    x = np.concatenate([np.linspace(-7, 7, 20_001), np.logspace(-300, 0, 200), AWKWARD])
    expected = np.array([math.erf(value) for value in x])
    result = evaluate("erf", [x])
    assert np.nanmax(np.abs(result - expected)) < 1e-15
    assert np.array_equal(np.signbit(result), np.signbit(expected))


@pytest.mark.parametrize("source", FLOATS, ids=str)
@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_float_to_integer_truncates_saturates_and_takes_nan_to_zero(source, target):
    info = np.iinfo(target.numpy)
    near = [float(info.max), float(info.min), info.max + 1.0, info.min - 1.0, info.max / 2, 1e38, -1e38]
    with np.errstate(over="ignore"):
        x = np.concatenate([awkward(source), np.array(near).astype(source.numpy)])
    expected = []
    for value in x.astype(np.float64).tolist():
        if math.isnan(value):
            expected.append(0)
        elif math.isinf(value):
            expected.append(info.max if value > 0 else info.min)
        else:
            expected.append(min(max(math.trunc(value), info.min), info.max))
    assert convert(x, target.numpy).tolist() == [int(value) for value in expected]


def test_casts_to_bool_and_between_integers():
    floats = np.array([0.0, -0.0, math.nan, 1e-40, -3])
    assert convert(floats, np.dtype(bool)).tolist() == [False, False, True, True, True]
    assert convert(np.array([300, -1, 128], np.int64), np.dtype(np.int8)).tolist() == [44, -1, -128]
    assert convert(np.array([-1], np.int8), np.dtype(np.uint64)).tolist() == [2**64 - 1]
    assert convert(np.array([True, False]), float32.numpy).tolist() == [1.0, 0.0]


def test_sixteen_bit_floats_round_once():
    x = np.array([1.0], np.float16)
    tiny = np.array([2.0**-12], np.float16)  # 1 + 2^-12 rounds to 1 in float16
    assert evaluate("add", [x, tiny])[0] == 1
    big = np.array([60000.0], np.float16)
    assert evaluate("mul", [big, big])[0] == np.inf


def test_every_row_has_c_text_for_every_dtype_it_takes():
    for row in TABLE.values():
        for dtype in dtypes.ALL:
            if dtype.kind not in row.kinds:
                continue
            operands = [dtype] * row.arity
            if row.name == "where":
                operands[0] = bool_
            arguments = ["a", "b", "c"][: row.arity]
            text = c_expression(row.name, arguments, operands, result_dtype(row.name, operands, int32))
            assert all(argument in text for argument in arguments), (row.name, dtype, text)
            assert "{" not in text


def test_c_text_of_casts_depends_on_both_dtypes():
    assert c_expression("cast", ["x"], [float32], float16) == "x"  # both live in float32 registers
    assert c_expression("cast", ["x"], [float32], float64) == "(double)x"
    assert c_expression("cast", ["x"], [float16], int8) == "saturate_cast<int8_t>(x)"
    assert c_expression("cast", ["x"], [int64], uint8) == "(uint8_t)x"
    assert c_expression("cast", ["x"], [int64], bool_) == "x != 0"


def test_literals_keep_exact_values():
    assert c_literal(0.1, float32).endswith("f")
    assert float.fromhex(c_literal(0.1, float32)[:-1]) == float(np.float32(0.1))
    assert float.fromhex(c_literal(0.1, float64)) == 0.1
    assert c_literal(-0.0, float32) == "(-0.0f)"
    assert c_literal(math.inf, float32) == "INFINITY"
    assert c_literal(-(2**63), int64) == "(-9223372036854775807ll - 1)"
    assert c_literal(2**64 - 1, dtypes.uint64) == "18446744073709551615ull"
    assert c_literal(True, bool_) == "true"


@pytest.mark.parametrize(
    ("fn", "operands", "message"),
    [
        ("frobnicate", [float32], "no scalar function 'frobnicate'"),
        ("add", [float32], "add takes 2 operands, not 1"),
        ("add", [float32, float64], "one dtype"),
        ("add", [bool_, bool_], "does not take bool"),
        ("exp", [int32], "does not take int32"),
        ("where", [int32, float32, float32], "bool condition"),
        ("cast", [float32], "the dtype to convert to"),
    ],
)
def test_wrong_use_is_named(fn, operands, message):
    with pytest.raises(LuminalError, match=message):
        result_dtype(fn, operands)


def test_reduction_identities_change_nothing():
    for reduction in REDUCTIONS.values():
        for dtype in dtypes.ALL:
            if dtype.kind not in reduction.kinds:
                continue
            values = awkward(dtype)
            identity = np.array(reduction.identity(dtype)).astype(dtype.numpy)
            result = evaluate(reduction.combine, [values, np.broadcast_to(identity, values.shape)])
            np.testing.assert_array_equal(result.astype(float), values.astype(float))
