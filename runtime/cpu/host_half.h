// 16-bit floats: fast conversions where the processor has them, and the functions that CUDA's headers hide from host
// code.
#pragma once

#ifdef __F16C__
// The compiler's own names for the instructions: <immintrin.h> would double the size of the precompiled header.
typedef float LuminalFloat4 __attribute__((vector_size(16)));
typedef short LuminalShort8 __attribute__((vector_size(16)));
inline float half_to_float(half x) {
  LuminalShort8 bits = {static_cast<short>(__half_as_ushort(x))};
  return __builtin_ia32_vcvtph2ps(bits)[0];
}
inline half float_to_half(float x) {
  LuminalFloat4 values = {x};
  constexpr int to_nearest_even = 0;
  return __ushort_as_half(static_cast<unsigned short>(__builtin_ia32_vcvtps2ph(values, to_nearest_even)[0]));
}
#else
inline float half_to_float(half x) { return __half2float(x); }
inline half float_to_half(float x) { return __float2half_rn(x); }
#endif

inline float bf16_to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
inline __nv_bfloat16 float_to_bf16(float x) { return __float2bfloat16_rn(x); }

#define LUMINAL_VIA_FLOAT(name, expression)    \
  inline half name(half a) {                   \
    float x = half_to_float(a);                \
    return float_to_half(expression);          \
  }                                            \
  inline __nv_bfloat16 name(__nv_bfloat16 a) { \
    float x = bf16_to_float(a);                \
    return float_to_bf16(expression);          \
  }
LUMINAL_VIA_FLOAT(hexp, expf(x))
LUMINAL_VIA_FLOAT(hexp2, exp2f(x))
LUMINAL_VIA_FLOAT(hlog, logf(x))
LUMINAL_VIA_FLOAT(hlog2, log2f(x))
LUMINAL_VIA_FLOAT(hsqrt, sqrtf(x))
LUMINAL_VIA_FLOAT(hrsqrt, 1.0f / sqrtf(x))
LUMINAL_VIA_FLOAT(hrcp, 1.0f / x)
LUMINAL_VIA_FLOAT(hsin, sinf(x))
LUMINAL_VIA_FLOAT(hcos, cosf(x))
LUMINAL_VIA_FLOAT(hfloor, floorf(x))
LUMINAL_VIA_FLOAT(hceil, ceilf(x))
LUMINAL_VIA_FLOAT(htrunc, truncf(x))
LUMINAL_VIA_FLOAT(hrint, rintf(x))
#undef LUMINAL_VIA_FLOAT

// The product is exact in double, so there is one rounding to double and one to 16 bits.
inline half __hfma(half a, half b, half c) {
  return __double2half(static_cast<double>(half_to_float(a)) * half_to_float(b) + half_to_float(c));
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __double2bfloat16(static_cast<double>(bf16_to_float(a)) * bf16_to_float(b) + bf16_to_float(c));
}
inline half2 __hfma2(half2 a, half2 b, half2 c) {
  return __halves2half2(__hfma(__low2half(a), __low2half(b), __low2half(c)),
                        __hfma(__high2half(a), __high2half(b), __high2half(c)));
}
