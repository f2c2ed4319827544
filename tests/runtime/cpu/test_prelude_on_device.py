"""The prelude compiles for GPUs with NVRTC, which needs none."""

from __future__ import annotations

import pytest

from luminal_onnx.runtime.cpu.toolchain import toolchain

nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

_KERNELS = ("elementwise", "row_sum", "matmul", "attention", "warps", "matrices")

# Every helper for every type, which the kernels above do not all use.
_EVERYTHING = """
template <class T> __device__ void all(T* o) {
  o[0] = convert<T>(0.5f);
  o[1] = convert<T>(int64_t(3));
  o[2] = convert<T>(half(1.0f));
  o[3] = convert<T>(bf16(1.0f));
  o[4] = convert<T>(2.0);
  o[5] = nan_max(o[1], warp_min(nan_min(o[2], shuffle_from(o[3], 3))));
  store_pack(o + 16, load_pack<2>(o + 8));
}
template <class T> __device__ void integers(T* o) {
  T a = o[0], b = o[1];
  o[2] = floor_div(a, b) + floor_mod(a, b) + trunc_div(a, b) + trunc_mod(a, b);
  o[3] = ipow(a, b) + shift_left(a, b) + shift_right(a, b) + warp_sum(a);
  o[4] = saturate_cast<T>(1.5f) + saturate_cast<T>(1.5);
  all(o);
}
extern "C" __global__ void everything(int8_t* a, int16_t* b, int32_t* c, int64_t* d, uint8_t* e, uint16_t* f,
                                      uint32_t* g, uint64_t* h, half* i, bf16* j, float* k, double* l, bool* m) {
  integers(a); integers(b); integers(c); integers(d); integers(e); integers(f); integers(g); integers(h);
  all(i); all(j); all(k); all(l); all(m);
  k[0] = floor_mod(k[1], k[2]) + INFINITY + quiet_nan() + NAN;
  l[0] = floor_mod(l[1], l[2]) + infinity<double>();
  d[0] = floor_div(d[1], 4LL);
  half* tile = dynamic_shared<half>();
  cp_async_16(tile, i, 8);
  cp_async_commit();
  cp_async_wait<1>();
  unsigned x4[4], x2[2];
  ldmatrix_x4_trans(x4, tile);
  ldmatrix_x2(x2, tile);
  float sum[4] = {};
  mma_m16n8k16<bf16>(sum, x4, x2, sum);
  k[3] = sum[0];
}
LUMINAL_EXPORT(everything)
"""


def _compile(text: str, arch: str) -> str:
    """Compile and return the log, which is empty when there is not even a warning."""
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    options = [f"--gpu-architecture={arch}", "--std=c++17", *(f"-I{folder}" for folder in toolchain().include)]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)  # one that is ours: NVRTC writes into it
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    text = log.decode(errors="replace").strip("\0 \n")
    return text if text or result == nvrtc.nvrtcResult.NVRTC_SUCCESS else str(result)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_helper_compiles_without_a_warning(arch, prelude):
    assert _compile(prelude + _EVERYTHING, arch) == ""


@pytest.mark.parametrize("name", _KERNELS)
def test_the_test_kernels_compile(name, kernel_text):
    assert _compile(kernel_text(name), "sm_80") == ""
