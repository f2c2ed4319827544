"""The meaning of regions: against NumPy, and against the same program as a graph."""

from __future__ import annotations

import numpy as np
import pytest
from luminal_onnx.ir.graph import TensorType
from luminal_onnx.ir.region import Broadcast, Constant, Elementwise, Gather, Iota, Load, Reduce, Region
from luminal_onnx.ir.region_reference import run_region
from luminal_onnx.plan import view as views
from luminal_onnx.plan.dims import index_symbol, symbol
from luminal_onnx.plan.dtypes import bfloat16, float16, float32, int64
from luminal_onnx.plan.errors import LuminalError
from tolerances import REDUCTION, assert_close

N, M = symbol("n"), symbol("m")


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32], ids=str)
@pytest.mark.parametrize("dims", [{"n": 3, "m": 7}, {"n": 1, "m": 1}, {"n": 0, "m": 4}])
def test_softmax_with_a_second_store(dtype, dims):
    full = (N, M)
    region = Region(
        nodes=(
            Load(0, views.identity(full), dtype, full),
            Reduce("max", (0,), (M,), dtype, (N,)),
            Broadcast((1,), (M,), dtype, full),
            Elementwise("sub", (0, 2), dtype, full),
            Elementwise("exp", (3,), dtype, full),
            Reduce("sum", (4,), (M,), dtype, (N,)),
            Broadcast((5,), (M,), dtype, full),
            Elementwise("div", (4, 6), dtype, full),
            Constant(np.array(8).astype(dtype.numpy).tobytes(), dtype, full),
            Elementwise("mul", (7, 8), dtype, full),
        ),
        stores=(9, 1),
        operands=(TensorType(dtype, full),),
    )
    x = np.random.default_rng(0).uniform(-3, 3, (dims["n"], dims["m"])).astype(dtype.numpy)
    y, peak = run_region(region, [x], dims)
    wide = x.astype(float)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    assert y.dtype == peak.dtype == dtype.numpy
    assert_close(y, 8 * powers / powers.sum(1, keepdims=True), REDUCTION)
    assert_close(peak, wide.max(1), REDUCTION)


def test_sixteen_bit_values_stay_wide_in_registers():
    full = (4,)
    region = Region(
        nodes=(
            Load(0, views.identity(full), float16, full),
            Elementwise("mul", (0, 0), float16, full),  # overflows float16
            Constant(np.float16(2.0**-8).tobytes(), float16, full),
            Elementwise("mul", (1, 2), float16, full),
        ),
        stores=(3,),
        operands=(TensorType(float16, full),),
    )
    x = np.float16([1, 16, 512, -1024])
    (y,) = run_region(region, [x], {})
    np.testing.assert_array_equal(y, (x.astype(float) ** 2 / 256).astype(np.float16))


def test_an_explicit_cast_rounds():
    full = (2,)
    region = Region(
        nodes=(
            Load(0, views.identity(full), float32, full),
            Elementwise("cast", (0,), float16, full),
            Elementwise("cast", (1,), float32, full),
        ),
        stores=(2,),
        operands=(TensorType(float32, full),),
    )
    x = np.float32([1.0009, 70000])
    (y,) = run_region(region, [x], {})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, x.astype(np.float16).astype(np.float32))


def test_matmul_through_views_and_gathered_rows():
    space = (N, 5, 4)
    region = Region(
        nodes=(
            Load(0, views.select((N, 4), space, [index_symbol(0), index_symbol(2)]), float32, space),
            Iota(index_symbol(2) * 5 + index_symbol(1), int64, space),
            Gather(1, (1,), float32, space),
            Elementwise("mul", (0, 2), float32, space),
            Reduce("sum", (3,), (4,), float32, (N, 5)),
        ),
        stores=(4,),
        operands=(TensorType(float32, (N, 4)), TensorType(float32, (4, 5))),
    )
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((6, 4), np.float32), rng.standard_normal((4, 5), np.float32)
    (c,) = run_region(region, [a, b], {"n": 6})
    assert_close(c, a.astype(float) @ b, REDUCTION)


def test_wrong_operands_are_named():
    region = Region((Load(0, views.identity((N,)), float32, (N,)),), (0,), (TensorType(float32, (N,)),))
    with pytest.raises(LuminalError, match=r"operand 0 is float32\[n\]"):
        run_region(region, [np.zeros(3, np.float32)], {"n": 4})
    with pytest.raises(LuminalError, match="reads 1 operands, 0 were given"):
        run_region(region, [], {"n": 4})
