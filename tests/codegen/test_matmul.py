"""The tiled matrix product: which regions it reads as one, and its values at ragged sizes."""

from __future__ import annotations

import numpy as np
import pytest
from luminal_onnx.codegen import matmul_mma
from luminal_onnx.codegen.matmul import ARITHMETIC, TILES
from luminal_onnx.codegen.tile_choice import Size, choose_tile
from luminal_onnx.ir.schedule import MATMULS, classify_matmul, schedules
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import bfloat16, float16, float32, float64, int32, int64
from luminal_onnx.plan.view import compose, select, windows
from region_values import HostRun, random_operands, region_values
from regions import I, RegionBuilder, attention_scores, attention_values, conv2d, matmul, reduction, softmax
from tolerances import REDUCTION, assert_close


def check(region, ranges=None, envs=({},), checked=False, vacuous_ok=False, positive=False):
    """Run the region under every matrix schedule that it has; return the plain tiled kernel."""
    found = [schedule for schedule in schedules(region, ranges) if schedule in MATMULS]
    assert "matmul_tiled" in found
    kernels = [HostRun(region, schedule, ranges, check=checked) for schedule in found]
    for env in envs:
        operands = random_operands(region, env)
        if positive:  # so that long sums do not cancel
            operands = [np.abs(operand) for operand in operands]
        wanted = region_values(region, operands, env)
        for kernel in kernels:
            for got, want in zip(kernel.run(operands, env), wanted, strict=True):
                assert_close(got, want, REDUCTION, vacuous_ok=vacuous_ok)
    return kernels[0]


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, float64, int32, int64], ids=str)
@pytest.mark.parametrize("sizes", [(17, 33, 15), (64, 64, 64), (130, 70, 129), (2, 200, 7)], ids=str)
def test_products_of_awkward_sizes(dtype, sizes):
    check(matmul(*sizes, dtype))


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.m}x{tile.n}")
def test_every_tile_at_ragged_sizes_under_the_checker(tile, monkeypatch):
    monkeypatch.setattr("luminal_onnx.codegen.matmul.choose_tile", lambda *_: tile)
    region = matmul(tile.m + 3, tile.n - 5, 2 * tile.k + 1, bias_relu=True)
    kernel = check(region, checked=True)
    assert f"tiled_matmul<float, {tile.m}, {tile.n}," in kernel.text
    operands = random_operands(region, {})
    (one,), (other,) = kernel.run(operands), kernel.run(operands, reverse=True)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("tile", matmul_mma.TILES, ids=lambda tile: f"{tile.m}x{tile.n}")
@pytest.mark.parametrize("transposed", [False, True])
def test_every_tensor_core_tile_at_ragged_sizes_under_the_checker(tile, transposed, monkeypatch):
    monkeypatch.setattr("luminal_onnx.codegen.matmul_mma.choose_tile", lambda *_: tile)
    sizes = (tile.m + 3, tile.n - 5, 2 * tile.k + 1) if not transposed else (tile.m + 8, tile.n + 2, tile.k + 8)
    region = matmul(*sizes, float16, transpose_a=transposed, transpose_b=transposed)
    kernel = HostRun(region, "matmul_mma", check=True)
    assert f"mma_matmul<half, {tile.m}, {tile.n}," in kernel.text
    operands = random_operands(region, {})
    (one,), (other,) = kernel.run(operands), kernel.run(operands, reverse=True)
    np.testing.assert_array_equal(one, other)
    assert_close(one, region_values(region, operands, {})[0], REDUCTION)


def test_tensor_cores_take_exact_factors_only():
    assert "matmul_mma" in schedules(matmul(64, 64, 64, float16))
    assert "matmul_mma" not in schedules(matmul(64, 64, 64, float32))
    b = RegionBuilder()
    space = (20, 24, 40)
    a = b.cast(b.selected(bfloat16, (20, 40), space, [I(0), I(2)]), float32)
    w = b.cast(b.selected(bfloat16, (24, 40), space, [I(1), I(2)]), float32)
    widened = b.region(b.reduce("sum", b.op("mul", a, w), 1))
    assert "matmul_mma" in schedules(widened)
    check(widened, checked=True)
    b = RegionBuilder()
    a = b.selected(float16, (20, 40), space, [I(0), I(2)])
    w = b.selected(bfloat16, (24, 40), space, [I(1), I(2)])
    mixed = b.region(b.reduce("sum", b.op("mul", b.cast(a, float32), b.cast(w, float32)), 1))
    assert "matmul_mma" not in schedules(mixed)
    check(mixed)


def test_channels_last_convolutions_fetch_whole_vectors():
    """x is [n, y, x, channel] and w [feature, y, x, channel]: terms are numbered so that channels are neighbours."""
    b = RegionBuilder()
    window = windows((2, 9, 8, 16), (1, 2), (3, 3), (1, 1), (1, 1), (1, 1), (9, 8), 0.0)
    space = (2, 9, 8, 24, 16, 3, 3)  # n, y, x, feature; channel, kernel y, kernel x
    patches = compose(select(window.out_shape, space, [I(0), I(1), I(2), I(4), I(5), I(6)]), window)
    x = b.load(float16, patches)
    w = b.selected(float16, (24, 3, 3, 16), space, [I(3), I(5), I(6), I(4)])
    region = b.region(b.reduce("sum", b.op("mul", x, w), 3))
    check(region, checked=True)
    assert ", true, 8, true, true, 8, true, 8>(" in HostRun(region, "matmul_mma").text


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_every_layout_with_batches(transpose_a, transpose_b):
    check(matmul(20, 18, 33, batch=(2, 3), transpose_a=transpose_a, transpose_b=transpose_b))


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
def test_bias_and_relu_follow_the_sum(dtype):
    check(matmul(35, 50, 40, dtype, bias_relu=True), checked=True)


