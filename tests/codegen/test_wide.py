"""Kernels whose dims have no upper bound: 64-bit indices under every schedule, on the CPU and through NVRTC."""

from __future__ import annotations

import pytest
from luminal_onnx.codegen import lower_scatter, nvrtc
from luminal_onnx.ir.graph import TensorType
from luminal_onnx.ir.program import ScatterKernel
from luminal_onnx.ir.schedule import schedules
from luminal_onnx.plan.dims import symbol
from luminal_onnx.plan.dtypes import float16, int32, int64
from region_values import HostRun, random_operands, region_values
from regions import attention_scores, bias_gelu, conv2d, embedding, layer_norm, matmul
from tolerances import REDUCTION, assert_close

N, K = symbol("n"), symbol("k")
REGIONS = {
    "product": matmul(N, 24, K, float16, batch=(2,), bias_relu=True),
    "convolution": conv2d(N, 8, (9, 8), 6, (3, 3), float16, pad=1),
    "layer norm": layer_norm((N,), 64, stats=True),
    "embedding": embedding((N,), 11, 8),
    "gelu": bias_gelu((N, 7)),
    "scores": attention_scores(N, 4, 2, K, 8, float16),
}


@pytest.mark.parametrize("name", REGIONS)
def test_every_schedule_has_a_wide_form(name):
    region, env = REGIONS[name], {"n": 5, "k": 9}
    operands = random_operands(region, env)
    wanted = region_values(region, operands, env)
    for schedule in schedules(region):
        kernel = HostRun(region, schedule, check=True)
        assert kernel.record.scalar_bits == 64
        for got, want in zip(kernel.run(operands, env), wanted, strict=True):
            assert_close(got, want, REDUCTION, vacuous_ok=True)
        assert nvrtc.compile_cubin(kernel.text, "sm_90").startswith(b"\x7fELF")


def test_wide_scatters_compile():
    types = [TensorType(float16, (N,)), TensorType(int32, (K,)), TensorType(float16, (K,))]
    lowered = lower_scatter(ScatterKernel("add", (0, 1, 2), (3,)), types)
    assert lowered.scratch is int64
    for step in lowered.steps:
        assert nvrtc.compile_cubin(step.text, "sm_90").startswith(b"\x7fELF")
