"""The NumPy stand-in for cuBLASLt against sums taken element by element from the definition of the record."""

from __future__ import annotations

import numpy as np
import pytest
import tolerances
from hypothesis import given, settings
from hypothesis import strategies as st
from lt_cases import make_case, sweep
from luminal_onnx.plan.dtypes import bfloat16, float16, float32, float64
from luminal_onnx.plan.errors import KernelFault, LuminalError
from luminal_onnx.plan.lt import LtMatmul
from luminal_onnx.runtime.lt_reference import run_matmul


def check(case) -> None:
    out = case.before.copy()
    run_matmul(case.record, out, case.operands)
    tolerances.assert_close(out, case.after, tolerances.REDUCTION)


def test_every_layout_transpose_batch_offset_beta_and_bias():
    cases = sweep()
    assert len(cases) > 300
    for number, arguments in enumerate(cases):
        check(make_case(number, **arguments))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_record_that_validates_runs(data):
    draw = data.draw
    dtype = draw(st.sampled_from([float64, float32, float16, bfloat16]))
    type_d = draw(st.sampled_from([dtype, float32])) if dtype.bits == 16 else dtype
    orders = "".join(draw(st.sampled_from("cr")) for _ in range(3))
    case = make_case(
        draw(st.integers(0, 2**32)),
        m=draw(st.integers(1, 9)), n=draw(st.integers(1, 9)), k=draw(st.integers(1, 9)),
        batch=draw(st.integers(1, 4)), transpose_a=draw(st.booleans()), transpose_b=draw(st.booleans()),
        orders=orders, padding=draw(st.integers(0, 3)), offset=draw(st.integers(0, 7)), dtype=dtype, type_d=type_d,
        alpha=draw(st.sampled_from([1.0, 0.125, -2.0])), beta=draw(st.sampled_from([0.0, 1.0, -0.5])),
        bias=orders[2] == "c" and draw(st.booleans()),
        activation=draw(st.sampled_from(["", "relu", "gelu"])) if orders[2] == "c" and dtype is not float64 else "",
        shared=draw(st.sampled_from(["", "b", "c", "bc"])), interleaved=draw(st.booleans()),
    )  # fmt: skip
    out = case.before.copy()
    run_matmul(case.record, out, case.operands)
    tolerances.assert_close(out, case.after, tolerances.REDUCTION, vacuous_ok=True)
    untouched = case.after == case.before.astype(np.float64)
    np.testing.assert_array_equal(out[untouched], case.before[untouched])


def test_c_is_not_read_and_nan_spreads_as_arithmetic_says():
    case = make_case(1)
    case.operands[0][0] = np.nan
    out = np.full_like(case.before, np.inf)
    run_matmul(case.record, out, case.operands)
    d = out[: 7 * 11].reshape(11, 7)
    assert np.isnan(d[:, 0]).all() and np.isfinite(d[:, 1:]).all()


def test_sixteen_bit_operands_are_summed_in_float32():
    k = 4096
    case = make_case(2, m=3, n=2, k=k, dtype=float16)
    case.operands[0][:] = 1.0
    case.operands[1][:] = 0.25
    run_matmul(case.record, case.before, case.operands)
    np.testing.assert_array_equal(case.before[:6].astype(np.float64), k / 4)


@pytest.mark.parametrize("operand, label", [(0, "A"), (1, "B"), (2, "C"), (3, "the bias")])
def test_a_buffer_that_is_too_small_is_named(operand, label):
    case = make_case(3, beta=1.0, bias=True)
    case.operands[operand] = case.operands[operand][:4].copy()
    with pytest.raises(KernelFault, match=f"reaches element .* of {label}, which has 4"):
        run_matmul(case.record, case.before, case.operands)


def test_wrong_operands_are_named():
    case = make_case(3)
    with pytest.raises(KernelFault, match="takes 2 operands, got 1"):
        run_matmul(case.record, case.before, case.operands[:1])
    with pytest.raises(KernelFault, match="A of a matrix product is float64, the record says float32"):
        run_matmul(case.record, case.before, [case.operands[0].astype(np.float64), case.operands[1]])


