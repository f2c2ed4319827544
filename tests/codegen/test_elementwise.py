"""The elementwise schedule: dtypes, views, vectors and their tails, gathers, exact constants, symbolic dims."""

from __future__ import annotations

import numpy as np
import pytest
from luminal_onnx.ir.schedule import schedules
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import ALL, bfloat16, bool_, float16, float32, float64, int8, int32, int64, uint8
from luminal_onnx.plan.view import compose, pad, reshape, select, slice_, transpose
from region_values import HostRun, random_operands, region_values
from regions import I, RegionBuilder, bias_gelu, embedding
from tolerances import ELEMENTWISE, assert_close


def check(region, ranges=None, envs=({},), checked=False, vacuous_ok=False, operands=None):
    assert schedules(region, ranges) == ("elementwise",)
    kernel = HostRun(region, "elementwise", ranges, check=checked)
    for env in envs:
        given = random_operands(region, env) if operands is None else operands
        for got, want in zip(kernel.run(given, env), region_values(region, given, env), strict=True):
            assert_close(got, want, ELEMENTWISE, vacuous_ok=vacuous_ok)
    return kernel


def body(kernel) -> str:
    return kernel.text[kernel.text.index("const UIndex chunk") :]


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, float64], ids=str)
@pytest.mark.parametrize("shape", [(1,), (7, 13), (3, 64), (2, 5, 48)], ids=str)
def test_bias_and_gelu(dtype, shape):
    check(bias_gelu(shape, dtype), checked=True, vacuous_ok=shape == (1,))


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("count", [1, 16, 37])
def test_every_dtype_is_copied_exactly(dtype, count):
    b = RegionBuilder()
    region = b.region(b.input(dtype, (count,)))
    (operand,) = random_operands(region, {})
    (got,) = HostRun(region, "elementwise").run([operand])
    np.testing.assert_array_equal(got, operand)


@pytest.mark.parametrize("shape", [(0,), (4, 0, 3), ()], ids=str)
def test_empty_and_rank_0_spaces(shape):
    b = RegionBuilder()
    x = b.input(float32, shape)
    check(b.region(b.op("add", x, x)), vacuous_ok=True)


def test_contiguous_operands_become_vectors():
    kernel = check(bias_gelu((256, 1024), float16))
    assert "load_pack<8>" in body(kernel)
    assert "store_pack<8>" in body(kernel)


def test_a_tail_is_done_element_by_element():
    b = RegionBuilder()
    x = b.input(float32, (1021, 257))
    kernel = check(b.region(b.op("neg", x)), checked=True)
    assert "load_pack<4>" in body(kernel)
    assert "else" in body(kernel)


def test_axes_that_all_operands_share_are_one():
    kernel = check(bias_gelu((6, 5, 4, 32)))
    assert "above" in body(kernel)
    assert body(kernel).count("const UIndex above") == 1


def test_several_stores_of_one_space():
    b = RegionBuilder()
    x, y = b.input(float32, (33, 8)), b.input(float32, (33, 8))
    total = b.op("add", x, y)
    check(b.region(total, b.op("mul", total, x), b.op("less", x, y)), checked=True)


def test_padding_reads_its_fill_and_nothing_outside():
    b = RegionBuilder()
    x = b.load(float32, pad((5, 6), (1, 2), (0, 3), -2.5))
    check(b.region(x), checked=True)


@pytest.mark.parametrize("dtype", [float16, int32], ids=str)
def test_padding_by_whole_vectors_keeps_them(dtype):
    b = RegionBuilder()
    x = b.load(dtype, pad((600, 512), (3, 0), (4, 0), 7))
    kernel = check(b.region(x), checked=True)
    assert "filled_pack" in body(kernel)


def test_concat_as_a_choice_of_padded_views():
    b = RegionBuilder()
    space = (4, 12)
    left = b.load(float32, pad((4, 5), (0, 0), (0, 7), 0.0))
    right = b.load(float32, pad((4, 7), (0, 5), (0, 0), 0.0))
    first = b.op("less", b.iota(I(1), space), b.constant(5, int64, space))
    check(b.region(b.op("where", first, left, right)), checked=True)


def test_transposed_reversed_and_repeated_views():
    b = RegionBuilder()
    x = b.load(float32, transpose((7, 4, 5), (2, 0, 1)))
    y = b.load(float32, slice_((9, 14, 8), (8, 13, 7), (-2, -2, -2), (5, 7, 4)))
    z = b.selected(float32, (7,), (5, 7, 4), [I(1)])
    check(b.region(b.op("add", b.op("mul", x, y), z)), checked=True)


def test_reshapes_that_need_quotients():
    b = RegionBuilder()
    x = b.load(float32, compose(reshape((9, 4), (6, 6)), transpose((4, 9), (1, 0))))
    y = b.load(float32, reshape((4, 9), (6, 6)))
    check(b.region(b.op("sub", x, y)), checked=True)


