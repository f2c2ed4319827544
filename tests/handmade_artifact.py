"""A small plan written by hand, with its kernels, weights and expected results: runtime tests need no compiler."""

from __future__ import annotations

import hashlib
import sys
from importlib import resources
from pathlib import Path

import numpy as np
from luminal_onnx.plan.dims import Range, ceil_div, symbol
from luminal_onnx.plan.dtypes import float32, int64
from luminal_onnx.plan.lt import LtMatmul
from luminal_onnx.plan.records import Buffer, KernelRecord, KernelStep, LtStep, Plan, Port, Segment, Sequence

ARCHES = ("sm_80", "sm_90", "sm_100")
FEATURES, CLASSES = 24, 5

PRELUDE = (resources.files("luminal_onnx.codegen.cuda") / "prelude.cuh").read_text()

SCALE_SHIFT = """
extern "C" __global__ void scale_shift(float* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * 2.0f + 1.0f;
}
LUMINAL_EXPORT(scale_shift)
"""
RELU_TOTAL = """
extern "C" __global__ void relu_total(float* y, float* total, const float* x, long long rows, long long width) {
    __shared__ float partial[32];
    long long row = blockIdx.x;
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < width; i += blockDim.x) {
        float value = x[row * width + i];
        value = value < 0.0f ? 0.0f : value;
        y[row * width + i] = value;
        sum += value;
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 16; step > 0; step /= 2) {
        if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) total[row] = partial[0];
}
LUMINAL_EXPORT(relu_total)
"""
COUNT_POSITIVE = """
extern "C" __global__ void count_positive(long long* count, const float* total, int rows) {
    long long found = 0;
    for (int i = 0; i < rows; i++) found += total[i] > 0.0f;
    count[0] = found;
}
LUMINAL_EXPORT(count_positive)
"""


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


SCALE_SHIFT, RELU_TOTAL, COUNT_POSITIVE = (PRELUDE + text for text in (SCALE_SHIFT, RELU_TOTAL, COUNT_POSITIVE))
SOURCES = {sha(text): text for text in (SCALE_SHIFT, RELU_TOTAL, COUNT_POSITIVE)}
BATCH = symbol("batch")


def weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(7)
    return {
        "w": generator.standard_normal((FEATURES, CLASSES), np.float32),
        "b": generator.standard_normal(CLASSES, np.float32),
    }


def plan(arch: str = "sm_90") -> Plan:
    """relu((2x + 1) @ w + b), its row sums, how many of these are positive, x itself and the weight."""
    n = BATCH * FEATURES
    buffers = (
        Buffer(0, "x", "input", float32, (BATCH, FEATURES)),
        Buffer(1, "w", "weight", float32, (FEATURES, CLASSES)),
        Buffer(2, "b", "weight", float32, (CLASSES,)),
        Buffer(3, "shifted", "temporary", float32, (BATCH, FEATURES)),
        Buffer(4, "product", "temporary", float32, (BATCH, CLASSES)),
        Buffer(5, "y", "temporary", float32, (BATCH, CLASSES)),
        Buffer(6, "total", "temporary", float32, (BATCH,)),
        Buffer(7, "count", "temporary", int64, ()),
    )
    scale = KernelRecord(
        "elementwise:scale_shift", sha(SCALE_SHIFT), "scale_shift", (ceil_div(n, 128), 1, 1), (128, 1, 1), 0, 1, 1, (n,)
    )
    product = LtMatmul(
        m=CLASSES, n=BATCH, k=FEATURES, transpose_a=False, transpose_b=False, order_a="col", order_b="col", order_d="col",
        lda=CLASSES, ldb=FEATURES, ldd=CLASSES, batch=1, stride_a=0, stride_b=0, stride_d=0,
        type_a=float32, type_b=float32, type_d=float32, epilogue="bias",
    )  # fmt: skip
    relu = KernelRecord(
        "row_warp:relu_total", sha(RELU_TOTAL), "relu_total", (BATCH, 1, 1), (32, 1, 1), 0, 1, 2, (BATCH, CLASSES), 64
    )
    count = KernelRecord(
        "row_thread:count", sha(COUNT_POSITIVE), "count_positive", (1, 1, 1), (1, 1, 1), 0, 1, 1, (BATCH,)
    )
    root = Sequence(
        (
            Segment((KernelStep(scale, (3,), (0,), ("mul", "add")), LtStep(product, (4,), (1, 3, 2), ("gemm",)))),
            Segment((KernelStep(relu, (5, 6), (4,), ("relu",)), KernelStep(count, (7,), (6,), ("count",)))),
        )
    )
    outputs = (
        Port("y", float32, (BATCH, CLASSES), 5),
        Port("total", float32, (BATCH, 1), 6),
        Port("count", int64, (), 7),
        Port("x_again", float32, (BATCH * FEATURES,), 0),
        Port("w_again", float32, (FEATURES, CLASSES), 1),
    )
    inputs = (Port("x", float32, (BATCH, FEATURES), 0),)
    return Plan(arch, buffers, inputs, outputs, root, {"batch": Range(0, 4, 64)})


def expected(x: np.ndarray) -> list[np.ndarray]:
    held = weights()
    y = np.maximum((x.astype(np.float64) * 2 + 1) @ held["w"].astype(np.float64) + held["b"], 0)
    total = y.sum(axis=1, keepdims=True)
    return [y, total, np.array((total > 0).sum(), np.int64), x.reshape(-1), held["w"]]


def feed(batch: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, batch]).standard_normal((batch, FEATURES), np.float32)


def write(path: Path, *, sources: dict[str, str] | None = None, cubins=None, ptx=None, extras=None) -> Path:
    """Write the artifact under `path`; without `cubins` it holds none, and runs on the CPU only."""
    from luminal_onnx.codegen.artifact import write_artifact

    write_artifact(
        path,
        manifest_info={"model": {"name": "handmade", "sha256": "0" * 64}},
        plans={arch: plan(arch) for arch in ARCHES},
        cubins=cubins or {},
        ptx=ptx or {},
        sources=SOURCES if sources is None else sources,
        weights=weights(),
        extras=extras or {"graph.txt": b"x -> y\n"},
    )
    return path


def write_compiled(path: Path) -> Path:
    """Write the artifact with machine code for every arch and PTX, which takes NVRTC but no GPU."""
    from luminal_onnx.codegen import compile_sources

    binaries = compile_sources(SOURCES, ARCHES)
    return write(path, cubins=binaries.cubins, ptx=binaries.ptx)


if __name__ == "__main__":  # writes data/format_v1.luminal, which must always load: keep it when the code changes
    write_compiled(Path(sys.argv[1]))
