// Tensor-core instructions, by the fragment layouts of the PTX manual. Products are exact, sums are in float, in order
// of k.
#include "checker.h"
#include "machine.h"

using namespace luminal;

namespace {

struct MmaRequest {
  float* d;
  const unsigned* a;
  const unsigned* b;
  const float* c;
};

float f16_bits_to_float(unsigned bits) { return half_to_float(__ushort_as_half(static_cast<unsigned short>(bits))); }
float bf16_bits_to_float(unsigned bits) { return luminal_bit_cast<float>((bits & 0xffffu) << 16); }

// Lane l = 4 * group + pair holds of a: rows group and group + 8, columns 2 pair, 2 pair + 1 and the same plus 8; of b:
// rows 2 pair, 2 pair + 1 and the same plus 8, column group; of c and d: rows group and group + 8, columns 2 pair, + 1.
template <float (*to_float)(unsigned)>
void run_mma(void** requests, unsigned) {
  float a[16][16], b[16][8], sum[16][8];
  for (int lane = 0; lane < LANES; lane++) {
    const auto* m = static_cast<MmaRequest*>(requests[lane]);
    int group = lane / 4, column = lane % 4 * 2;
    for (int half_word = 0; half_word < 2; half_word++) {
      for (int i = 0; i < 4; i++)
        a[group + i % 2 * 8][column + i / 2 * 8 + half_word] = to_float(m->a[i] >> (16 * half_word) & 0xffffu);
      for (int i = 0; i < 2; i++)
        b[column + i * 8 + half_word][group] = to_float(m->b[i] >> (16 * half_word) & 0xffffu);
    }
    for (int i = 0; i < 4; i++) sum[group + i / 2 * 8][column + i % 2] = m->c[i];
  }
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < 16; k++)
      for (int column = 0; column < 8; column++) sum[row][column] += a[row][k] * b[k][column];
  for (int lane = 0; lane < LANES; lane++) {
    const auto* m = static_cast<MmaRequest*>(requests[lane]);
    for (int i = 0; i < 4; i++) m->d[i] = sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

struct LdmatrixRequest {
  unsigned* r;
  const void* row;
  int matrices;
  bool transposed;
};

void run_ldmatrix(void** requests, unsigned) {
  const auto* first = static_cast<LdmatrixRequest*>(requests[0]);
  uint16_t matrix[4][8][8];
  for (int i = 0; i < first->matrices * 8; i++)
    memcpy(matrix[i / 8][i % 8], static_cast<LdmatrixRequest*>(requests[i])->row, sizeof matrix[0][0]);
  for (int lane = 0; lane < LANES; lane++) {
    int row = lane / 4, column = lane % 4 * 2;
    for (int j = 0; j < first->matrices; j++) {
      unsigned low = first->transposed ? matrix[j][column][row] : matrix[j][row][column];
      unsigned high = first->transposed ? matrix[j][column + 1][row] : matrix[j][row][column + 1];
      static_cast<LdmatrixRequest*>(requests[lane])->r[j] = low | high << 16;
    }
  }
}

}  // namespace

extern "C" void luminal_mma_f16(float* d, const unsigned* a, const unsigned* b, const float* c, int line) {
  MmaRequest request{d, a, b, c};
  luminal_warp_collective(~0u, run_mma<f16_bits_to_float>, &request, line, false);
}

extern "C" void luminal_mma_bf16(float* d, const unsigned* a, const unsigned* b, const float* c, int line) {
  MmaRequest request{d, a, b, c};
  luminal_warp_collective(~0u, run_mma<bf16_bits_to_float>, &request, line, false);
}

extern "C" void luminal_ldmatrix(unsigned* r, const void* row, int matrices, bool transposed, int line) {
  if (static_cast<int>(luminal_lane()) < matrices * 8) {
    if (reinterpret_cast<uintptr_t>(row) % 16)
      fault("misaligned ldmatrix: a row does not start at a multiple of 16 bytes, @line:%d@", line);
    check_access(row, 16, READ, __builtin_return_address(0));
  }
  LdmatrixRequest request{r, row, matrices, transposed};
  luminal_warp_collective(~0u, run_ldmatrix, &request, line, false);
}
