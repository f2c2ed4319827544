"""Row programs under every schedule, at awkward sizes, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from luminal_onnx.ir.schedule import ROW_SCHEDULES, schedules
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import bfloat16, bool_, float16, float32, float64, int8, int32, int64
from luminal_onnx.plan.view import slice_, transpose
from region_values import HostRun, random_operands, region_values
from regions import RegionBuilder, layer_norm, pool2d, reduction, softmax
from tolerances import EXACT, REDUCTION, assert_close


def check(region, schedule, ranges=None, envs=({},), seed=0, checked=False, vacuous_ok=False, operands=None, scale=1):
    """Run the region's kernel at each binding of the dims and compare every store. `scale` makes softmaxes peaked."""
    kernel = HostRun(region, schedule, ranges, check=checked)
    for env in envs:
        given = operands
        if operands is None:
            given = [x * scale if scale != 1 else x for x in random_operands(region, env, seed)]
        for got, want in zip(kernel.run(given, env), region_values(region, given, env), strict=True):
            assert_close(got, want, REDUCTION, vacuous_ok=vacuous_ok)
    return kernel


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, float64], ids=str)
@pytest.mark.parametrize("columns", [1, 31, 239, 256, 1000])
def test_softmax_of_awkward_rows(schedule, dtype, columns):
    check(softmax((5,), (columns,), dtype), schedule, scale=dtype.numpy.type(8))


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, float64], ids=str)
def test_layer_norm_stores_rows_and_elements(schedule, dtype):
    check(layer_norm((2, 3), 96, dtype, stats=True), schedule, vacuous_ok=True)


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize("fn", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [float32, int32, int64, int8], ids=str)
def test_every_reduction(schedule, fn, dtype):
    check(reduction(fn, (3, 2), (4, 9), dtype), schedule, vacuous_ok=True)


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize("fn", ["max", "min"])
def test_reductions_of_bools_are_any_and_all(schedule, fn):
    check(reduction(fn, (7,), (5,), bool_), schedule)


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize("fn", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [float32, int32], ids=str)
def test_a_reduction_of_nothing_is_its_identity(schedule, fn, dtype):
    check(reduction(fn, (3,), (0,), dtype), schedule, vacuous_ok=True)


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
def test_no_rows_are_no_launch(schedule):
    kernel = check(softmax((0, 4), (5,)), schedule, vacuous_ok=True)
    assert 0 in kernel.record.grid


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
def test_one_text_serves_every_binding_of_the_dims(schedule):
    batch, length = symbol("batch size"), symbol("length")
    ranges = {"batch size": Range(1, 4, 64), "length": Range(1, 128, 512)}
    envs = [{"batch size": b, "length": n} for b, n in ((1, 1), (3, 7), (2, 33), (1, 512))]
    check(softmax((batch, 2), (length,), ranges=ranges), schedule, ranges, envs)


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
def test_unbounded_dims_use_64_bit_indices(schedule):
    n = symbol("n")
    kernel = check(softmax((n,), (n,)), schedule, None, [{"n": 1}, {"n": 70}])
    assert kernel.record.scalar_bits == 64


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
def test_long_rows_are_read_again_each_pass(schedule):
    kernel = check(softmax((2,), (50_001,)), schedule, vacuous_ok=True)
    assert "kept" not in kernel.text[kernel.text.index("using Group") :]


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_long_sums_stay_accurate(schedule, dtype):
    region = reduction("sum", (2,), (100_000,), dtype)
    operand = (random_operands(region, {}, 3)[0].astype(np.float32) + 1).astype(dtype.numpy)
    check(region, schedule, operands=[operand])


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
def test_infinities_in_a_long_sum_are_no_nan(schedule):
    region = reduction("sum", (2,), (3000,))
    operand = np.ones((2, 3000), np.float32)
    operand[0, 17], operand[1, 5] = np.inf, -np.inf
    (got,) = HostRun(region, schedule).run([operand])
    np.testing.assert_array_equal(got, [np.inf, -np.inf])


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize("fn", ["max", "min"])
def test_nan_spreads_through_extremes(schedule, fn):
    operand = np.random.default_rng(0).standard_normal((4, 40)).astype(np.float32)
    operand[1, 39] = operand[3, 0] = np.nan
    check(reduction(fn, (4,), (40,)), schedule, operands=[operand])


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize("columns", [8, 31, 239, 240, 256])
def test_softmax_with_minus_infinity_in_the_rows(schedule, columns):
    region = softmax((3,), (columns,))
    (operand,) = random_operands(region, {})
    operand[0, 0] = -np.inf
    operand[1, ::4] = -np.inf
    operand[2] = -np.inf  # -inf - -inf: the whole row is NaN, as the formula says
    with np.errstate(invalid="ignore"):
        check(region, schedule, operands=[operand])


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
def test_rows_read_through_a_transposed_and_reversed_view(schedule):
    b = RegionBuilder()
    x = b.load(float32, transpose((17, 5), (1, 0)))
    y = b.load(float32, slice_((5, 17), (4, 16), (-1, -1), (5, 17)))
    check(b.region(b.reduce("sum", b.op("mul", x, y), 1)), schedule)


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize("fn", ["max", "sum"])
def test_pooling_with_padding(schedule, fn):
    check(pool2d(fn, 2, 3, (9, 8), (3, 3), 2, 1), schedule, checked=True)


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
def test_several_reductions_share_a_pass(schedule):
    b = RegionBuilder()
    x = b.input(float32, (6, 50))
    low, high = b.reduce("min", x, 1), b.reduce("max", x, 1)
    total = b.reduce("sum", b.op("sub", x, b.broadcast(low, (50,))), 1)
    kernel = check(b.region(high, total, b.op("sub", high, low)), schedule)
    assert kernel.text.count("running") > 3


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize(
    "region",
    [softmax((5,), (100,), float16), softmax((2, 3), (768,)), layer_norm((3,), 40, stats=True), softmax((3,), (2, 5001))],
    ids=["ragged f16", "vectors", "statistics", "long"],
)
def test_checker_finds_nothing_and_order_does_not_matter(schedule, region):
    operands = random_operands(region, {})
    kernel = HostRun(region, schedule, check=True)
    forward, backward = kernel.run(operands), kernel.run(operands, reverse=True)
    for one, other in zip(forward, backward, strict=True):
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
def test_a_region_becomes_the_same_text_twice(schedule):
    texts = {HostRun(softmax((4,), (77,), float16), schedule).text for _ in range(2)}
    assert len(texts) == 1


def test_schedules_leave_out_what_is_hopeless():
    assert schedules(reduction("sum", (9,), (4,))) == ("row_thread",)
    assert schedules(reduction("sum", (9,), (40,))) == ("row_thread", "row_warp")
    assert schedules(reduction("sum", (9,), (4000,))) == ROW_SCHEDULES
    assert schedules(reduction("sum", (9,), (symbol("n"),))) == ROW_SCHEDULES


def test_integer_sums_wrap_exactly():
    region = reduction("sum", (2,), (300,), int32)
    operand = np.full((2, 300), 2**30 + 7, np.int32)
    for schedule in ROW_SCHEDULES:
        (got,) = HostRun(region, schedule).run([operand])
        np.testing.assert_array_equal(got, operand.sum(1, dtype=np.int32))
    assert EXACT.atol == 0
