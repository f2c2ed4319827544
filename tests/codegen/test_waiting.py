"""Every kernel begins by waiting for the kernels in front of it, in the text and in what NVRTC makes of it."""

from __future__ import annotations

import re
from importlib import resources

import numpy as np
import pytest
from luminal_onnx.codegen import lower, lower_region, lower_scatter, nvrtc
from luminal_onnx.codegen.kernel_text import BEGINNING
from luminal_onnx.codegen.split_terms import split_axis, split_terms
from luminal_onnx.ir.graph import TensorType
from luminal_onnx.ir.program import Program, RegionKernel, ScatterKernel, Tensor
from luminal_onnx.ir.schedule import ATTENTION, classify_matmul, schedules
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import bfloat16, float16, float32, int64
from luminal_onnx.plan.records import KernelStep
from region_values import random_array
from regions import (
    attention,
    attention_scores,
    bias_gelu,
    conv2d,
    embedding,
    layer_norm,
    matmul,
    pool2d,
    reduction,
    softmax,
)

N = symbol("n")
RANGES = {"n": Range(1, 64, 1024)}
REGIONS = {
    "bias_gelu": bias_gelu((128, 96), float16),
    "bias_gelu_n": bias_gelu((N, 96), ranges=RANGES),
    "softmax": softmax((40,), (1000,)),
    "softmax_n": softmax((3, N), (N,), bfloat16, RANGES),
    "layer_norm": layer_norm((40,), 768, float16),
    "layer_norm_n": layer_norm((N,), 768, float16, RANGES),
    "sum": reduction("sum", (40,), (3000,)),
    "matmul": matmul(130, 70, 90, float16, bias_relu=True),
    "matmul_n": matmul(N, 70, 90, ranges=RANGES),
    "conv2d": conv2d(2, 4, (9, 8), 6, (3, 3), pad=1, residual=True),
    "pool2d": pool2d("max", 1, 3, (9, 9), (3, 3), 2, 1),
    "embedding": embedding((3,), 10, 8),
    "scores": attention_scores(2, 4, 2, N, 8, ranges=RANGES),
}
SCATTER_TYPES = [TensorType(float32, (5,)), TensorType(int64, (3,)), TensorType(float32, (3,))]
TEMPLATES = sorted(
    entry.name for entry in (resources.files("luminal_onnx.codegen") / "cuda").iterdir() if entry.name.endswith(".cuh")
)


def region_kernels():
    """Every region under every schedule, and both halves of a split sum."""
    for name, region in REGIONS.items():
        for schedule in schedules(region, RANGES):
            yield f"{name}-{schedule}", lower_region(region, schedule, RANGES)
    product = matmul(8, 8, 4096)
    assert split_axis(product) is not None
    for half, schedule in zip(split_terms(product, classify_matmul(product), 8, None), ("matmul_tiled", "row_thread")):
        yield f"split-{schedule}", lower_region(half, schedule, None)


def kernels():
    yield from region_kernels()
    yield "attention-attention", lower_region(attention(2, 4, 32, N, 16, ranges=RANGES), ATTENTION, RANGES)
    for step in lower_scatter(ScatterKernel("add", (0, 1, 2), (3,)), SCATTER_TYPES).steps:
        yield step.record.name, (step.record, step.text)


KERNELS = dict(kernels())
# One of each template goes through NVRTC, and some that could be reordered: unrolled loops, several passes, guards.
COMPILED = [
    "bias_gelu-elementwise", "layer_norm-row_thread", "layer_norm-row_warp", "layer_norm-row_block", "softmax-row_slices",
    "matmul-matmul_tiled", "matmul-matmul_mma", "attention-attention", "conv2d-matmul_tiled", "scatter_apply_add_float32_int64",
]  # fmt: skip
GLOBAL_ACCESS = re.compile(
    r"^\s*(?:@!?%\w+\s+)?(?:(?:ld|st|atom|red)\.(?!param|shared|local|const)|cp\.async\.c)", re.MULTILINE
)


def entry_of(text: str) -> tuple[str, str]:
    """The signature of a text's one kernel, and its body."""
    (kernel,) = re.split(r'^extern "C" __global__', text, flags=re.MULTILINE)[1:]
    return tuple(kernel.split(") {\n", 1))