def test_relu_turns_nan_into_zero_and_gelu_keeps_it():
    for activation, expected in (("relu", 0.0), ("gelu", np.nan)):
        case = make_case(1, activation=activation)
        case.operands[0][0] = np.nan
        run_matmul(case.record, case.before, case.operands)
        np.testing.assert_array_equal(case.before[:77].reshape(11, 7)[:, 0], expected)


def test_d_may_take_the_place_of_c():
    case = make_case(4, beta=1.0, alpha=0.5, batch=3, activation="relu", bias=True)
    out = case.operands[2].copy()
    run_matmul(case.record, out, [*case.operands[:2], out, case.operands[3]])
    expected = case.before.copy()
    run_matmul(case.record, expected, case.operands)
    np.testing.assert_array_equal(out[:231], expected[:231])


# m 7, n 11, k 5; A and B are packed, D is column-ordered.
REFUSED = {
    "bias on rows": ({"order_d": "row", "ldd": 11, "epilogue": "bias"}, "a bias needs a column-ordered D"),
    "relu on rows": ({"order_d": "row", "ldd": 11, "epilogue": "relu"}, "an activation needs a column-ordered D"),
    "unknown epilogue": ({"epilogue": "erf"}, "epilogue 'erf' is not one of"),
    "two operand types": ({"type_b": float16}, "A is float32, B is float16"),
    "narrower result": ({"type_d": float16}, "no product of float32 gives float16"),
    "other 16 bits": ({"type_a": float16, "type_b": float16, "type_d": bfloat16}, "no product of float16 gives bfloat16"),
    "f64 in f32": ({"type_a": float64, "type_b": float64, "type_d": float64}, "compute type float32 does not fit"),
    "f64 activation": (
        {"type_a": float64, "type_b": float64, "type_d": float64, "compute": float64, "epilogue": "relu"},
        "no relu of float64",
    ),
    "c in another order": ({"beta": 1.0, "order_c": "row", "ldc": 11}, "C and D must have the same order"),
    "c of one row": ({"beta": 1.0, "ldc": 0}, "leading dimension of C is 0, at least 7 needed"),
    "short lda": ({"lda": 6}, "leading dimension of A is 6, at least 7 needed"),
    "short ldb": ({"ldb": 4}, "leading dimension of B is 4, at least 5 needed"),
    "short ldd": ({"ldd": 6}, "leading dimension of D is 6, at least 7 needed"),
    "no terms": ({"k": 0}, "k is 0"),
    "no rows": ({"m": 0}, "m is 0"),
    "no batch": ({"batch": 0}, "batch is 0"),
    "alpha of nothing": ({"alpha": 0.0}, "alpha is 0"),
    "alpha without end": ({"alpha": float("inf")}, "must be finite"),
    "beta that is none": ({"beta": float("nan"), "ldc": 7}, "must be finite"),
    "backwards": ({"batch": 3, "stride_a": -35, "stride_b": 55, "stride_d": 77}, "stride_a is -35"),
    "before the start": ({"offset_b": -1}, "offset_b is -1"),
    "one d for all": ({"batch": 3, "stride_a": 35, "stride_b": 55, "stride_d": 0}, "the matrices of D overlap"),
    "d upon d": ({"batch": 3, "stride_a": 35, "stride_b": 55, "stride_d": 76}, "the matrices of D overlap"),
    "d too near": ({"batch": 3, "stride_d": 7, "ldd": 20}, "the matrices of D overlap"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_invalid_record_is_refused(name):
    changes, message = REFUSED[name]
    record = make_case(0).record
    with pytest.raises(LuminalError, match=message):
        LtMatmul(**{**vars(record), **changes}).validate()


def test_matrices_may_lie_between_one_anothers_columns():
    record = make_case(0).record
    LtMatmul(**{**vars(record), "batch": 3, "stride_d": 7, "ldd": 21}).validate()
    assert make_case(0, batch=3, interleaved=True).record.stride_d == 7
