"""From programs to plans: buffers, ports, weights, shared texts, and a whole small program on the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from luminal_onnx.codegen import lower
from luminal_onnx.ir.graph import TensorType
from luminal_onnx.ir.program import LtKernel, Program, RegionKernel, ScatterKernel, Tensor
from luminal_onnx.plan.dims import Range, evaluate, symbol
from luminal_onnx.plan.dtypes import float32, int64
from luminal_onnx.plan.errors import LuminalError
from luminal_onnx.plan.lt import LtMatmul
from luminal_onnx.plan.records import KernelStep, LtStep, Plan
from luminal_onnx.runtime.cpu import compile_host
from region_values import random_array
from regions import bias_gelu, matmul, softmax
from tolerances import REDUCTION, assert_close

N = symbol("n")
RANGES = {"n": Range(1, 16, 128)}


def tensor(id, shape, kind, name="", dtype=float32, data=None):
    return Tensor(id, TensorType(dtype, shape), kind, name, data)


def mlp():
    """gelu(softmax(x @ w) + bias), twice the same activation."""
    rng = np.random.default_rng(0)
    w, bias = random_array(rng, float32, (24, 20)), random_array(rng, float32, (20,))
    tensors = (
        tensor(5, (N, 24), "input", "x"),
        tensor(6, (24, 20), "weight", "layer.weight", data=w),
        tensor(7, (20,), "weight", "layer.bias", data=bias),
        tensor(8, (3,), "weight", "unused", data=np.zeros(3, np.float32)),
        tensor(9, (N, 20), "computed"),
        tensor(10, (N, 20), "computed"),
        tensor(11, (N, 20), "computed"),
        tensor(12, (N, 20), "computed"),
    )
    gelu = bias_gelu((N, 20), ranges=RANGES)
    kernels = (
        RegionKernel(matmul(N, 20, 24, ranges=RANGES), "matmul_tiled", (5, 6), (9,), ("MatMul_0",)),
        RegionKernel(softmax((N,), (20,), ranges=RANGES), "row_warp", (9,), (10,), ("Softmax_1",)),
        RegionKernel(gelu, "elementwise", (10, 7), (11,), ("Gelu_2",)),
        RegionKernel(gelu, "elementwise", (11, 7), (12,), ("Gelu_3",)),
    )
    x, y = TensorType(float32, (N, 24)), TensorType(float32, (N, 4, 5))
    return Program("mlp", tensors, kernels, (("x", x, 5),), (("y", y, 12), ("w", tensors[1].type, 6)), RANGES)


def run(lowered, feeds, env):
    """Run a plan of kernel steps on the CPU, every buffer on its own."""
    arrays = {port.buffer: feeds[port.name] for port in lowered.plan.inputs}
    for buffer in lowered.plan.buffers:
        if buffer.kind == "weight":
            arrays[buffer.id] = lowered.weights[buffer.name]
        elif buffer.kind == "temporary":
            arrays[buffer.id] = np.zeros([evaluate(dim, env) for dim in buffer.shape], buffer.dtype.numpy)
    for step in lowered.plan.steps():
        record = step.kernel
        number = np.int64 if record.scalar_bits == 64 else np.int32
        arguments = [arrays[at] for at in (*step.writes, *step.reads)]
        arguments += [number(evaluate(dim, env)) for dim in record.scalars]
        kernel = compile_host(lowered.sources[record.source], record.entry)
        kernel.launch(tuple(evaluate(size, env) for size in record.grid), record.block, record.shared_bytes, arguments)
    return {port.name: arrays[port.buffer].reshape([evaluate(d, env) for d in port.shape]) for port in lowered.plan.outputs}


def test_a_small_program_gives_its_values():
    program = mlp()
    lowered = lower(program, "sm_90")
    for n in (1, 7):
        x = random_array(np.random.default_rng(n), float32, (n, 24))
        got = run(lowered, {"x": x}, {"n": n})
        w, bias = (program.tensors[k].data.astype(np.float64) for k in (1, 2))
        e = np.exp(x @ w)
        y = e / e.sum(1, keepdims=True)
        from luminal_onnx.ir.erf import erf

        for _ in range(2):
            y = y + bias
            y = y * 0.5 * (1 + erf(y / np.sqrt(2.0)))
        assert_close(got["y"], y.reshape(n, 4, 5), REDUCTION)
        np.testing.assert_array_equal(got["w"], program.tensors[1].data)


def test_the_plan_names_buffers_ports_and_weights():
    lowered = lower(mlp(), "sm_90")
    plan = lowered.plan
    kinds = {buffer.id: (buffer.kind, buffer.name) for buffer in plan.buffers}
    assert kinds[5] == ("input", "x")
    assert kinds[6] == ("weight", "w0")
    assert kinds[7] == ("weight", "w1")
    assert 8 not in kinds
    assert list(lowered.weights) == ["w0", "w1"]
    assert [port.shape for port in plan.outputs] == [(N, 4, 5), (24, 20)]
    assert [step.origin for step in plan.steps()] == [("MatMul_0",), ("Softmax_1",), ("Gelu_2",), ("Gelu_3",)]
    assert Plan.from_json(plan.to_json()) == plan


def test_ranges_are_of_symbols_that_get_a_value():
    ranges = {**RANGES, "never_read": Range(0, 1, 9), "fixed": Range(3, 3, 3)}
    assert dict(lower(replace(mlp(), ranges=ranges), "sm_90").plan.ranges) == {**RANGES, "fixed": Range(3, 3, 3)}


def test_equal_kernels_share_one_text():
    lowered = lower(mlp(), "sm_90")
    records = [step.kernel for step in lowered.plan.steps()]
    assert records[2].source == records[3].source
    assert len(lowered.sources) == 3


def test_lowering_twice_gives_the_same():
    one, other = lower(mlp(), "sm_90"), lower(mlp(), "sm_90")
    assert one.sources == other.sources
    assert one.plan == other.plan


def test_library_calls_and_scatters_become_steps():
    record = LtMatmul(
        m=4, n=4, k=4, transpose_a=False, transpose_b=False, order_a="col", order_b="col", order_d="col", lda=4, ldb=4, ldd=4,
        batch=1, stride_a=0, stride_b=0, stride_d=0, type_a=float32, type_b=float32, type_d=float32,
    )  # fmt: skip
    types = {0: (4, 4), 1: (4, 4), 2: (4, 4), 5: (4, 4)}
    tensors = [tensor(at, shape, "input" if at < 2 else "computed", f"t{at}") for at, shape in types.items()]
    tensors += [tensor(3, (2,), "input", "index", int64), tensor(4, (2,), "input", "updates")]
    kernels = (LtKernel(record, (0, 1), (2,)), ScatterKernel("add", (2, 3, 4), (5,), ("Scatter",)))
    inputs = tuple((item.name, item.type, item.id) for item in tensors if item.kind == "input")
    program = Program("mixed", tuple(tensors), kernels, inputs, (("y", tensors[2].type, 5),), {})
    plan = lower(program, "sm_90").plan
    steps = list(plan.steps())
    assert isinstance(steps[0], LtStep)
    assert all(isinstance(step, KernelStep) and step.origin == ("Scatter",) for step in steps[1:])
    assert len({buffer.id for buffer in plan.buffers}) == len(plan.buffers) == 8


def test_a_weight_without_data_is_refused():
    tensors = (tensor(0, (4,), "weight", "lost"),)
    program = Program("bad", tensors, (), (), (("y", tensors[0].type, 0),), {})
    with pytest.raises(LuminalError, match="lost"):
        lower(program, "sm_90")
