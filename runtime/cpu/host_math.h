// Functions that CUDA has and the C library lacks, or has under other names. No fast-math: those would not be portable.
#pragma once

// Any mixture of arithmetic types, as CUDA's overloads take; of floats the number wins over NaN, as on the GPU.
template <class A, class B>
inline std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return b != b || static_cast<T>(a) > static_cast<T>(b) ? a : b;
  else
    return static_cast<T>(a) > static_cast<T>(b) ? a : b;
}

template <class A, class B>
inline std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return b != b || static_cast<T>(a) < static_cast<T>(b) ? a : b;
  else
    return static_cast<T>(a) < static_cast<T>(b) ? a : b;
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

// One rounding each; on the GPU they also keep the compiler from fusing a product with a sum.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

template <class To, class From>
inline To luminal_bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

inline int __float_as_int(float x) { return luminal_bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return luminal_bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return luminal_bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return luminal_bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return luminal_bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return luminal_bit_cast<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

// Loads and stores with a cache hint.
template <class T>
inline T __ldg(const T* p) {
  return *p;
}
template <class T>
inline T __ldcs(const T* p) {
  return *p;
}
template <class T>
inline void __stcs(T* p, T value) {
  *p = value;
}
