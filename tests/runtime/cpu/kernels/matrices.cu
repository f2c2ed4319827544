// What one warp reads with each ldmatrix and computes with each mma, from dense matrices; for tests of the layouts
template <class T>
LUMINAL_DEVICE void multiply(const T* a, const T* b, float* d) {  // d[16][8] += a[16][16] b[16][8]
  int group = threadIdx.x / 4, column = threadIdx.x % 4 * 2;
  unsigned fragment_a[4], fragment_b[2];
  for (int i = 0; i < 4; i++)
    fragment_a[i] = pack_pair<T>(widen(a[(group + i % 2 * 8) * 16 + column + i / 2 * 8]),
                                 widen(a[(group + i % 2 * 8) * 16 + column + i / 2 * 8 + 1]));
  for (int i = 0; i < 2; i++)
    fragment_b[i] = pack_pair<T>(widen(b[(column + i * 8) * 8 + group]), widen(b[(column + i * 8 + 1) * 8 + group]));
  float sum[4];
  for (int i = 0; i < 4; i++) sum[i] = d[(group + i / 2 * 8) * 8 + column + i % 2];
  mma_m16n8k16<T>(sum, fragment_a, fragment_b, sum);
  for (int i = 0; i < 4; i++) d[(group + i / 2 * 8) * 8 + column + i % 2] = sum[i];
}

extern "C" __global__ void matrices(const half* a16, const half* b16, float* d16, const bf16* abf, const bf16* bbf,
                                    float* dbf, const uint16_t* tile, unsigned* loaded) {
  multiply(a16, b16, d16);
  multiply(abf, bbf, dbf);
  __shared__ __align__(16) uint16_t rows[32][8];
  int lane = threadIdx.x;
  for (int i = 0; i < 8; i++) rows[lane][i] = tile[lane * 8 + i];
  __syncwarp();
  unsigned x4[4], x4_trans[4], x2[2], x2_trans[2];
  ldmatrix_x4(x4, rows[lane]);
  ldmatrix_x4_trans(x4_trans, rows[lane]);
  ldmatrix_x2(x2, rows[lane % 16]);
  ldmatrix_x2_trans(x2_trans, rows[lane % 16]);
  for (int j = 0; j < 4; j++) {
    loaded[lane * 12 + j] = x4[j];
    loaded[lane * 12 + 4 + j] = x4_trans[j];
  }
  for (int j = 0; j < 2; j++) {
    loaded[lane * 12 + 8 + j] = x2[j];
    loaded[lane * 12 + 10 + j] = x2_trans[j];
  }
}
LUMINAL_EXPORT(matrices)
