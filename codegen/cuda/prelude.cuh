// The prelude of every emitted kernel, and the only text that knows whether it is compiled for a GPU or for the host.
//
// A kernel is this text, then templates, then one `extern "C" __global__` function and `LUMINAL_EXPORT(function)`.
// After the prelude there is no #ifdef, asm, extern __shared__, address-space conversion or fast-math intrinsic:
// whatever needs one of those is a helper here, with typed pointers and array references, and has a device and a host
// body.
//
// On the GPU the compiler is NVRTC, which has no C or C++ headers of its own. On the host `luminal_host.h`
// (runtime/cpu) plays threads, shared memory, barriers, shuffles, tensor-core instructions and asynchronous copies.
#ifndef LUMINAL_PRELUDE
#define LUMINAL_PRELUDE

#ifdef LUMINAL_HOST
#include "luminal_host.h"
#else

// Templates over all integer types compare unsigned values with zero, and not every kernel uses every constant.
#pragma nv_diag_suppress 177, 186, 514

#include <cuda_fp16.h>
#include <cuda_bf16.h>
#ifdef LUMINAL_FP8
#include <cuda_fp8.h>
#endif

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;

#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)

// A device function that is always inlined.
#define LUMINAL_DEVICE __device__ __forceinline__

// Makes a kernel callable through cuLaunchKernel's `void**`; the driver needs no help, the host does.
#define LUMINAL_EXPORT(kernel)

// The dynamic shared memory of the block, aligned to 128 bytes.
template <class T>
LUMINAL_DEVICE T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char luminal_dynamic_shared_memory[];
  return reinterpret_cast<T*>(luminal_dynamic_shared_memory);
}

LUMINAL_DEVICE float half_to_float(half x) { return __half2float(x); }
LUMINAL_DEVICE half float_to_half(float x) { return __float2half_rn(x); }
LUMINAL_DEVICE float bf16_to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
LUMINAL_DEVICE __nv_bfloat16 float_to_bf16(float x) { return __float2bfloat16_rn(x); }

