// Tensor-core instructions and asynchronous copies: the host bodies of the prelude's helpers.
#pragma once

extern "C" {
void luminal_mma_f16(float* d, const unsigned* a, const unsigned* b, const float* c, int line);
void luminal_mma_bf16(float* d, const unsigned* a, const unsigned* b, const float* c, int line);
void luminal_ldmatrix(unsigned* r, const void* row, int matrices, bool transposed, int line);
void luminal_cp_async(void* shared, const void* global, int bytes, int valid, int line);
void luminal_cp_async_commit();
void luminal_cp_async_wait(int groups);
}

inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const float (&c)[4],
                             LUMINAL_LINE) {
  luminal_mma_f16(d, a, b, c, line);
}
inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const float (&c)[4],
                              LUMINAL_LINE) {
  luminal_mma_bf16(d, a, b, c, line);
}
inline void ldmatrix_x4(unsigned (&r)[4], const void* row, LUMINAL_LINE) { luminal_ldmatrix(r, row, 4, false, line); }
inline void ldmatrix_x4_trans(unsigned (&r)[4], const void* row, LUMINAL_LINE) {
  luminal_ldmatrix(r, row, 4, true, line);
}
inline void ldmatrix_x2(unsigned (&r)[2], const void* row, LUMINAL_LINE) { luminal_ldmatrix(r, row, 2, false, line); }
inline void ldmatrix_x2_trans(unsigned (&r)[2], const void* row, LUMINAL_LINE) {
  luminal_ldmatrix(r, row, 2, true, line);
}
inline void cp_async_16(void* shared, const void* global, int valid = 16, LUMINAL_LINE) {
  luminal_cp_async(shared, global, 16, valid, line);
}
inline void cp_async_commit() { luminal_cp_async_commit(); }
template <int N>
inline void cp_async_wait() {
  luminal_cp_async_wait(N);
}
