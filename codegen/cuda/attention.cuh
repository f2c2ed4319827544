// ---- attention on tensor cores ---------------------------------------------------------------------------------------
//
// softmax(f(q k)) v in one pass over keys and values: a block has Warps x 16 queries, a warp 16 of them, and goes through
// the keys TileN at a time. Of a query's logits it remembers the greatest so far, the sum of exponentials relative to that,
// and the sums of values weighted by them; when a greater logit comes, both sums are scaled down.
//
// Keys and values of the next tile are on their way while this one's are multiplied. Factors are MmaSides: queries are
// the first factor of q k (m, k); keys its second (n, k); values the second of p v, where columns are d and terms are n.
// The scores stay in registers: what mma leaves of p, rounded to T, are just the fragments of the next first factor.
//
// A query whose logits are all -inf gets NaN, as 0 / 0 does; so does one with a logit of +inf or NaN.

constexpr float LOG2_E = 1.4426950408889634f;

template <class T, int Warps, int TileN, int TileK, int TileD, bool FastKQ, int WidthQ, bool DirectQ, bool FastKK,
          int WidthK, bool DirectK, bool FastKV, int WidthV, bool DirectV, int WidthEnd, class LoadQ, class LoadK,
          class LoadV, class Logit, class Store>
LUMINAL_DEVICE void flash_attention(Index m_count, Index n_count, Index k_count, Index d_count, LoadQ load_q, LoadK load_k,
                                    LoadV load_v, Logit logit, Store store) {
  constexpr int threads = 32 * Warps;
  constexpr int tile_m = 16 * Warps;
  static_assert(TileN % 16 == 0 && TileK % 16 == 0 && TileD % 16 == 0, "warps work on whole fragments");
  using SideQ = MmaSide<T, tile_m, TileK, threads, FastKQ, WidthQ, DirectQ>;
  using SideK = MmaSide<T, TileN, TileK, threads, FastKK, WidthK, DirectK>;
  using SideV = MmaSide<T, TileD, TileN, threads, FastKV, WidthV, DirectV>;
  constexpr int slice_elements = SideK::elements + SideV::elements;
  constexpr int sums_pitch = TileD + 8;
  T* const queries = dynamic_shared<T>();  // then two slices of keys and values; later 16 rows of sums for each warp
  T* const slices = queries + SideQ::elements;

  const UIndex m_tiles = (m_count + tile_m - 1) / tile_m;
  const Index m0 = blockIdx.x % m_tiles * tile_m;
  const Index batch = blockIdx.x / m_tiles;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const Index own_m = m0 + 16 * warp + lane / 4;  // and 8 further on

  // Two groups of copies for each tile: its keys, its values.
  auto copy = [&](Index n0, int stage) {
    T* const keys = slices + stage * slice_elements;
    T* const values = keys + SideK::elements;
    if (n0 < n_count) {
      if constexpr (DirectK) {
        SideK::copy(keys, load_k, batch, n0, n_count, 0, k_count);
      } else {
        SideK side;
        side.fetch(load_k, batch, n0, n_count, 0, k_count);
        side.put(keys);
      }
    }
    cp_async_commit();
    if (n0 < n_count) {
      if constexpr (DirectV) {
        SideV::copy(values, load_v, batch, 0, d_count, n0, n_count);
      } else {
        SideV side;
        side.fetch(load_v, batch, 0, d_count, n0, n_count);
        side.put(values);
      }
    }
    cp_async_commit();
  };

  if constexpr (DirectQ) {
    SideQ::copy(queries, load_q, batch, m0, m_count, 0, k_count);
  } else {
    SideQ side;
    side.fetch(load_q, batch, m0, m_count, 0, k_count);
    side.put(queries);
  }
  copy(0, 0);

  unsigned q[TileK / 16][4];
  float sums[TileD / 8][4];
  float top[2] = {-infinity(), -infinity()};
  float total[2] = {0.0f, 0.0f};  // of this lane's columns
#pragma unroll
  for (int j = 0; j < TileD / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[j][e] = 0.0f;
  }

  int stage = 0;
  for (Index n0 = 0; n0 < n_count; n0 += TileN) {
    const T* const keys = slices + stage * slice_elements;
    const T* const values = keys + SideK::elements;
    cp_async_wait<1>();
    __syncthreads();  // the keys are there, and nobody needs the other slice any more
    copy(n0 + TileN, 1 - stage);
    if (n0 == 0) {
#pragma unroll
      for (int k = 0; k < TileK / 16; ++k) SideQ::read_a(q[k], queries, 16 * warp, 16 * k);
    }

    float scores[TileN / 8][4];
#pragma unroll
    for (int j = 0; j < TileN / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[j][e] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < TileK / 16; ++k) {
#pragma unroll
      for (int j = 0; j < TileN / 16; ++j) {
        unsigned both[4];
        SideK::read_b(both, keys, 16 * j, 16 * k);
        const unsigned left[2] = {both[0], both[1]};
        const unsigned right[2] = {both[2], both[3]};
        mma_m16n8k16<T>(scores[2 * j], q[k], left, scores[2 * j]);
        mma_m16n8k16<T>(scores[2 * j + 1], q[k], right, scores[2 * j + 1]);
      }
    }

    float peak[2] = {top[0], top[1]};
#pragma unroll
    for (int j = 0; j < TileN / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Index m = own_m + e / 2 * 8;
        const Index n = n0 + 8 * j + lane % 4 * 2 + e % 2;
        scores[j][e] = m < m_count && n < n_count ? logit(batch, m, n, scores[j][e]) : -infinity();
        peak[e / 2] = fmaxf(peak[e / 2], scores[j][e]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      peak[half] = warp_reduce<4>(peak[half], [](float a, float b) { return fmaxf(a, b); });
      const float zero = peak[half] == -infinity() ? 0.0f : peak[half];  // no difference of infinities before the end
      const float shrink = exp2f((top[half] - zero) * LOG2_E);
      top[half] = peak[half];
      total[half] *= shrink;
#pragma unroll
      for (int j = 0; j < TileD / 8; ++j) {
        sums[j][2 * half] *= shrink;
        sums[j][2 * half + 1] *= shrink;
      }
#pragma unroll
      for (int j = 0; j < TileN / 8; ++j) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[j][e] = exp2f((scores[j][e] - zero) * LOG2_E);
          total[half] += scores[j][e];
        }
      }
    }

    cp_async_wait<2>();
    __syncthreads();  // the values are there
#pragma unroll
    for (int k = 0; k < TileN / 16; ++k) {
      const unsigned p[4] = {
          pack_pair<T>(scores[2 * k][0], scores[2 * k][1]), pack_pair<T>(scores[2 * k][2], scores[2 * k][3]),
          pack_pair<T>(scores[2 * k + 1][0], scores[2 * k + 1][1]), pack_pair<T>(scores[2 * k + 1][2], scores[2 * k + 1][3])};
#pragma unroll
      for (int j = 0; j < TileD / 16; ++j) {
        unsigned both[4];
        SideV::read_b(both, values, 16 * j, 16 * k);
        const unsigned left[2] = {both[0], both[1]};
        const unsigned right[2] = {both[2], both[3]};
        mma_m16n8k16<T>(sums[2 * j], p, left, sums[2 * j]);
        mma_m16n8k16<T>(sums[2 * j + 1], p, right, sums[2 * j + 1]);
      }
    }
    stage = 1 - stage;
  }

  cp_async_wait<0>();
  __syncthreads();  // everything else makes room for the sums
  float* const own = dynamic_shared<float>() + warp * 16 * sums_pitch;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float whole = warp_sum<4>(total[half]);
    const float inverse = n_count > 0 ? 1.0f / whole : 1.0f;  // a sum over nothing is zero
#pragma unroll
    for (int j = 0; j < TileD / 8; ++j) {
      float* const place = own + (lane / 4 + 8 * half) * sums_pitch + 8 * j + lane % 4 * 2;
      place[0] = sums[j][2 * half] * inverse;
      place[1] = sums[j][2 * half + 1] * inverse;
    }
  }
  __syncwarp();
#pragma unroll
  for (int piece = lane; piece < 16 * TileD / WidthEnd; piece += 32) {
    const int row = piece / (TileD / WidthEnd);
    const int column = piece % (TileD / WidthEnd) * WidthEnd;
    const Index m = m0 + 16 * warp + row;
    if (m < m_count && column < d_count) store(batch, m, column, own + row * sums_pitch + column);
  }
}
