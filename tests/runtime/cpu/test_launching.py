"""Launches: arguments are checked, empty ones are fine, several threads may launch at once."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tolerances import ELEMENTWISE, assert_close

from luminal_onnx.plan.errors import InvalidInput, KernelFault
from luminal_onnx.runtime.cpu import CheckedBuffer, compile_host, compile_many


def _silu_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = a.astype(np.float64)
    return wide / (1 + np.exp(-wide)) * b


def test_arguments_of_every_kind(prelude, host_cache):
    text = f"""{prelude}
extern "C" __global__ void scalars(int32_t* seen, bool b, int8_t i8, int64_t i64, uint16_t u16, float f, double d,
                                   half h, bf16 g, const float* null) {{
  seen[0] = b;
  seen[1] = i8;
  seen[2] = static_cast<int32_t>(i64 >> 32);
  seen[3] = u16;
  seen[4] = convert<int32_t>(f * 4);
  seen[5] = convert<int32_t>(d * 4);
  seen[6] = convert<int32_t>(widen(h) * 4);
  seen[7] = convert<int32_t>(widen(g) * 4);
  seen[8] = null == nullptr;
}}
LUMINAL_EXPORT(scalars)
"""
    import ml_dtypes

    kernel = compile_host(text, "scalars", cache_dir=host_cache)
    seen = np.zeros(9, np.int32)
    args = [np.bool_(True), np.int8(-7), np.int64(5 << 32), np.uint16(65535), np.float32(1.25), np.float64(-2.5)]
    args += [np.float16(0.75), ml_dtypes.bfloat16(3.5), ctypes.c_void_p(None)]
    kernel.launch((1, 1, 1), (1, 1, 1), 0, [seen, *args])
    assert seen.tolist() == [1, -7, 5, 65535, 5, -10, 3, 14, 1]
    address = ctypes.c_void_p(seen.ctypes.data)
    kernel.launch((1, 1, 1), (1, 1, 1), 0, [address, True, 8, -1, 3, 0.5, 0.25, *args[6:]])
    assert seen.tolist()[:6] == [1, 8, -1, 3, 2, 1]


def test_blocks_and_grids_in_three_dimensions(prelude, host_cache):
    text = f"""{prelude}
