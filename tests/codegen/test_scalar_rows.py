"""Every row of the scalar table: its C expression against its NumPy meaning, on awkward values of every dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest
from luminal_onnx.ir.region_reference import run_region
from luminal_onnx.ir.scalars import TABLE
from luminal_onnx.plan import dtypes
from luminal_onnx.plan.dtypes import DType, bool_
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
