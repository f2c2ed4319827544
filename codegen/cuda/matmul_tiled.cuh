// ---- tiled matrix product --------------------------------------------------------------------------------------------
//
// Every block computes one TileM x TileN tile of out[batch, m, n] = store(sum over k of load_a * load_b), every thread
// PerM x PerN elements of it. Slices of TileK terms are fetched into registers while the slice before is multiplied out
// of shared memory, which holds two, so one barrier a slice is enough.
//
// load_a(batch, m, k) and load_b(batch, n, k) read a Pack of neighbours, along k if FastK, else along m or n; all of a Pack is
// inside the operand if its first element is. store(batch, m, n, sums) finishes WidthEnd neighbours along n.

template <class Acc, int Tile, int TileK, int Threads, bool FastK, int Width>
struct TileSide {
  static constexpr int lanes = 16 / sizeof(Acc);  // elements of a 16-byte access
  static constexpr int pitch = Tile + lanes;
  static constexpr int line = FastK ? TileK : Tile;
  static constexpr int packs = Tile * TileK / Width;
  static constexpr int fetches = (packs + Threads - 1) / Threads;
  Pack<Acc, Width> fetched[fetches];

  static LUMINAL_DEVICE bool exists(int pack) { return packs % Threads == 0 || pack < packs; }

  // Fetches this thread's part of the slice that begins at k0, zeros where it ends.
  template <class Load>
  LUMINAL_DEVICE void fetch(Load load, Index batch, Index first, Index count, Index k0, Index k_count) {
#pragma unroll
    for (int i = 0; i < fetches; ++i) {
      const int pack = i * Threads + threadIdx.x;
      const int along = pack % (line / Width) * Width;
      const int across = pack / (line / Width);
      const Index at = first + (FastK ? across : along);
      const Index k = k0 + (FastK ? along : across);
      if (at < count && k < k_count && exists(pack)) {
        fetched[i] = load(batch, at, k);
      } else {
#pragma unroll
        for (int w = 0; w < Width; ++w) fetched[i][w] = Acc(0);
      }
    }
  }

  LUMINAL_DEVICE void put(Acc* slice) const {
#pragma unroll
    for (int i = 0; i < fetches; ++i) {
      const int pack = i * Threads + threadIdx.x;
      const int along = pack % (line / Width) * Width;
      const int across = pack / (line / Width);
      if (exists(pack)) {
        if constexpr (FastK) {
#pragma unroll
          for (int w = 0; w < Width; ++w) slice[(along + w) * pitch + across] = fetched[i][w];
        } else {
          store_pack<Width>(slice + across * pitch + along, fetched[i]);
        }
      }
    }
  }
};

// The place of a thread's element number i along one side of the tile: packs of 16 bytes, dealt to the threads in turn.
template <int Lanes, int Per, int Dealt>
LUMINAL_DEVICE int tile_place(int thread, int i) {
  constexpr int pack = Per < Lanes ? Per : Lanes;
  return (i / pack * Dealt + thread) * pack + i % pack;
}

// Reads a thread's elements of one k from a slice.
template <class Acc, int Per, int Dealt>
LUMINAL_DEVICE void read_fragment(Acc (&fragment)[Per], const Acc* line, int thread) {
  constexpr int lanes = 16 / sizeof(Acc);
  constexpr int pack = Per < lanes ? Per : lanes;
  static_assert(Per % pack == 0, "a thread's elements are whole packs");
#pragma unroll
  for (int i = 0; i < Per; i += pack) {
    const Pack<Acc, pack> values = load_pack<pack>(line + tile_place<lanes, Per, Dealt>(thread, i));
#pragma unroll
    for (int j = 0; j < pack; ++j) fragment[i + j] = values[j];
  }
}