LUMINAL_DEVICE unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// d = a b + c, a 16x16 row-major, b 16x8 column-major, both f16, c and d f32; the fragments are PTX's for mma.m16n8k16.
LUMINAL_DEVICE void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                     const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// The same with a and b in bf16.
LUMINAL_DEVICE void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                      const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// Each lane gives the address of one 16-byte row in shared memory (lanes 0-7 the rows of the first 8x8 matrix, ...).
LUMINAL_DEVICE void ldmatrix_x4(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

LUMINAL_DEVICE void ldmatrix_x4_trans(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

LUMINAL_DEVICE void ldmatrix_x2(unsigned (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1},[%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}

LUMINAL_DEVICE void ldmatrix_x2_trans(unsigned (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}

// Starts copying 16 bytes from global to shared memory, both 16-byte aligned. Of the source only the first `valid`
// bytes (0 to 16) are read, the rest of the destination becomes zero.
LUMINAL_DEVICE void cp_async_16(void* shared, const void* global, int valid = 16) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid)
               : "memory");
}

// Closes the group of the copies started since the last commit.
LUMINAL_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most the N youngest groups of this thread are still under way. Other threads need a barrier after it.
template <int N>
LUMINAL_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Waits until the kernels in front of this one have ended and what they wrote can be read. Every thread of every kernel
// does this before anything else: a kernel may have been started while the one in front of it was still running.
LUMINAL_DEVICE void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel's blocks start, as far as there is room for them, once all blocks of this one have come here.
LUMINAL_DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#endif  // LUMINAL_HOST

// The `__restrict__` of pointers to what other kernels of a run write. Where a kernel may start before those have ended it is
// left out: a const restrict pointer promises memory that nobody changes from the kernel's start to its end, so that
// reads through it may move ahead of the wait, or go through a cache that is not kept coherent.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LUMINAL_RESTRICT
#else
#define LUMINAL_RESTRICT __restrict__
#endif

using bf16 = __nv_bfloat16;

// ---- element types ----

// 16-bit floats are stored as such and computed as float.
LUMINAL_DEVICE float widen(half x) { return half_to_float(x); }
LUMINAL_DEVICE float widen(bf16 x) { return bf16_to_float(x); }
template <class T>
LUMINAL_DEVICE T widen(T x) {
  return x;
}

template <class A, class B>
struct SameType {
  static constexpr bool value = false;
};
template <class A>
struct SameType<A, A> {
  static constexpr bool value = true;
};

template <class T>
struct IsFloat {
  static constexpr bool value = SameType<T, float>::value || SameType<T, double>::value;
};
template <class T>
struct IsNarrowFloat {
  static constexpr bool value = SameType<T, half>::value || SameType<T, bf16>::value;
};
template <class T>
struct IsSigned {
  static constexpr bool value = T(-1) < T(0);
};

// The extreme values of an integer type.
template <class T>
struct IntegerRange {
  static constexpr int bits = 8 * static_cast<int>(sizeof(T));
  static constexpr T highest =
      static_cast<T>(IsSigned<T>::value ? ~uint64_t(0) >> (65 - bits) : ~uint64_t(0) >> (64 - bits));
  static constexpr T lowest = static_cast<T>(IsSigned<T>::value ? -highest - 1 : 0);
};

template <class T = float>
LUMINAL_DEVICE T quiet_nan() {
  return static_cast<T>(NAN);
}

template <class T = float>
LUMINAL_DEVICE T infinity() {
  return static_cast<T>(INFINITY);
}

// Float to integer: toward zero, clamped to the range of Int; NaN gives 0. Never traps.
template <class Int, class Float>
LUMINAL_DEVICE Int saturate_cast(Float x) {
  static_assert(IsFloat<Float>::value, "saturate_cast takes float or double");
  constexpr int value_bits = IntegerRange<Int>::bits - (IsSigned<Int>::value ? 1 : 0);
  constexpr Float above = static_cast<Float>(uint64_t(1) << (value_bits - 1)) * 2;  // 2^value_bits, exactly
  if (!(x == x)) return 0;
  if (x >= above) return IntegerRange<Int>::highest;
  if (x <= (IsSigned<Int>::value ? -above : Float(0))) return IntegerRange<Int>::lowest;
  return static_cast<Int>(x);
}

// Any element type to any other: floats are clamped into integers (saturate_cast), integers wrap, to bool is `!= 0`.
template <class To, class From>
LUMINAL_DEVICE To convert(From x) {
  if constexpr (SameType<To, From>::value) {
    return x;
  } else if constexpr (IsNarrowFloat<From>::value) {
    return convert<To>(widen(x));
  } else if constexpr (SameType<To, bool>::value) {
    return x != From(0);
  } else if constexpr (SameType<To, half>::value) {
    if constexpr (SameType<From, double>::value)
      return __double2half(x);
    else
      return float_to_half(static_cast<float>(x));
  } else if constexpr (SameType<To, bf16>::value) {
    return float_to_bf16(static_cast<float>(x));
  } else if constexpr (IsFloat<From>::value && !IsFloat<To>::value) {
    return saturate_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// ---- arithmetic that C leaves open ----

// The greater of two values; NaN if either is NaN.
template <class T>
LUMINAL_DEVICE T nan_max(T a, T b) {
  if constexpr (IsNarrowFloat<T>::value)
    return convert<T>(nan_max(widen(a), widen(b)));
  else if constexpr (IsFloat<T>::value)
    return a != a ? a : (b != b ? b : (a < b ? b : a));
  else
    return a < b ? b : a;
}

// The smaller of two values; NaN if either is NaN.
template <class T>
LUMINAL_DEVICE T nan_min(T a, T b) {
  if constexpr (IsNarrowFloat<T>::value)
    return convert<T>(nan_min(widen(a), widen(b)));
  else if constexpr (IsFloat<T>::value)
    return a != a ? a : (b != b ? b : (b < a ? b : a));
  else
    return b < a ? b : a;
}

// Integer division toward zero; x / 0 is 0, and the lowest integer divided by -1 wraps.
template <class A, class B>
LUMINAL_DEVICE auto trunc_div(A a, B b) -> decltype(a / b) {
  using T = decltype(a / b);
  if (b == 0) return 0;
  if constexpr (IsSigned<T>::value) {
    if (b == -1) return static_cast<T>(0 - static_cast<uint64_t>(a));
  }
  return a / b;
}

// The remainder of trunc_div, with the dividend's sign; x % 0 is 0.
template <class A, class B>
LUMINAL_DEVICE auto trunc_mod(A a, B b) -> decltype(a % b) {
  using T = decltype(a % b);
  if (b == 0) return 0;
  if constexpr (IsSigned<T>::value) {
    if (b == -1) return 0;
  }
  return a % b;
}

// Integer division toward minus infinity, as Python's //; x / 0 is 0, and the lowest integer divided by -1 wraps.
template <class A, class B>
LUMINAL_DEVICE auto floor_div(A a, B b) -> decltype(a / b) {
  using T = decltype(a / b);
  T quotient = trunc_div(a, b);
  if constexpr (IsSigned<T>::value) {
    if (trunc_mod(a, b) != 0 && (a < 0) != (b < 0)) quotient -= 1;
  }
  return quotient;
}

// erf for a result that is rounded to 16 bits: within 7e-7, and 1e-5 of it near zero. 1 - erfc, whose binary logarithm is fitted
// by a polynomial of the fifth degree on [0, 4]; beyond, 1 is what a 16-bit float holds. Below 1/16 the series, since 1 - 2^q cancels.
LUMINAL_DEVICE float erf_to_half(float x) {
  float size = fabsf(x);
  float a = size > 4.0f ? 4.0f : size;
  float q = ((((-0.0029441752f * a + 0.029590102f) * a - 0.1486657f) * a - 0.91850936f) * a - 1.627889f) * a;
  float series = a * (1.1283792f - 0.37612638f * a * a);
  return copysignf(a < 0.0625f ? series : 1.0f - exp2f(q), x);
}

LUMINAL_DEVICE float float_remainder(float a, float b) { return fmodf(a, b); }
LUMINAL_DEVICE double float_remainder(double a, double b) { return fmod(a, b); }

// The remainder with the divisor's sign, as Python's %; for integers x % 0 is 0, for floats NaN.
template <class A, class B>
LUMINAL_DEVICE auto floor_mod(A a, B b) -> decltype(a + b) {
  using T = decltype(a + b);
  if constexpr (IsFloat<T>::value) {
    T remainder = float_remainder(static_cast<T>(a), static_cast<T>(b));
    if (remainder == 0) return b < 0 ? T(-0.0) : T(0.0);
    return (remainder < 0) != (b < 0) ? remainder + b : remainder;
  } else {
    T remainder = trunc_mod(a, b);
    if constexpr (IsSigned<T>::value) {
      if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
    }
    return remainder;
  }
}

// Integer power, wrapping; a negative exponent gives 0 unless the base is 1 or -1.
template <class A, class B>
LUMINAL_DEVICE auto ipow(A base, B exponent) -> decltype(base * exponent) {
  using T = decltype(base * exponent);  // literals are wider than small integers
  if constexpr (IsSigned<T>::value) {
    if (exponent < 0) return base == 1 ? T(1) : (base == T(-1) ? (exponent & 1 ? T(-1) : T(1)) : T(0));
  }
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (uint64_t left = static_cast<uint64_t>(exponent); left; left >>= 1, square *= square) {
    if (left & 1) result *= square;
  }
  return static_cast<T>(result);
}

// x << count; a count outside 0..bits-1 shifts everything out.
template <class T, class Count>
LUMINAL_DEVICE T shift_left(T x, Count count) {
  bool inside = static_cast<uint64_t>(count) < IntegerRange<T>::bits;
  return inside ? static_cast<T>(static_cast<uint64_t>(x) << static_cast<int>(count)) : T(0);
}

// x >> count, filling with the sign; a count outside 0..bits-1 shifts everything out.
template <class T, class Count>
LUMINAL_DEVICE T shift_right(T x, Count count) {
  bool inside = static_cast<uint64_t>(count) < IntegerRange<T>::bits;
  if (inside) return static_cast<T>(x >> static_cast<int>(count));
  return x < T(0) ? static_cast<T>(~T(0)) : T(0);
}

// ---- memory ----

// N adjacent elements that are loaded and stored as one access of sizeof(T) * N bytes: 1, 2, 4, 8 or 16.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
  LUMINAL_DEVICE T& operator[](int i) { return values[i]; }
  LUMINAL_DEVICE const T& operator[](int i) const { return values[i]; }
};

template <int Bytes>
struct PackWord;
template <>
struct PackWord<1> {
  using type = uint8_t;
};
template <>
struct PackWord<2> {
  using type = uint16_t;
};
template <>
struct PackWord<4> {
  using type = uint32_t;
};
template <>
struct PackWord<8> {
  using type = uint2;
};
template <>
struct PackWord<16> {
  using type = uint4;
};

// Loads N elements at `source`, which is aligned to all of them.
template <int N, class T>
LUMINAL_DEVICE Pack<T, N> load_pack(const T* source) {
  using Word = typename PackWord<sizeof(T) * N>::type;
  Word word = *reinterpret_cast<const Word*>(source);
  Pack<T, N> pack;
  memcpy(&pack, &word, sizeof(word));
  return pack;
}

// Stores N elements at `target`, which is aligned to all of them.
template <int N, class T>
LUMINAL_DEVICE void store_pack(T* target, const Pack<T, N>& pack) {
  using Word = typename PackWord<sizeof(T) * N>::type;
  Word word;
  memcpy(&word, &pack, sizeof(word));
  *reinterpret_cast<Word*>(target) = word;
}

// ---- warps ----

constexpr unsigned ALL_LANES = 0xffffffffu;

// The value that the lane `mask` away holds. All lanes of the warp take part.
template <class T>
LUMINAL_DEVICE T shuffle_xor(T value, int mask) {
  if constexpr (sizeof(T) < 4) {
    PackWord<4>::type word = 0;
    memcpy(&word, &value, sizeof(T));
    word = __shfl_xor_sync(ALL_LANES, word, mask);
    memcpy(&value, &word, sizeof(T));
    return value;
  } else {
    return __shfl_xor_sync(ALL_LANES, value, mask);
  }
}

// The value that `lane` holds. All lanes of the warp take part.
template <class T>
LUMINAL_DEVICE T shuffle_from(T value, int lane) {
  if constexpr (sizeof(T) < 4) {
    PackWord<4>::type word = 0;
    memcpy(&word, &value, sizeof(T));
    word = __shfl_sync(ALL_LANES, word, lane);
    memcpy(&value, &word, sizeof(T));
    return value;
  } else {
    return __shfl_sync(ALL_LANES, value, lane);
  }
}

// Combines the values of each `Width` neighbouring lanes by the associative, commutative `combine(a, b)`; every lane
// gets the result, in one fixed order of combining. All lanes of the warp take part.
template <int Width = 32, class T, class Combine>
LUMINAL_DEVICE T warp_reduce(T value, Combine combine) {
#ifdef LUMINAL_WHOLE_REDUCTIONS  // on the host, in one step
  return luminal_warp_reduce<Width>(ALL_LANES, value, combine);
#else
#pragma unroll
  for (int distance = Width / 2; distance > 0; distance /= 2) value = combine(value, shuffle_xor(value, distance));
  return value;
#endif
}

template <int Width = 32, class T>
LUMINAL_DEVICE T warp_sum(T value) {
  return warp_reduce<Width>(value, [](T a, T b) { return static_cast<T>(a + b); });
}

template <int Width = 32, class T>
LUMINAL_DEVICE T warp_max(T value) {
  return warp_reduce<Width>(value, [](T a, T b) { return nan_max(a, b); });
}

template <int Width = 32, class T>
LUMINAL_DEVICE T warp_min(T value) {
  return warp_reduce<Width>(value, [](T a, T b) { return nan_min(a, b); });
}

// ---- tensor cores ----

// mma_m16n8k16_f16 or _bf16, chosen by the element type of a and b.
template <class T>
LUMINAL_DEVICE void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const float (&c)[4]) {
  static_assert(IsNarrowFloat<T>::value, "mma_m16n8k16 takes half or bf16");
  if constexpr (SameType<T, half>::value)
    mma_m16n8k16_f16(d, a, b, c);
  else
    mma_m16n8k16_bf16(d, a, b, c);
}

// Two floats rounded to T and packed in one register, `low` in the low half: an element pair of an mma fragment.
template <class T>
LUMINAL_DEVICE unsigned pack_pair(float low, float high) {
  Pack<T, 2> pair;
  pair[0] = convert<T>(low);
  pair[1] = convert<T>(high);
  unsigned word;
  memcpy(&word, &pair, sizeof(word));
  return word;
}

#endif  // LUMINAL_PRELUDE