extern "C" __global__ void places(int* o) {{
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int threads = blockDim.x * blockDim.y * blockDim.z;
  __syncthreads();
  o[block * threads + thread] += block * 1000 + thread;
}}
LUMINAL_EXPORT(places)
"""
    kernel = compile_host(text, "places", cache_dir=host_cache)
    for reverse in (False, True):
        out = np.zeros((2 * 3 * 4, 5 * 3 * 7), np.int32)
        kernel.launch((4, 3, 2), (5, 3, 7), 0, [out], reverse=reverse)
        np.testing.assert_array_equal(out, np.arange(24)[:, None] * 1000 + np.arange(105))


def test_an_empty_grid_and_empty_arrays(compile_file):
    a = np.zeros(0, np.float32)
    for check in (False, True):
        kernel = compile_file("elementwise", check=check)
        kernel.launch((0, 1, 1), (256, 1, 1), 0, [a, a, a, np.int32(0)])
        kernel.launch((1, 1, 1), (256, 1, 1), 0, [a, a, a, np.int32(0)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[:-1], "takes 4 arguments, got 3"),
        (lambda a: [*a[:3], np.int64(8)], "argument 3: expected a 4-byte int, got numpy.int64"),
        (lambda a: [*a[:3], np.float32(8)], "argument 3: expected a 4-byte int, got numpy.float32"),
        (lambda a: [*a[:3], 2**31], "argument 3: 2147483648 does not fit a 4-byte int"),
        (lambda a: [*a[:3], a[0]], "argument 3: expected a 4-byte int, got ndarray"),
        (lambda a: [1234, *a[1:]], "argument 0: expected an array or ctypes.c_void_p, got int"),
        (lambda a: [np.zeros((8, 2), np.float32)[:, 0], *a[1:]], "argument 0: the array is not C-contiguous"),
    ],
)
def test_arguments_that_do_not_fit(change, message, compile_file):
    a = np.zeros(8, np.float32)
    with pytest.raises(InvalidInput, match=f"kernel elementwise.*{message}"):
        compile_file("elementwise").launch((1, 1, 1), (8, 1, 1), 0, change([a, a, a.copy(), np.int32(8)]))


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [
        ((1, 1), (1, 1, 1), 0),
        ((1, 65536, 1), (1, 1, 1), 0),
        ((1, 1, 1), (257, 1, 1), 0),  # __launch_bounds__(256)
        ((1, 1, 1), (16, 16, 2), 0),
        ((1, 1, 1), (0, 1, 1), 0),
        ((1, 1, 1), (1, 1, 1), -1),
    ],
)
def test_launch_shapes_that_no_device_takes(grid, block, shared, compile_file):
    a = np.zeros(8, np.float32)
    with pytest.raises(InvalidInput, match="kernel elementwise: "):
        compile_file("elementwise").launch(grid, block, shared, [a, a, a, np.int32(8)])


def test_buffers_need_a_checked_kernel(compile_file):
    a = np.zeros(8, np.float32)
    with pytest.raises(InvalidInput, match="compiled with check=True"):
        compile_file("elementwise").launch(
            (1, 1, 1), (8, 1, 1), 0, [a, a, a, np.int32(8)], buffers=[CheckedBuffer("a", a)]
        )


def test_views_of_one_arena_are_told_apart_by_the_checker(compile_file):
    """Running over the end of a view is found although the next view follows at once, and addresses are translated."""
    arena = np.zeros(3 * 1024, np.uint8)
    a, b, out = (arena[i * 1024 : (i + 1) * 1024].view(np.float32) for i in range(3))
    a[:], b[:] = 1.0, 2.0
    kernel = compile_file("elementwise", check=True)
    buffers = [CheckedBuffer("a", a, read_only=True), CheckedBuffer("b", b), CheckedBuffer("out", out, False)]
    pointers = [ctypes.c_void_p(view.ctypes.data) for view in (a, b, out)]
    kernel.launch((1, 1, 1), (256, 1, 1), 0, [*pointers, np.int32(256)], buffers=buffers)
    assert_close(out, _silu_product(a, b), ELEMENTWISE)
    with pytest.raises(KernelFault, match="out of bounds read of 4 bytes at byte 1024 of a, which has 1024 bytes"):
        kernel.launch((2, 1, 1), (256, 1, 1), 0, [*pointers, np.int32(257)], buffers=buffers)


def test_in_place_buffers_share_one_copy(compile_file):
    kernel = compile_file("elementwise", check=True)
    a, b = np.random.default_rng(1).standard_normal((2, 100)).astype(np.float32)
    expected = _silu_product(a, b)
    buffers = [CheckedBuffer("a", a, read_only=True), CheckedBuffer("b", b), CheckedBuffer("out", a, False)]
    kernel.launch((1, 1, 1), (128, 1, 1), 0, [a, b, a, np.int32(100)], buffers=buffers)
    assert_close(a, expected, ELEMENTWISE)


def test_only_the_output_of_an_overlap_must_be_written(compile_file):
    """The output lies inside the input; the input's other bytes are nobody's duty."""
    kernel = compile_file("elementwise", check=True)
    a, b = np.random.default_rng(4).standard_normal((2, 100)).astype(np.float32)
    out = a[:40]
    expected = _silu_product(a[:40], b[:40])
    buffers = [CheckedBuffer("a", a, read_only=True), CheckedBuffer("b", b)]
    buffers.append(CheckedBuffer("out", out, initialised=False, fully_written=True))
    kernel.launch((1, 1, 1), (128, 1, 1), 0, [a, b, out, np.int32(40)], buffers=buffers)
    assert_close(out, expected, ELEMENTWISE)
    with pytest.raises(KernelFault, match="4 of the 160 bytes of a = out were never written .first: byte 156."):
        kernel.launch((1, 1, 1), (128, 1, 1), 0, [a, b, out, np.int32(39)], buffers=buffers)


def test_four_threads_launch_at_once(compile_file):
    """Right kernels give the same bits beside each other and beside faulting ones."""
    attention, broken = compile_file("attention"), compile_file("faults/missing_lanes")
    q, k, v = np.random.default_rng(2).standard_normal((3, 128, 64)).astype(np.float16)

    def attend(_) -> bytes:
        out = np.zeros((128, 64), np.float32)
        attention.launch((2, 1, 1), (128, 1, 1), 3 * 64 * 72 * 2, [q, k, v, out, np.int32(128), np.float32(0.125)])
        return out.tobytes()

    def fail(_) -> bytes:
        with pytest.raises(KernelFault, match="kernel missing_lanes: .*barrier divergence"):
            broken.launch((1, 1, 1), (128, 1, 1), 0, [np.zeros(128, np.float32), np.int32(100)])
        return b""

    alone = attend(0)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: (fail if i % 3 == 2 else attend)(i), range(48)))
    assert all(result == (b"" if i % 3 == 2 else alone) for i, result in enumerate(results))


def test_many_blocks_in_parallel_give_the_same_bits(compile_file):
    kernel = compile_file("row_sum")
    x = np.random.default_rng(3).standard_normal((1000, 512)).astype(np.float32)
    outs = []
    for _ in range(3):
        outs.append(np.zeros(1000, np.float32))
        kernel.launch((1000, 1, 1), (256, 1, 1), 0, [x, outs[-1], np.int32(512)])
    assert outs[0].tobytes() == outs[1].tobytes() == outs[2].tobytes()
    np.testing.assert_array_equal(outs[0] != 0, True)


def test_text_that_does_not_compile_is_named(prelude, host_cache):
    good = prelude + 'extern "C" __global__ void k(float* o) { o[0] = 1; }\nLUMINAL_EXPORT(k)\n'
    bad = prelude + 'extern "C" __global__ void k(float* o) { o[0] = undeclared; }\nLUMINAL_EXPORT(k)\n'
    unknown = (
        prelude
        + 'extern "C" void nowhere();\nextern "C" __global__ void k(float* o) { nowhere(); }\nLUMINAL_EXPORT(k)\n'
    )
    with pytest.raises(KernelFault, match=r"kernel k does not compile for the CPU:\n.*k\.cu:\d+.*undeclared"):
        compile_host(bad, "k", cache_dir=host_cache)
    with pytest.raises(KernelFault, match="kernel k does not compile for the CPU:(.|\n)*nowhere"):
        compile_host(unknown, "k", cache_dir=host_cache)
    variants = [(f"{good}// {i}\n", "k") for i in range(12)]
    with pytest.raises(KernelFault, match="kernel k does not compile for the CPU:(.|\n)*undeclared"):
        compile_many([*variants, (bad, "k")], cache_dir=host_cache)
    with pytest.raises(KernelFault, match=r"lacks LUMINAL_EXPORT\(k\)"):
        compile_host(good.replace("LUMINAL_EXPORT(k)", ""), "k", cache_dir=host_cache)


def test_kernels_of_one_name_in_one_batch(prelude, host_cache):
    """Equal names, clashing macros and static shared memory of one batch stay apart."""
    texts = [
        f"""{prelude}
#define VALUE {i}
LUMINAL_DEVICE int helper() {{ return VALUE * 10; }}
extern "C" __global__ void same(int* o) {{
  __shared__ int cell;
  if (threadIdx.x == 0) cell = helper();
  __syncthreads();
  o[threadIdx.x] = cell + VALUE;
}}
LUMINAL_EXPORT(same)
"""
        for i in range(20)
    ]
    for _ in range(2):  # compiled, then found
        kernels = compile_many([(text, "same") for text in texts], cache_dir=host_cache)
        for i, kernel in enumerate(kernels):
            out = np.zeros(32, np.int32)
            kernel.launch((1, 1, 1), (32, 1, 1), 0, [out])
            assert (out == 11 * i).all()