def test_a_product_over_nothing_is_zero_and_epilogue():
    check(matmul(5, 6, 0, bias_relu=True))


def test_an_empty_product_is_not_launched():
    kernel = check(matmul(0, 6, 8), vacuous_ok=True)
    assert 0 in kernel.record.grid


@pytest.mark.parametrize(
    "options",
    [
        {}, {"stride": 2, "pad": 1}, {"dilation": 2, "pad": 2}, {"groups": 2, "pad": 1, "residual": True},
    ],
    ids=str,
)
def test_convolutions(options):
    check(conv2d(2, 4, (9, 8), 6, (3, 3), **options), checked=True)


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_asymmetric_convolutions_of_narrow_floats(dtype):
    check(conv2d(1, 3, (14, 11), 9, (5, 2), dtype, stride=3, pad=2), checked=True)
    check(conv2d(2, 8, (10, 16), 24, (3, 3), dtype, pad=1, residual=True), checked=True)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_attention_scores_with_shared_heads(kv_heads):
    region = attention_scores(2, 4, kv_heads, 19, 8)
    axes = classify_matmul(region)
    assert (axes.batch, axes.m, axes.n) == ((0, 1) if kv_heads > 1 else (0,), (2,) if kv_heads > 1 else (1, 2), (3,))
    check(region)


@pytest.mark.parametrize("dtype", [float32, float16], ids=str)
def test_attention_values_are_stored_with_heads_last(dtype):
    check(attention_values(2, 3, 17, 16, dtype))


def test_prologues_on_both_sides():
    b = RegionBuilder()
    space = (18, 20, 22)
    a = b.op("exp", b.selected(float32, (18, 22), space, [I(0), I(2)]))
    scale = b.selected(float32, (20,), space, [I(1)])
    w = b.cast(b.selected(int32, (22, 20), space, [I(2), I(1)]), float32)
    region = b.region(b.reduce("sum", b.op("mul", a, b.op("mul", w, scale)), 1))
    check(region)


def test_sums_of_widened_products():
    b = RegionBuilder()
    space = (18, 20, 22)
    a = b.selected(float16, (18, 22), space, [I(0), I(2)])
    w = b.selected(float16, (22, 20), space, [I(2), I(1)])
    check(b.region(b.reduce("sum", b.cast(b.op("mul", a, w), float32), 1)))


def test_several_stores_of_one_product():
    b = RegionBuilder()
    space = (18, 20, 22)
    a = b.selected(float32, (18, 22), space, [I(0), I(2)])
    w = b.selected(float32, (22, 20), space, [I(2), I(1)])
    y = b.reduce("sum", b.op("mul", a, w), 1)
    check(b.region(y, b.op("tanh", y)))


def test_long_sums_are_added_up_in_runs():
    kernel = check(matmul(8, 8, 20_000), positive=True)
    assert ", 2, true>(" in kernel.text or ", 4, true>(" in kernel.text
    assert ", false>(" in HostRun(matmul(8, 8, 100), "matmul_tiled").text


def test_one_text_serves_every_binding_of_the_dims():
    m, k = symbol("m"), symbol("k")
    ranges = {"m": Range(1, 32, 256), "k": Range(1, 64, 300)}
    check(matmul(m, 24, k, ranges=ranges, batch=(2,)), ranges, [{"m": 1, "k": 1}, {"m": 40, "k": 65}, {"m": 77, "k": 300}])


def test_the_last_axis_is_on_the_n_side():
    axes = classify_matmul(conv2d(2, 4, (9, 8), 6, (3, 3), groups=2))
    assert (axes.batch, axes.m, axes.n, axes.k) == ((1,), (2,), (0, 3, 4), (5, 6, 7))


@pytest.mark.parametrize(
    "region", [softmax((4,), (9,)), reduction("sum", (4,), (9,)), reduction("max", (4,), (9,))], ids=["softmax", "sum", "max"]
)
def test_other_reductions_are_no_products(region):
    assert classify_matmul(region) is None


def test_a_sum_of_squares_is_no_product():
    b = RegionBuilder()
    x = b.input(float32, (5, 9))
    assert classify_matmul(b.region(b.reduce("sum", b.op("mul", x, x), 1))) is None


def test_a_matrix_times_a_vector_is_left_to_row_programs():
    region = matmul(1, 40, 30)
    assert classify_matmul(region).m == ()
    assert schedules(region) == ("row_thread", "row_warp")


def test_small_products_get_small_tiles():
    assert choose_tile(TILES, Size(1, 4096, 4096, 4096), ARITHMETIC).m == 128
    assert choose_tile(TILES, Size(1, 16, 768, 768), ARITHMETIC).m <= 32
