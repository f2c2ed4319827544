"""Attention in one kernel: which regions it takes, its values against NumPy, and what becomes of infinities and NaN."""

from __future__ import annotations

import numpy as np
import pytest
from luminal_onnx.codegen import compile_sources, lower_region
from luminal_onnx.ir.attention import classify_attention
from luminal_onnx.ir.legality import check_region
from luminal_onnx.ir.region_reference import run_region
from luminal_onnx.ir.schedule import ATTENTION, schedules
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import bfloat16, float16, float32
from luminal_onnx.plan.view import select
from region_values import HostRun, random_operands
from regions import I, RegionBuilder, attention, softmax
from tolerances import REDUCTION, assert_close


def check(region, ranges=None, envs=({},), operands=None, checked=True):
    """Run the region's kernel at each binding, forwards and backwards, against the region's own meaning."""
    check_region(region)
    assert schedules(region, ranges) == (ATTENTION,)
    kernel = HostRun(region, ATTENTION, ranges, check=checked)
    for env in envs:
        given = [*operands] if operands is not None else random_operands(region, env)
        given[-1] = given[-1] * given[-1].dtype.type(4)  # averages of many values are small
        (wanted,) = run_region(region, given, env)
        (got,), (again,) = kernel.run(given, env), kernel.run(given, env, reverse=True)
        assert_close(got, wanted, REDUCTION)
        np.testing.assert_array_equal(got.view(np.uint16), again.view(np.uint16))
    return kernel


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
@pytest.mark.parametrize("queries, keys", [(2, 2), (7, 13), (16, 16), (17, 17), (33, 31), (5, 67), (70, 130)])
def test_lengths_that_fit_no_tile(queries, keys, dtype):
    check(attention(2, 2, queries, keys, 8, dtype))


@pytest.mark.parametrize("width, length", [(8, 128), (16, 197), (64, 17), (72, 9), (128, 20)])
def test_head_widths(width, length):
    kernel = check(attention(1, 1 if length > 100 else 2, length, length, width))
    padded = -(-width // 16) * 16
    assert f", {padded}, {padded}, true, 8, true, true, 8, true, false, 8, true, 8>(" in kernel.text


def test_values_may_be_wider_or_narrower_than_keys():
    check(attention(1, 2, 19, 21, 16, v_width=40))
    check(attention(1, 2, 19, 21, 48, v_width=8))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_several_heads_share_keys_and_values(kv_heads):
    check(attention(2, 4, 18, 35, 8, kv_heads=kv_heads))


@pytest.mark.parametrize("mask", [(2, 1, 1, 35), (1, 1, 18, 35), (2, 3, 18, 35), (1, 3, 1, 1)], ids=str)
def test_masks_of_every_shape(mask):
    check(attention(2, 3, 18, 35, 8, mask=mask))


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True}, {"heads_last": False}, {"scaled_queries": True}, {"wide_softmax": True},
        {"wide_softmax": True, "causal": True, "mask": (1, 1, 1, 40), "dtype": bfloat16}, {"transposed": True},
        {"transposed": True, "dtype": bfloat16, "heads_last": False},
    ],
    ids=str,
)  # fmt: skip
def test_scales_masks_casts_and_layouts(options):
    check(attention(2, 2, 20, 40, 16, **options))


def masked(rows: dict[int, slice], value: float, keys: int = 80):
    """A region of 20 queries with an additive mask that holds the value in some columns of some rows, and operands."""
    region = attention(1, 2, 20, keys, 8, mask=(1, 1, 20, keys))
    operands = random_operands(region, {})
    mask = next(operand for operand in operands if operand.ndim == 4)
    for row, columns in rows.items():
        mask[0, 0, row, columns] = value
    return region, operands


def test_a_masked_part_of_a_row_has_no_weight_wherever_it_lies():
    region, operands = masked({0: slice(0, 70), 1: slice(10, 80), 5: slice(64, 80), 19: slice(1, 79)}, -np.inf)
    check(region, operands=operands)


def test_a_row_that_is_masked_whole_is_nan():
    region, operands = masked({3: slice(None), 11: slice(None)}, -np.inf)
    (got,) = check(region, operands=operands).run(operands)
    assert np.isnan(got[0, [3, 11]]).all() and np.isfinite(np.delete(got, [3, 11], axis=1)).all()


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("column", [0, 79])
def test_an_infinite_or_undefined_logit_makes_its_row_nan(value, column):
    region, operands = masked({4: slice(column, column + 1)}, value)
    (got,) = check(region, operands=operands).run(operands)
    assert np.isnan(got[0, 4]).all() and np.isfinite(np.delete(got, 4, axis=1)).all()


def test_a_row_masked_by_the_lowest_float_is_an_average():
    region = attention(1, 1, 17, 70, 8, bfloat16, mask=(1, 1, 17, 70), wide_softmax=True)
    operands = random_operands(region, {})
    mask = next(operand for operand in operands if operand.ndim == 4)
    mask[0, 0, 2] = mask.dtype.type(-3.3e38)
    (got,) = check(region, operands=operands).run(operands)
    assert_close(4 * got[0, 2, 0], 4 * operands[-1][0].astype(np.float32).mean(0), REDUCTION)