def test_the_kernels_are_of_every_template():
    used = {name.rpartition("-")[2] for name in KERNELS}
    assert {
        "elementwise",
        "row_thread",
        "row_warp",
        "row_block",
        "row_slices",
        "matmul_tiled",
        "matmul_mma",
        "attention",
    } <= used
    assert len(KERNELS) > 30 and set(COMPILED) <= set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_waits_before_anything_else(name):
    record, text = KERNELS[name]
    signature, body = entry_of(text)
    assert record.waits
    assert body.startswith(BEGINNING + "\n")
    for helper in ("wait_for_inputs()", "let_next_start()"):
        assert body.count(helper) == 1
    for pointer in re.findall(r"[\w ]+\*[^,)]*", signature):
        assert "LUMINAL_RESTRICT" in pointer and "__restrict__" not in pointer


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_hold_no_kernel_and_leave_waiting_to_the_beginning(name):
    text = (resources.files("luminal_onnx.codegen") / "cuda" / name).read_text()
    code = re.sub(r"//.*", "", text)
    assert "__global__" not in code
    calls = len(re.findall(r"wait_for_inputs|let_next_start|griddepcontrol", code))
    assert calls == (4 if name == "prelude.cuh" else 0)  # the two helpers themselves


@pytest.mark.parametrize("name", COMPILED)
def test_no_compiled_kernel_touches_memory_before_it_waits(name):
    ptx = nvrtc.compile_ptx(KERNELS[name][1], "compute_90")
    before, wait, after = ptx.partition("griddepcontrol.wait;")
    assert wait and "griddepcontrol.wait" not in after
    assert after.count("griddepcontrol.launch_dependents;") == 1
    body = before[before.rindex(".entry") :]
    assert not GLOBAL_ACCESS.search(body), body
    assert not re.search(r"\bbra\b|\bret\b|\bexit\b", body), "something may go around the wait"
    assert GLOBAL_ACCESS.search(after)
    assert not re.search(r"ld\.global[.\w]*\.nc", after), "a cache that is not coherent may hold what was there before"


def test_only_machine_code_from_sm_90_on_can_wait():
    _, text = KERNELS["softmax-row_warp"]
    for arch in ("compute_80", "compute_86", "compute_89"):
        ptx = nvrtc.compile_ptx(text, arch)
        assert "griddepcontrol" not in ptx and ".nc" in ptx
    for arch in ("compute_90", "compute_100"):
        assert "griddepcontrol.wait" in nvrtc.compile_ptx(text, arch)
    for arch in ("sm_80", "sm_90", "sm_100"):
        assert nvrtc.compile_cubin(text, arch).startswith(b"\x7fELF")


def test_weights_alone_are_read_without_coherence():
    region = bias_gelu((128, 96))
    _, plain = lower_region(region, "elementwise", None)
    record, text = lower_region(region, "elementwise", None, weights=(1,))
    assert text != plain and record.waits
    signature, _ = entry_of(text)
    assert re.findall(r"(\S+) in\d", signature) == ["LUMINAL_RESTRICT", "__restrict__"]
    ptx = nvrtc.compile_ptx(text, "compute_90")
    loads = re.findall(r"ld\.global[.\w]*", ptx)
    assert any(".nc" in load for load in loads) and any(".nc" not in load for load in loads)


def test_lowering_knows_the_weights():
    bias = random_array(np.random.default_rng(0), float32, (20,))
    shape = TensorType(float32, (6, 20))
    tensors = (
        Tensor(0, shape, "input", "x"),
        Tensor(1, TensorType(float32, (20,)), "weight", "bias", bias),
        Tensor(2, TensorType(float32, (20,)), "input", "other"),
        *(Tensor(at, shape, "computed", "") for at in (3, 4, 5)),
    )
    gelu = bias_gelu((6, 20))
    steps = tuple(
        RegionKernel(gelu, "elementwise", reads, (at,), ()) for reads, at in (((0, 1), 3), ((3, 1), 4), ((4, 2), 5))
    )
    inputs = (("x", shape, 0), ("other", tensors[2].type, 2))
    lowered = lower(Program("twice", tensors, steps, inputs, (("y", shape, 5),), {}), "sm_90")
    sources = [step.kernel.source for step in lowered.plan.steps() if isinstance(step, KernelStep)]
    assert sources[0] == sources[1] != sources[2]
    assert "__restrict__ in1" in entry_of(lowered.sources[sources[0]])[0]
    assert "__restrict__" not in entry_of(lowered.sources[sources[2]])[0]
