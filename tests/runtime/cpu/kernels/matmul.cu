// C = A B in float32: 64x64 tiles, 256 threads, 4x4 outputs each; all extents divide
extern "C" __global__ void __launch_bounds__(256)
    matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  __shared__ float tile_a[16][64];
  __shared__ __align__(16) float tile_b[16][64];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    {
      int row = threadIdx.x / 4, column = threadIdx.x % 4 * 4;
      Pack<float, 4> v = load_pack<4>(a + (row0 + row) * k + k0 + column);
      for (int i = 0; i < 4; i++) tile_a[column + i][row] = v[i];
    }
    {
      int row = threadIdx.x / 16, column = threadIdx.x % 16 * 4;
      store_pack(&tile_b[row][column], load_pack<4>(b + (k0 + row) * n + column0 + column));
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 16; kk++) {
      float va[4], vb[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        va[i] = tile_a[kk][ty * 4 + i];
        vb[i] = tile_b[kk][tx * 4 + i];
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = fmaf(va[i], vb[j], sum[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    Pack<float, 4> v;
    for (int j = 0; j < 4; j++) v[j] = sum[i][j];
    store_pack(c + (row0 + ty * 4 + i) * n + column0 + tx * 4, v);
  }
}
LUMINAL_EXPORT(matmul)