def test_heads_that_are_split_still_use_vectors():
    """[batch, length, heads * width] read from [batch, heads, length, width]."""
    b = RegionBuilder()
    view = select((2, 12, 128, 64), (2, 128, 768), [I(0), I(2) // 64, I(1), I(2) % 64])
    kernel = check(b.region(b.load(float16, view)))
    assert "load_pack" in body(kernel)


@pytest.mark.parametrize("width", [8, 7])
def test_embedding_clamps_its_index(width):
    region = embedding((3, 5), 11, width)
    operands = random_operands(region, {})
    operands[0][0, 0], operands[0][0, 1], operands[0][2, 4] = -3, 11, 10
    check(region, operands=operands, checked=True)


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, float64], ids=str)
def test_float_constants_keep_their_bits(dtype):
    values = [1e-12, -0.0, 0.1, 3.0, np.pi, float(np.finfo(np.float32).tiny) / 8, np.inf, -np.inf, np.nan, 65504.0]
    for value in values:
        b = RegionBuilder()
        x = b.constant(value, dtype, (3,))
        (got,) = HostRun(b.region(b.op("where", b.input(bool_, (3,)), x, x)), "elementwise").run([np.ones(3, bool)])
        want = np.full(3, value, dtype.numpy)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
        np.testing.assert_array_equal(got[~np.isnan(got)], want[~np.isnan(want)])


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL if dtype.is_integer], ids=str)
def test_extreme_integer_constants(dtype):
    info = np.iinfo(dtype.numpy)
    b = RegionBuilder()
    x = b.input(bool_, (2,))
    region = b.region(b.op("where", x, b.constant(info.min, dtype, (2,)), b.constant(info.max, dtype, (2,))))
    (got,) = HostRun(region, "elementwise").run([np.array([True, False])])
    np.testing.assert_array_equal(got, np.array([info.min, info.max], dtype.numpy))


def test_small_integers_wrap():
    b = RegionBuilder()
    x = b.input(int8, (4,))
    (got,) = HostRun(b.region(b.op("add", x, x), b.op("neg", x)), "elementwise").run([np.array([100, -128, 1, 64], np.int8)])[:1]
    np.testing.assert_array_equal(got, np.array([-56, 0, 2, -128], np.int8))


@pytest.mark.parametrize("source", [float32, float16, int64, uint8, bool_], ids=str)
@pytest.mark.parametrize("target", [float32, float16, bfloat16, int32, uint8, bool_], ids=str)
def test_casts(source, target):
    b = RegionBuilder()
    x = b.input(source, (41,))
    check(b.region(b.cast(x, target)), vacuous_ok=True)


def test_a_cast_to_a_narrow_float_rounds_though_the_value_goes_on():
    b = RegionBuilder()
    x = b.input(float32, (3,))
    operand = np.array([1.0009765, 70000.0, 1e-9], np.float32)
    (got,) = HostRun(b.region(b.cast(b.cast(x, float16), float32)), "elementwise").run([operand])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, operand.astype(np.float16).astype(np.float32))


def test_iotas_beyond_32_bits():
    b = RegionBuilder()
    check(b.region(b.iota(I(0) * 3_000_000_000 + I(1), (4, 5))))


def test_one_text_serves_every_binding_of_the_dims():
    n, m = symbol("n"), symbol("sequence.length")
    ranges = {"n": Range(0, 4, 64), "sequence.length": Range(1, 100, 512)}
    b = RegionBuilder(ranges)
    x = b.input(float16, (n, m, 16))
    y = b.expanded(float16, (m, 1), (n, m, 16))
    z = b.load(float16, slice_((n, m + 3, 16), (0, 3, 0), (1, 1, 1), (n, m, 16), ranges))
    region = b.region(b.op("add", b.op("mul", x, y), z))
    envs = [{"n": n, "sequence.length": m} for n, m in ((1, 1), (3, 17), (0, 5), (64, 9))]
    kernel = check(region, ranges, envs, checked=True, vacuous_ok=True)
    assert kernel.record.scalar_bits == 32
    assert len(kernel.record.scalars) == 2


def test_dims_with_clashing_names_stay_apart():
    a, b_ = symbol("a.b"), symbol("a b")
    ranges = {"a.b": Range(1, 2, 9), "a b": Range(1, 2, 9)}
    b = RegionBuilder(ranges)
    x = b.load(float32, transpose((a, b_), (1, 0), ranges))
    check(b.region(x), ranges, [{"a.b": 2, "a b": 5}, {"a.b": 5, "a b": 2}])


def test_large_tensors_use_64_bit_indices():
    n = symbol("n")
    ranges = {"n": Range(1, 1, 2**31)}
    kernel = check(bias_gelu((n, 4), ranges=ranges), ranges, [{"n": 9}])
    assert kernel.record.scalar_bits == 64
    assert "using Index = long long" in kernel.text


def test_the_same_region_gives_the_same_text():
    assert HostRun(bias_gelu((4, 6)), "elementwise").text == HostRun(bias_gelu((4, 6)), "elementwise").text


def test_records_say_what_moves():
    record = HostRun(bias_gelu((128, 64), float16), "elementwise").record
    assert record.bytes_moved == 2 * (128 * 64 * 2 + 64)
    assert record.flops == 6 * 128 * 64
