"""Scatter keeps the order of its updates, drops what is out of range, and touches nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from luminal_onnx.codegen import lower_scatter
from luminal_onnx.ir.graph import TensorType
from luminal_onnx.ir.program import ScatterKernel
from luminal_onnx.ir.scalars import evaluate as scalar
from luminal_onnx.plan.dims import Range, evaluate, symbol
from luminal_onnx.plan.dtypes import bfloat16, float16, float32, int32, int64
from luminal_onnx.runtime.cpu import CheckedBuffer, compile_host
from region_values import garbage, random_array
from tolerances import ELEMENTWISE, assert_close


def expected(fn, dest, index, source):
    out = dest.copy().reshape(-1)
    for place, update in zip(index.reshape(-1), source.reshape(-1), strict=True):
        if 0 <= place < out.size:
            old = out[place : place + 1]
            out[place] = update if fn == "none" else scalar(fn, [old, np.array([update])])[0]
    return out.reshape(dest.shape)


def run(fn, dest, index, source, types, ranges=None, env=(), check=True):
    lowered = lower_scatter(ScatterKernel(fn, (0, 1, 2), (3,)), types, ranges)
    places = {"dest": dest, "index": index, "source": source, "out": garbage(types[0].dtype, dest.shape)}
    for name in ("first", "last"):
        places[name] = garbage(lowered.scratch, dest.shape)
    env = dict(env)
    for step in lowered.steps:
        record = step.record
        kernel = compile_host(step.text, record.entry, check=check)
        number = np.int64 if record.scalar_bits == 64 else np.int32
        arguments = [places[name] for name in (*step.writes, *step.reads)]
        buffers = [CheckedBuffer(name, places[name]) for name in dict.fromkeys((*step.writes, *step.reads))]
        arguments += [number(evaluate(dim, env)) for dim in record.scalars]
        grid = tuple(evaluate(size, env) for size in record.grid)
        kernel.launch(grid, record.block, record.shared_bytes, arguments, buffers=buffers if check else None)
    return places["out"]


@pytest.mark.parametrize("fn", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, int32], ids=str)
@pytest.mark.parametrize("index_dtype", [int64, int32], ids=str)
def test_updates_happen_in_order(fn, dtype, index_dtype):
    rng = np.random.default_rng(1)
    dest, source = random_array(rng, dtype, (7, 9)), random_array(rng, dtype, (50,))
    index = rng.integers(-2, 66, 50).astype(index_dtype.numpy)
    index[10:14] = 5
    types = [TensorType(dtype, (7, 9)), TensorType(index_dtype, (50,)), TensorType(dtype, (50,))]
    wide = (lambda array: array.astype(np.float64)) if dtype.is_float else (lambda array: array)
    assert_close(run(fn, dest, index, source, types), expected(fn, wide(dest), index, wide(source)), ELEMENTWISE)


def test_symbolic_dims_and_many_updates():
    n = symbol("n")
    ranges = {"n": Range(1, 100, 5000)}
    types = [TensorType(float32, (n, 2)), TensorType(int64, (n,)), TensorType(float32, (n,))]
    rng = np.random.default_rng(2)
    for size in (1, 700):
        dest, source = random_array(rng, float32, (size, 2)), random_array(rng, float32, (size,))
        index = rng.integers(0, size, size)
        got = run("none", dest, index, source, types, ranges, {"n": size}, check=False)
        np.testing.assert_array_equal(got, expected("none", dest, index, source))


def test_no_updates_leave_a_copy():
    types = [TensorType(float32, (5,)), TensorType(int64, (0,)), TensorType(float32, (0,))]
    dest = np.arange(5, dtype=np.float32)
    got = run("add", dest, np.zeros(0, np.int64), np.zeros(0, np.float32), types, check=False)
    np.testing.assert_array_equal(got, dest)


def test_three_texts_are_the_same_each_time():
    types = [TensorType(float32, (5,)), TensorType(int64, (3,)), TensorType(float32, (3,))]
    kernel = ScatterKernel("add", (0, 1, 2), (3,))
    texts = [[step.text for step in lower_scatter(kernel, types).steps] for _ in range(2)]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3
