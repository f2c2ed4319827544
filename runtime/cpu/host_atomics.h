// Atomic read-modify-writes, as loops over compare-and-swap, which the runtime library provides and checks.
#pragma once

extern "C" {
uint16_t luminal_compare_and_swap_16(void* target, uint16_t expected, uint16_t desired);
uint32_t luminal_compare_and_swap_32(void* target, uint32_t expected, uint32_t desired);
uint64_t luminal_compare_and_swap_64(void* target, uint64_t expected, uint64_t desired);
}

inline uint16_t luminal_compare_and_swap(void* p, uint16_t e, uint16_t d) {
  return luminal_compare_and_swap_16(p, e, d);
}
inline uint32_t luminal_compare_and_swap(void* p, uint32_t e, uint32_t d) {
  return luminal_compare_and_swap_32(p, e, d);
}
inline uint64_t luminal_compare_and_swap(void* p, uint64_t e, uint64_t d) {
  return luminal_compare_and_swap_64(p, e, d);
}

template <int Bytes>
struct LuminalWord;
template <>
struct LuminalWord<2> {
  using type = uint16_t;
};
template <>
struct LuminalWord<4> {
  using type = uint32_t;
};
template <>
struct LuminalWord<8> {
  using type = uint64_t;
};

// Replaces *p by update(*p) and returns the old value.
template <class T, class Update>
inline T luminal_atomic(T* p, Update update) {
  using Word = typename LuminalWord<sizeof(T)>::type;
  Word seen = luminal_compare_and_swap(p, Word(0), Word(0));
  for (;;) {
    T old = luminal_bit_cast<T>(seen);
    Word found = luminal_compare_and_swap(p, seen, luminal_bit_cast<Word>(static_cast<T>(update(old))));
    if (found == seen) return old;
    seen = found;
  }
}

// The value's type follows from the pointer's, so that atomicAdd(&unsigned_counter, 1) works as in CUDA.
template <class T>
using LuminalSame = std::common_type_t<T>;

template <class T>
inline T atomicAdd(T* p, LuminalSame<T> v) {
  return luminal_atomic(p, [=](T old) { return old + v; });
}
template <class T>
inline T atomicMax(T* p, LuminalSame<T> v) {
  return luminal_atomic(p, [=](T old) { return old < v ? v : old; });
}
template <class T>
inline T atomicMin(T* p, LuminalSame<T> v) {
  return luminal_atomic(p, [=](T old) { return v < old ? v : old; });
}
template <class T>
inline T atomicAnd(T* p, LuminalSame<T> v) {
  return luminal_atomic(p, [=](T old) { return old & v; });
}
template <class T>
inline T atomicOr(T* p, LuminalSame<T> v) {
  return luminal_atomic(p, [=](T old) { return old | v; });
}
template <class T>
inline T atomicExch(T* p, LuminalSame<T> v) {
  return luminal_atomic(p, [=](T) { return v; });
}
template <class T>
inline T atomicCAS(T* p, LuminalSame<T> expected, LuminalSame<T> desired) {
  using Word = typename LuminalWord<sizeof(T)>::type;
  return luminal_bit_cast<T>(luminal_compare_and_swap(p, luminal_bit_cast<Word>(static_cast<T>(expected)),
                                                      luminal_bit_cast<Word>(static_cast<T>(desired))));
}
