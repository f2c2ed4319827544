"""Right kernels: NumPy's numbers, the same bits in reverse order, and nothing for the checker to find."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tolerances import ELEMENTWISE, REDUCTION, assert_close

from luminal_onnx.runtime.cpu import CheckedBuffer


def _normal(seed: int, *shape: int, dtype=np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def elementwise():
    n = 1000
    a, b, out = _normal(1, n), _normal(2, n), np.zeros(n, np.float32)
    wide = a.astype(np.float64)
    expected = wide / (1 + np.exp(-wide)) * b
    return (4, 1, 1), (256, 1, 1), 0, [a, b, out, np.int32(n)], [(out, expected, ELEMENTWISE)]


def row_sum():
    x, out = _normal(3, 7, 1024), np.zeros(7, np.float32)
    return (7, 1, 1), (256, 1, 1), 0, [x, out, np.int32(1024)], [(out, x.astype(np.float64).sum(1), REDUCTION)]


def matmul():
    m, n, k = 128, 64, 96
    a, b, out = _normal(4, m, k), _normal(5, k, n), np.zeros((m, n), np.float32)
    args = [a, b, out, *(np.int32(size) for size in (m, n, k))]
    return (n // 64, m // 64, 1), (256, 1, 1), 0, args, [(out, a.astype(np.float64) @ b, REDUCTION)]


def attention():
    q, k, v = (_normal(seed, 128, 64, dtype=np.float16) for seed in (6, 7, 8))
    out, scale = np.zeros((128, 64), np.float32), np.float32(0.125)
    scores = q.astype(np.float64) @ k.astype(np.float64).T * scale
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = weights / weights.sum(1, keepdims=True) @ v.astype(np.float64)
    half_class = {"float32": REDUCTION["float16"]}  # weights are rounded to half before the second product
    return (2, 1, 1), (128, 1, 1), 3 * 64 * 72 * 2, [q, k, v, out, np.int32(128), scale], [(out, expected, half_class)]


def warps():
    values = np.random.default_rng(9).integers(0, 100, 64, dtype=np.int32)
    out, counters = np.zeros((64, 12), np.int32), np.zeros(2, np.int32)
    lane, first = np.arange(64) % 32, np.arange(64) // 32 * 32
    odd = (values & 1).reshape(2, 32).astype(np.uint64)
    ballot = (odd << np.arange(32, dtype=np.uint64)).sum(1).astype(np.uint32).astype(np.int32)
    per_warp = values.reshape(2, 32)
    expected = np.stack(
        [
            np.repeat(ballot, 32),
            np.where(lane + 3 < 32, values[np.minimum(np.arange(64) + 3, 63)], values),
            np.where(lane > 0, values[np.arange(64) - 1], values),
            values[first + 5],
            values[np.arange(64) ^ 4],
            np.repeat((per_warp > 90).any(1), 32),
            np.ones(64),
            np.full(64, (values & 1).sum()),
            np.full(64, values.sum()),
            np.array([1, 20, 300, 4000])[np.arange(64) % 4],
            np.repeat(per_warp.sum(1), 32),
            np.where(lane < 16, values[np.arange(64) ^ 1], values[np.arange(64) ^ 2]),
        ],
        axis=1,
    ).astype(np.int32)
    results = [(out, expected, {}), (counters, np.array([63, 64], np.int32), {})]
    return (1, 1, 1), (64, 1, 1), 0, [values, out, counters], results


def matrices():
    rng = np.random.default_rng(10)
    args, results = [], []
    for dtype in (np.float16, ml_dtypes.bfloat16):
        a, b = (rng.integers(-8, 8, shape).astype(dtype) for shape in ((16, 16), (16, 8)))
        d = rng.integers(-8, 8, (16, 8)).astype(np.float32)
        results.append((d, d + a.astype(np.float64) @ b.astype(np.float64), {"float32": ELEMENTWISE["float32"]}))
        args += [a, b, d]
    tile = rng.integers(0, 2**16, (32, 8), dtype=np.uint16)
    loaded = np.zeros((32, 12), np.uint32)
    eights = tile.reshape(4, 8, 8)
    plain, transposed = (_fragments(m) for m in (eights, eights.transpose(0, 2, 1)))
    results.append((loaded, np.concatenate([plain, transposed, plain[:, :2], transposed[:, :2]], axis=1), {}))
    return (1, 1, 1), (32, 1, 1), 0, [*args, tile, loaded], results


def _fragments(eights: np.ndarray) -> np.ndarray:
    """Register j of lane l holds elements 2 (l % 4) and the next of row l / 4 of matrix j."""
    pairs = eights.astype(np.uint32).reshape(4, 8, 4, 2)
    return (pairs[..., 0] | pairs[..., 1] << np.uint32(16)).reshape(4, 32).T


CASES = [elementwise, row_sum, matmul, attention, warps, matrices]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_values_in_both_orders(case, compile_file):
    kernel = compile_file(case.__name__)
    seen = []
    for reverse in (False, True):
        grid, block, shared, args, results = case()
        kernel.launch(grid, block, shared, args, reverse=reverse)
        for out, expected, classes in results:
            assert_close(out, expected, classes)
        seen.append([out.tobytes() for out, _, _ in results])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_checker_finds_nothing(case, compile_file):
    kernel = compile_file(case.__name__, check=True)
    for reverse in (False, True):
        grid, block, shared, args, results = case()
        outputs = {id(out) for out, _, _ in results}
        arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
        buffers = [CheckedBuffer(f"b{i}", array, read_only=id(array) not in outputs) for i, array in enumerate(arrays)]
        kernel.launch(grid, block, shared, args, buffers=buffers, reverse=reverse)
        for out, expected, classes in results:
            assert_close(out, expected, classes)
