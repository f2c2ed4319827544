// One head of softmax(Q K^T scale) V, head size 64, 64 queries a block: cp.async, ldmatrix and mma
constexpr int PITCH = 72;

LUMINAL_DEVICE void load_tile(half* tile, const half* source) {
  for (int i = threadIdx.x; i < 64 * 8; i += 128)
    cp_async_16(tile + i / 8 * PITCH + i % 8 * 8, source + i / 8 * 64 + i % 8 * 8);
}

extern "C" __global__ void __launch_bounds__(128)
    attention(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v, float* __restrict__ o,
              int keys, float scale) {
  half* tile_q = dynamic_shared<half>();
  half* tile_k = tile_q + 64 * PITCH;
  half* tile_v = tile_k + 64 * PITCH;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q0 = blockIdx.x * 64;
  load_tile(tile_q, q + q0 * 64);
  float out[8][4] = {}, highest[2] = {-1e30f, -1e30f}, total[2] = {0.0f, 0.0f};
  for (int k0 = 0; k0 < keys; k0 += 64) {
    load_tile(tile_k, k + k0 * 64);
    load_tile(tile_v, v + k0 * 64);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    float score[8][4] = {};
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
      unsigned a[4];
      ldmatrix_x4(a, tile_q + (warp * 16 + lane % 16) * PITCH + kk * 16 + lane / 16 * 8);
#pragma unroll
      for (int n = 0; n < 8; n++) {
        const half* p = tile_k + (n * 8 + lane / 4) * PITCH + kk * 16 + lane % 4 * 2;
        unsigned b[2] = {*reinterpret_cast<const unsigned*>(p), *reinterpret_cast<const unsigned*>(p + 8)};
        mma_m16n8k16<half>(score[n], a, b, score[n]);
      }
    }
    float top[2] = {highest[0], highest[1]}, sum[2] = {0.0f, 0.0f}, shrink[2];
    for (int n = 0; n < 8; n++)
      for (int i = 0; i < 4; i++) {
        score[n][i] *= scale;
        top[i / 2] = fmaxf(top[i / 2], score[n][i]);
      }
    for (int r = 0; r < 2; r++) {
      top[r] = warp_max<4>(top[r]);
      shrink[r] = expf(highest[r] - top[r]);
      highest[r] = top[r];
    }
    for (int n = 0; n < 8; n++)
      for (int i = 0; i < 4; i++) {
        score[n][i] = expf(score[n][i] - highest[i / 2]);
        sum[i / 2] += score[n][i];
        out[n][i] *= shrink[i / 2];
      }
    for (int r = 0; r < 2; r++) total[r] = total[r] * shrink[r] + sum[r];
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
      const float* low = score[2 * kk];
      const float* high = score[2 * kk + 1];
      unsigned a[4] = {pack_pair<half>(low[0], low[1]), pack_pair<half>(low[2], low[3]),
                       pack_pair<half>(high[0], high[1]), pack_pair<half>(high[2], high[3])};
#pragma unroll
      for (int n = 0; n < 8; n++) {
        unsigned b[2];
        ldmatrix_x2_trans(b, tile_v + (kk * 16 + lane % 16) * PITCH + n * 8);
        mma_m16n8k16<half>(out[n], a, b, out[n]);
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < 2; r++) {
    total[r] = warp_sum<4>(total[r]);
    for (int n = 0; n < 8; n++) {
      Pack<float, 2> pair;
      for (int i = 0; i < 2; i++) pair[i] = out[n][2 * r + i] / total[r];
      store_pack(o + (q0 + warp * 16 + lane / 4 + r * 8) * 64 + n * 8 + lane % 4 * 2, pair);
    }
  }
}
LUMINAL_EXPORT(attention)