// LongK adds up runs of 512 terms separately, which keeps long float sums accurate.
template <class Acc, int TileM, int TileN, int TileK, int PerM, int PerN, bool FastKA, int WidthA, bool FastKB, int WidthB,
          int WidthEnd, bool LongK, class LoadA, class LoadB, class Store>
LUMINAL_DEVICE void tiled_matmul(Index m_count, Index n_count, Index k_count, LoadA load_a, LoadB load_b, Store store) {
  constexpr int across = TileN / PerN;
  constexpr int down = TileM / PerM;
  constexpr int threads = across * down;
  using SideA = TileSide<Acc, TileM, TileK, threads, FastKA, WidthA>;
  using SideB = TileSide<Acc, TileN, TileK, threads, FastKB, WidthB>;
  __shared__ __align__(16) Acc a_slices[2][TileK * SideA::pitch];
  __shared__ __align__(16) Acc b_slices[2][TileK * SideB::pitch];

  const UIndex n_tiles = (n_count + TileN - 1) / TileN;
  const UIndex m_tiles = (m_count + TileM - 1) / TileM;
  const UIndex tile = blockIdx.x;
  const Index n0 = tile % n_tiles * TileN;
  const Index m0 = tile / n_tiles % m_tiles * TileM;
  const Index batch = tile / n_tiles / m_tiles;
  const int thread_n = threadIdx.x % across;
  const int thread_m = threadIdx.x / across;

  SideA a_side;
  SideB b_side;
  Acc sums[PerM][PerN];
  Acc totals[LongK ? PerM : 1][LongK ? PerN : 1];
#pragma unroll
  for (int i = 0; i < PerM; ++i) {
#pragma unroll
    for (int j = 0; j < PerN; ++j) {
      sums[i][j] = Acc(0);
      if constexpr (LongK) totals[i][j] = Acc(0);
    }
  }

  a_side.fetch(load_a, batch, m0, m_count, 0, k_count);
  b_side.fetch(load_b, batch, n0, n_count, 0, k_count);
  int buffer = 0;
  for (Index k0 = 0; k0 < k_count; k0 += TileK) {
    a_side.put(a_slices[buffer]);
    b_side.put(b_slices[buffer]);
    __syncthreads();
    if (k0 + TileK < k_count) {
      a_side.fetch(load_a, batch, m0, m_count, k0 + TileK, k_count);
      b_side.fetch(load_b, batch, n0, n_count, k0 + TileK, k_count);
    }
#pragma unroll
    for (int k = 0; k < TileK; ++k) {
      Acc a[PerM], b[PerN];
      read_fragment<Acc, PerM, down>(a, a_slices[buffer] + k * SideA::pitch, thread_m);
      read_fragment<Acc, PerN, across>(b, b_slices[buffer] + k * SideB::pitch, thread_n);
#pragma unroll
      for (int i = 0; i < PerM; ++i) {
#pragma unroll
        for (int j = 0; j < PerN; ++j) sums[i][j] = static_cast<Acc>(sums[i][j] + a[i] * b[j]);
      }
    }
    buffer ^= 1;
    if constexpr (LongK) {
      if ((k0 / TileK + 1) % (512 / TileK) == 0) {
#pragma unroll
        for (int i = 0; i < PerM; ++i) {
#pragma unroll
          for (int j = 0; j < PerN; ++j) {
            totals[i][j] += sums[i][j];
            sums[i][j] = Acc(0);
          }
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < PerM; ++i) {
    const Index m = m0 + tile_place<SideA::lanes, PerM, down>(thread_m, i);
#pragma unroll
    for (int j = 0; j < PerN; j += WidthEnd) {
      const Index n = n0 + tile_place<SideB::lanes, PerN, across>(thread_n, j);
      if constexpr (LongK) {
#pragma unroll
        for (int w = 0; w < WidthEnd; ++w) sums[i][j + w] += totals[i][j + w];
      }
      if (m < m_count && n < n_count) store(batch, m, n, &sums[i][j]);
    }
  }
}
