// ---- matrix product on tensor cores ----------------------------------------------------------------------------------
//
// As the tiled product, for factors in T, half or bf16, and sums in float: every warp multiplies its part of the tile by
// mma.m16n8k16. A tile lies in shared memory the way it is fetched, lines along k or lines along m or n, and ldmatrix
// brings either into registers. Lines are 8 elements longer than needed, which keeps ldmatrix free of bank conflicts.
//
// Slices are on their way while others are multiplied. A side that is Direct, plain packs of 8 in memory, is copied
// asynchronously, Stages - 1 slices ahead; any other is fetched into registers one slice ahead.
//
// The sums pass through shared memory, a warp's 16 rows at a time, so that store gets neighbours along n.

// Where 8 neighbours of a Direct side lie; zeros are meant if they do not exist.
template <class T>
struct Source {
  const T* place;
  bool exists;
};

template <class T, int Tile, int TileK, int Threads, bool FastK, int Width, bool Direct>
struct MmaSide {
  static constexpr int line = FastK ? TileK : Tile;
  static constexpr int lines = FastK ? Tile : TileK;
  static constexpr int pitch = line + 8;
  static constexpr int elements = lines * pitch;
  static constexpr int packs = lines * line / 8;
  static constexpr int fetches = (packs + Threads - 1) / Threads;
  Pack<T, 8> fetched[Direct ? 1 : fetches];

  static LUMINAL_DEVICE bool exists(int pack) { return packs % Threads == 0 || pack < packs; }

  // Starts copying this thread's part of the slice that begins at k0, zeros where it ends.
  template <class Locate>
  static LUMINAL_DEVICE void copy(T* tile, Locate locate, Index batch, Index first, Index count, Index k0, Index k_count) {
#pragma unroll
    for (int i = 0; i < fetches; ++i) {
      const int pack = i * Threads + threadIdx.x;
      const int across = pack / (line / 8);
      const int along = pack % (line / 8) * 8;
      const Index at = first + (FastK ? across : along);
      const Index k = k0 + (FastK ? along : across);
      if (exists(pack)) {
        const bool inside = at < count && k < k_count;
        const Source<T> source = locate(batch, inside ? at : 0, inside ? k : 0);
        cp_async_16(tile + across * pitch + along, source.place, inside && source.exists ? 16 : 0);
      }
    }
  }

  // Fetches this thread's part of the slice that begins at k0, zeros where it ends.
  template <class Load>
  LUMINAL_DEVICE void fetch(Load load, Index batch, Index first, Index count, Index k0, Index k_count) {
#pragma unroll
    for (int i = 0; i < fetches; ++i) {
      const int pack = i * Threads + threadIdx.x;
      const int across = pack / (line / 8);
#pragma unroll
      for (int w = 0; w < 8; w += Width) {
        const int along = pack % (line / 8) * 8 + w;
        const Index at = first + (FastK ? across : along);
        const Index k = k0 + (FastK ? along : across);
        if (at < count && k < k_count && exists(pack)) {
          const Pack<T, Width> part = load(batch, at, k);
#pragma unroll
          for (int lane = 0; lane < Width; ++lane) fetched[i][w + lane] = part[lane];
        } else {
#pragma unroll
          for (int lane = 0; lane < Width; ++lane) fetched[i][w + lane] = convert<T>(0.0f);
        }
      }
    }
  }

  LUMINAL_DEVICE void put(T* tile) const {
#pragma unroll
    for (int i = 0; i < fetches; ++i) {
      const int pack = i * Threads + threadIdx.x;
      if (exists(pack)) store_pack<8>(tile + pack / (line / 8) * pitch + pack % (line / 8) * 8, fetched[i]);
    }
  }

  // The fragment of a 16 x 16 piece of the first factor at (m, k).
  static LUMINAL_DEVICE void read_a(unsigned (&fragment)[4], const T* tile, int m, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (FastK) {
      ldmatrix_x4(fragment, tile + (m + lane % 16) * pitch + k + lane / 16 * 8);
    } else {
      ldmatrix_x4_trans(fragment, tile + (k + lane / 16 * 8 + lane % 8) * pitch + m + lane / 8 % 2 * 8);
    }
  }

  // The fragments of two neighbouring 16 x 8 pieces of the second factor at (n, k), n first.
  static LUMINAL_DEVICE void read_b(unsigned (&fragments)[4], const T* tile, int n, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (FastK) {
      ldmatrix_x4(fragments, tile + (n + lane / 16 * 8 + lane % 8) * pitch + k + lane / 8 % 2 * 8);
    } else {
      ldmatrix_x4_trans(fragments, tile + (k + lane / 8 % 2 * 8 + lane % 8) * pitch + n + lane / 16 * 8);
    }
  }
};

template <class T, int TileM, int TileN, int TileK, int WarpsM, int WarpsN, int Stages, bool FastKA, int WidthA,
          bool DirectA, bool FastKB, int WidthB, bool DirectB, int WidthEnd, class LoadA, class LoadB, class Store>
