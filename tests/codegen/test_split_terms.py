"""A sum that is split in parts is the same sum: as regions, and in the plan that `lower` makes."""

from __future__ import annotations

import numpy as np
import pytest
from luminal_onnx.codegen import lower
from luminal_onnx.codegen.lowering import parts_of_sum
from luminal_onnx.codegen.matmul_mma import ARITHMETIC, TILES
from luminal_onnx.codegen.split_terms import first_operands, second_operands, split_terms
from luminal_onnx.codegen.tile_choice import Size, choose_parts
from luminal_onnx.ir.program import Program, RegionKernel, Tensor
from luminal_onnx.ir.schedule import MATMULS, classify_matmul, schedules
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import float16, float32, float64, int64
from region_values import HostRun, random_operands, region_values
from regions import I, RegionBuilder, conv2d, matmul
from tolerances import REDUCTION, assert_close


def scaled_product():
    """(exp(a) + iota of k) @ (b * row scale), scaled again and added to an operand that the first factor reads too."""
    b = RegionBuilder()
    space, rows = (10, 12, 24), (10, 12)
    a = b.op("exp", b.selected(float32, (10, 24), space, [I(0), I(2)]))
    a = b.op("add", a, b.cast(b.iota(I(2), space), float32))
    scale = b.broadcast(b.selected(float32, (12,), rows, [I(1)]), (24,))
    w = b.op("mul", b.selected(float32, (24, 12), space, [I(2), I(1)]), scale)
    y = b.reduce("sum", b.op("mul", a, w), 1)
    return b.region(b.op("mul", y, b.constant(0.125, float32, rows)), b.op("tanh", y))


REGIONS = {
    "bias and relu": matmul(18, 20, 48, bias_relu=True),
    "half": matmul(18, 24, 64, float16, bias_relu=True),
    "double": matmul(9, 8, 16, float64),
    "integers": matmul(9, 8, 16, int64),
    "convolution": conv2d(2, 8, (9, 8), 6, (3, 3), pad=1, groups=2, residual=True),
    "prologues": scaled_product(),
}


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("name", REGIONS)
def test_two_regions_give_the_value_of_one(name, parts):
    region = REGIONS[name]
    axes = classify_matmul(region)
    first, second = split_terms(region, axes, parts, None)
    assert classify_matmul(first) is not None
    operands = random_operands(region, {})
    before = [operands[slot] for slot in first_operands(region, axes)]
    after = [operands[slot] for slot in second_operands(region, axes)]
    for schedule in (schedule for schedule in schedules(first) if schedule in MATMULS):
        (sums,) = HostRun(first, schedule, check=True).run(before)
        assert sums.shape[0] == parts
        got = HostRun(second, "row_thread", check=True).run([sums, *after])
        for one, want in zip(got, region_values(region, operands, {}), strict=True):
            assert_close(one, want, REDUCTION)


def test_lower_splits_where_tiles_are_few_and_terms_many():
    assert parts_of_sum(conv2d(1, 512, (7, 7), 512, (3, 3), float16, pad=1), "matmul_mma", None) > 1
    assert parts_of_sum(matmul(4096, 4096, 4096, float16), "matmul_mma", None) == 1
    assert parts_of_sum(matmul(64, 64, 64, float16), "matmul_mma", None) == 1
    assert parts_of_sum(matmul(1, 64, 64, float16), "row_warp", None) == 1
    n = symbol("n")
    assert parts_of_sum(matmul(n, 64, n), "matmul_tiled", {"n": Range(1, 4096, 8192)}) == 1


def test_parts_divide_the_axis():
    for divisor in (1, 6, 7, 64):
        assert divisor % choose_parts(TILES, Size(1, 64, 64, 10_000), ARITHMETIC, divisor) == 0


def test_the_plan_has_both_kernels_and_their_scratch(monkeypatch):
    monkeypatch.setattr("luminal_onnx.codegen.lowering.parts_of_sum", lambda *_: 2)
    n = symbol("n")
    ranges = {"n": Range(1, 16, 64)}
    region = matmul(n, 8, 32, ranges=ranges, bias_relu=True)
    tensors = [Tensor(at, type, "input", f"x{at}") for at, type in enumerate(region.operands)]
    output = region.nodes[region.stores[0]]
    tensors.append(Tensor(3, type(tensors[0].type)(output.dtype, output.space), "computed", ""))
    kernel = RegionKernel(region, "matmul_tiled", (0, 1, 2), (3,), ("Gemm",))
    inputs = tuple((tensor.name, tensor.type, tensor.id) for tensor in tensors[:3])
    program = Program("gemm", tuple(tensors), (kernel,), inputs, (("y", tensors[3].type, 3),), ranges)
    lowered = lower(program, "sm_90")
    one, two = lowered.plan.steps()
    assert (one.reads, one.writes) == ((0, 1), (4,))
    assert (two.reads, two.writes) == ((4, 2), (3,))
    assert one.origin == two.origin == ("Gemm",)
    (scratch,) = [buffer for buffer in lowered.plan.buffers if buffer.id == 4]
    assert scratch.shape == (2, n, 8)

    from test_lower import run

    rng = np.random.default_rng(0)
    feeds = {f"x{k}": rng.standard_normal(shape).astype(np.float32) for k, shape in enumerate([(5, 32), (32, 8), (8,)])}
    got = run(lowered, feeds, {"n": 5})["y"]
    assert_close(got, region_values(region, list(feeds.values()), {"n": 5})[0], REDUCTION)
