"""Every row of the scalar table: its C expression against its NumPy meaning, on awkward values of every dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest
from luminal_onnx.codegen.kernel_text import template
from luminal_onnx.ir.region_reference import run_region
from luminal_onnx.ir.scalars import TABLE
from luminal_onnx.plan import dtypes
from luminal_onnx.plan.dtypes import DType, bool_
from luminal_onnx.runtime.cpu import compile_host
from region_values import HostRun
from regions import RegionBuilder
from tolerances import ELEMENTWISE, assert_close

SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, 30.0, -30.0]


def awkward(dtype: DType) -> np.ndarray:
    if dtype is bool_:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        values = [info.min, info.min + 1, 0, 1, 2, 3, 7, info.max - 1, info.max, *([-1, -2, -7] if info.min else [])]
        return np.array(values, dtype.numpy)
    return np.concatenate([SPECIAL, np.random.default_rng(3).uniform(-4, 4, 12)]).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_c_means_what_numpy_means(dtype):
    values = awkward(dtype)
    left, right = np.repeat(values, values.size), np.tile(values, values.size)
    b = RegionBuilder()
    x, y, z = b.input(dtype, left.shape), b.input(dtype, left.shape), b.input(bool_, left.shape)
    rows = [row for row in TABLE.values() if dtype.kind in row.kinds and row.name not in ("cast", "where")]
    stores = [b.op(row.name, *(x, y)[: row.arity]) for row in rows]
    stores.append(b.op("where", z, x, y))
    region = b.region(*stores)
    operands = [left, right, np.arange(left.size) % 2 == 0]
    got = HostRun(region, "elementwise").run(operands)
    for row, actual, expected in zip([*rows, TABLE["where"]], got, run_region(region, operands, {}), strict=True):
        try:
            assert_close(actual, expected, ELEMENTWISE, vacuous_ok=True)
        except AssertionError as error:
            raise AssertionError(f"{row.name} of {dtype}: {error}") from error


@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
def test_casts_clamp_wrap_and_round_alike(source):
    values = awkward(source)
    if source.is_float:
        wide = [1e30, -1e30, 254.9, 255.5, 256.0, -128.9, -129.0, 32767.5, 2147483648.0, 9.3e18, -9.3e18]
        with np.errstate(over="ignore"):
            values = np.concatenate([values, np.array(wide).astype(source.numpy)])
    b = RegionBuilder()
    x = b.input(source, values.shape)
    region = b.region(*(b.cast(x, target) for target in dtypes.ALL if target is not source))
    got = HostRun(region, "elementwise").run([values])
    targets = [target for target in dtypes.ALL if target is not source]
    for target, actual, expected in zip(targets, got, run_region(region, [values], {}), strict=True):
        np.testing.assert_array_equal(
            actual.astype(float) if target.is_float else actual,
            expected.astype(float) if target.is_float else expected, err_msg=f"{source} to {target}",
        )


def test_erf_for_16_bits_is_far_below_half_a_unit_in_the_last_place():
    """Of float16 inputs every one, through a kernel that keeps the float32 in front of the rounding."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    x = halves[np.isfinite(halves)].astype(np.float32)
    source = (
        template("prelude")
        + """
extern "C" __global__ void erf_of(float* out, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = erf_to_half(x[i]);
}
LUMINAL_EXPORT(erf_of)
"""
    )
    out = np.empty_like(x)
    compile_host(source, "erf_of").launch((-(-x.size // 256), 1, 1), (256, 1, 1), 0, [out, x, np.int32(x.size)])
    expected = np.array([math.erf(value) for value in x.astype(np.float64)])
    assert np.abs(out - expected).max() < 1e-6
    inside = expected != 0
    assert (np.abs(out - expected)[inside] / np.abs(expected[inside])).max() < 2.0**-11 / 20
