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


def test_an_invalid_record_is_refused():
    record = make_case(0).record
    with pytest.raises(LuminalError, match="a bias needs a column-ordered D"):
        LtMatmul(**{**vars(record), "order_d": "row", "ldd": 11, "epilogue": "bias"}).validate()