LUMINAL_DEVICE void mma_matmul(Index m_count, Index n_count, Index k_count, LoadA load_a, LoadB load_b, Store store) {
  constexpr int threads = WarpsM * WarpsN * 32;
  constexpr int warp_m = TileM / WarpsM;
  constexpr int warp_n = TileN / WarpsN;
  static_assert(warp_m % 16 == 0 && warp_n % 16 == 0 && TileK % 16 == 0, "warps work on whole fragments");
  using SideA = MmaSide<T, TileM, TileK, threads, FastKA, WidthA, DirectA>;
  using SideB = MmaSide<T, TileN, TileK, threads, FastKB, WidthB, DirectB>;
  constexpr int slice_elements = SideA::elements + SideB::elements;
  constexpr int sums_pitch = warp_n + 8;
  T* const slices = dynamic_shared<T>();  // Stages slices; later 16 rows of sums for each warp

  const UIndex n_tiles = (n_count + TileN - 1) / TileN;
  const UIndex m_tiles = (m_count + TileM - 1) / TileM;
  const UIndex tile = blockIdx.x;
  const Index n0 = tile % n_tiles * TileN;
  const Index m0 = tile / n_tiles % m_tiles * TileM;
  const Index batch = tile / n_tiles / m_tiles;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int own_m = warp / WarpsN * warp_m;
  const int own_n = warp % WarpsN * warp_n;

  SideA a_side;
  SideB b_side;
  float sums[warp_m / 16][warp_n / 8][4];
#pragma unroll
  for (int i = 0; i < warp_m / 16; ++i) {
#pragma unroll
    for (int j = 0; j < warp_n / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][j][e] = 0.0f;
    }
  }

  auto copy = [&](Index k0, int stage) {
    T* const slice = slices + stage * slice_elements;
    if (k0 < k_count) {
      if constexpr (DirectA) SideA::copy(slice, load_a, batch, m0, m_count, k0, k_count);
      if constexpr (DirectB) SideB::copy(slice + SideA::elements, load_b, batch, n0, n_count, k0, k_count);
    }
    cp_async_commit();
  };
  auto fetch = [&](Index k0) {
    if constexpr (!DirectA) a_side.fetch(load_a, batch, m0, m_count, k0, k_count);
    if constexpr (!DirectB) b_side.fetch(load_b, batch, n0, n_count, k0, k_count);
  };

#pragma unroll
  for (int stage = 0; stage < Stages - 1; ++stage) copy(stage * TileK, stage);
  fetch(0);
  int stage = 0;
  for (Index k0 = 0; k0 < k_count; k0 += TileK) {
    T* const a_tile = slices + stage * slice_elements;
    T* const b_tile = a_tile + SideA::elements;
    if constexpr (!DirectA) a_side.put(a_tile);
    if constexpr (!DirectB) b_side.put(b_tile);
    cp_async_wait<Stages - 2>();
    __syncthreads();
    copy(k0 + (Stages - 1) * TileK, (stage + Stages - 1) % Stages);
    if (k0 + TileK < k_count) fetch(k0 + TileK);
#pragma unroll
    for (int k = 0; k < TileK; k += 16) {
      unsigned b[warp_n / 16][4];
#pragma unroll
      for (int j = 0; j < warp_n / 16; ++j) SideB::read_b(b[j], b_tile, own_n + 16 * j, k);
#pragma unroll
      for (int i = 0; i < warp_m / 16; ++i) {
        unsigned a[4];
        SideA::read_a(a, a_tile, own_m + 16 * i, k);
#pragma unroll
        for (int j = 0; j < warp_n / 16; ++j) {
          const unsigned left[2] = {b[j][0], b[j][1]};
          const unsigned right[2] = {b[j][2], b[j][3]};
          mma_m16n8k16<T>(sums[i][2 * j], a, left, sums[i][2 * j]);
          mma_m16n8k16<T>(sums[i][2 * j + 1], a, right, sums[i][2 * j + 1]);
        }
      }
    }
    stage = (stage + 1) % Stages;
  }

  cp_async_wait<0>();
  __syncthreads();  // the slices make room for the sums
  float* const own = dynamic_shared<float>() + warp * 16 * sums_pitch;
#pragma unroll
  for (int i = 0; i < warp_m / 16; ++i) {
    __syncwarp();
#pragma unroll
    for (int j = 0; j < warp_n / 8; ++j) {
      float* const place = own + lane / 4 * sums_pitch + 8 * j + lane % 4 * 2;
      place[0] = sums[i][j][0];
      place[1] = sums[i][j][1];
      place[8 * sums_pitch] = sums[i][j][2];
      place[8 * sums_pitch + 1] = sums[i][j][3];
    }
    __syncwarp();
#pragma unroll
    for (int piece = lane; piece < 16 * warp_n / WidthEnd; piece += 32) {
      const int row = piece / (warp_n / WidthEnd);
      const int column = piece % (warp_n / WidthEnd) * WidthEnd;
      const Index m = m0 + own_m + 16 * i + row;
      const Index n = n0 + own_n + column;
      if (m < m_count && n < n_count) store(batch, m, n, own + row * sums_pitch + column);
    }
  }
}