def test_logits_that_grow_along_the_row_scale_down_what_came_before():
    region, operands = masked({}, 0.0, keys=200)
    mask = next(operand for operand in operands if operand.ndim == 4)
    mask += np.linspace(-40, 40, 200).astype(np.float16)
    check(region, operands=operands)


def test_one_text_serves_every_binding_of_the_dims():
    batch, queries, keys = symbol("batch"), symbol("queries"), symbol("keys")
    ranges = {"batch": Range(1, 1, 8), "queries": Range(1, 32, 256), "keys": Range(1, 64, 300)}
    region = attention(batch, 2, queries, keys, 16, ranges=ranges, mask=(batch, 1, 1, keys), causal=True)
    sizes = [(1, 1, 1), (3, 40, 65), (1, 77, 130)]
    envs = [dict(zip(("batch", "queries", "keys"), size, strict=True)) for size in sizes]
    kernel = check(region, ranges, envs)
    assert set(map(str, kernel.record.scalars)) == {"batch", "queries", "keys"}


def test_no_keys_at_all_sum_to_zero():
    region = attention(1, 2, 18, symbol("keys"), 8, ranges={"keys": Range(0, 4, 8)})
    operands = random_operands(region, {"keys": 0})
    (got,) = HostRun(region, ATTENTION, {"keys": Range(0, 4, 8)}, check=True).run(operands, {"keys": 0})
    np.testing.assert_array_equal(got, np.zeros_like(got))


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize("tile_n", [32, 64])
def test_every_tile(warps, tile_n, monkeypatch):
    monkeypatch.setattr("luminal_onnx.codegen.attention._Attention._warps", lambda _: warps)
    monkeypatch.setattr("luminal_onnx.codegen.attention._Attention._tile_n", lambda _: tile_n)
    kernel = check(attention(1, 1, 16 * warps + 5, 2 * tile_n + 3, 24, mask=(1, 1, 1, 2 * tile_n + 3)))
    assert f"flash_attention<half, {warps}, {tile_n}, 32, 32," in kernel.text


def test_queries_keys_and_values_may_lie_in_one_tensor():
    b = RegionBuilder()
    length, heads, width = 19, 2, 8
    rows = (length, heads, width)
    full, factors = (*rows, length), (*rows, length, width)
    packed = (length, 3 * heads * width)
    slot = b.operand(float16, packed)

    def part(number, row, place, space):
        return b.load(float16, select(packed, space, [row, number * heads * width + place]), slot)

    q = part(0, I(0), I(1) * width + I(4), factors)
    key = part(1, I(3), I(1) * width + I(4), factors)
    x = b.reduce("sum", b.op("mul", q, key), 1)
    e = b.op("exp", b.op("sub", x, b.broadcast(b.reduce("max", x, 1), (length,))))
    p = b.op("div", e, b.broadcast(b.reduce("sum", e, 1), (length,)))
    v = part(2, I(3), I(1) * width + I(2), full)
    check(b.region(b.reduce("sum", b.op("mul", v, p), 1)))


@pytest.mark.parametrize(
    "region",
    [
        attention(1, 2, 17, 17, 8, float32),  # no tensor cores
        attention(1, 2, 17, 17, 12),  # no multiple of 8
        attention(1, 2, 17, 17, 136),  # too wide
        softmax((4,), (9,), float16),
    ],
    ids=["float32", "12", "136", "softmax"],
)
def test_what_is_left_to_other_kernels(region):
    assert classify_attention(region) is None
    assert ATTENTION not in schedules(region)


def test_a_record_counts_each_operation_once():
    record, _ = lower_region(attention(2, 4, 32, 48, 16), ATTENTION, None)
    pairs = 2 * 4 * 32 * 48
    assert 2 * pairs * (16 + 16) < record.flops < 2 * pairs * (16 + 16) + 10 * pairs
    assert record.bytes_moved == 2 * (2 * 2 * 32 * 64 + 2 * 2 * 48 * 64)


@pytest.mark.slow
def test_it_compiles_for_every_architecture(tmp_path, monkeypatch):
    monkeypatch.setenv("LUMINAL_ONNX_CACHE", str(tmp_path))
    regions = [
        attention(1, 12, 128, 128, 64, mask=(1, 1, 1, 128)), attention(8, 16, 512, 512, 128, bfloat16, causal=True),
        attention(1, 2, 9, 20, 24, transposed=True), attention(1, 4, 33, 65, 40, kv_heads=2, scaled_queries=True),
    ]  # fmt: skip
    sources = {}
    for region in regions:
        record, text = lower_region(region, ATTENTION, None)
        sources[record.source] = text
    binaries = compile_sources(sources, ("sm_80", "sm_90", "sm_100"))
    assert all(set(cubins) == set(sources) for cubins in binaries.cubins.values())
    assert all(".local" not in ptx for ptx in binaries.ptx.values())
