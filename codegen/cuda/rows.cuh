// ---- row programs ----------------------------------------------------------------------------------------------------
//
// A row program computes every row of a table from that row alone: reductions over its columns, values made from them, and
// again values of every element. A row belongs to a group of threads: one thread, one warp or one block. Every thread
// of the group visits its share of the columns, and `combine` gives all of them the reduction of the whole row, in an
// order that depends on nothing but the number of columns.

struct Add {
  template <class T>
  LUMINAL_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};

struct Multiply {
  template <class T>
  LUMINAL_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(a * b);
  }
};

struct Maximum {
  template <class T>
  LUMINAL_DEVICE T operator()(T a, T b) const {
    return nan_max(a, b);
  }
};

struct Minimum {
  template <class T>
  LUMINAL_DEVICE T operator()(T a, T b) const {
    return nan_min(a, b);
  }
};

// One thread's running reduction.
template <class T, class Combine>
struct Running {
  T value;
  LUMINAL_DEVICE explicit Running(T identity) : value(identity) {}
  LUMINAL_DEVICE void take(T x) { value = Combine()(value, x); }
  LUMINAL_DEVICE T result() const { return value; }
};

// A running sum of very many floats: sums of `Length` terms are added up separately, so rounding errors grow with the
// square root of the number of terms and infinities stay infinities.
template <class T, int Length = 512>
struct LongSum {
  T total, partial;
  int left;
  LUMINAL_DEVICE explicit LongSum(T zero) : total(zero), partial(zero), left(Length) {}
  LUMINAL_DEVICE void take(T x) {
    partial += x;
    if (--left == 0) {
      total += partial;
      partial = T(0);
      left = Length;
    }
  }
  LUMINAL_DEVICE T result() const { return total + partial; }
};

// A row for every thread.
template <int Threads>
struct ThreadRow {
  static constexpr int size = 1;
  static LUMINAL_DEVICE UIndex row() { return UIndex(blockIdx.x) * Threads + threadIdx.x; }
  static LUMINAL_DEVICE int rank() { return 0; }
  template <class T, class Combine>
  static LUMINAL_DEVICE T combine(T value, Combine, T*) {
    return value;
  }
};

// A row for every warp of the block.
template <int Threads>
struct WarpRow {
  static constexpr int size = 32;
  static LUMINAL_DEVICE UIndex row() { return UIndex(blockIdx.x) * (Threads / 32) + threadIdx.x / 32; }
  static LUMINAL_DEVICE int rank() { return threadIdx.x % 32; }
  template <class T, class Combine>
  static LUMINAL_DEVICE T combine(T value, Combine combine, T*) {
    return warp_reduce(value, combine);
  }
};

// A row for every block. `Threads` is a power of two times 32; `partials` has room for a value of each warp.
template <int Threads>
struct BlockRow {
  static constexpr int size = Threads;
  static LUMINAL_DEVICE UIndex row() { return blockIdx.x; }
  static LUMINAL_DEVICE int rank() { return threadIdx.x; }
  template <class T, class Combine>
  static LUMINAL_DEVICE T combine(T value, Combine combine, T* partials) {
    constexpr int warps = Threads / 32;
    value = warp_reduce(value, combine);
    if constexpr (warps > 1) {
      __syncthreads();  // an earlier reduction may still be reading
      if (threadIdx.x % 32 == 0) partials[threadIdx.x / 32] = value;
      __syncthreads();
      value = warp_reduce<warps>(partials[threadIdx.x % warps], combine);
    }
    return value;
  }
};

// 32 neighbouring rows for every block: each warp takes its share of the columns of all of them, a lane for a row.
// `partials` has room for a value of each thread.
template <int Threads>
struct SliceRow {
  static constexpr int size = Threads / 32;
  static LUMINAL_DEVICE UIndex row() { return UIndex(blockIdx.x) * 32 + threadIdx.x % 32; }
  static LUMINAL_DEVICE int rank() { return threadIdx.x / 32; }
  template <class T, class Combine>
  static LUMINAL_DEVICE T combine(T value, Combine combine, T* partials) {
    __syncthreads();  // an earlier reduction may still be reading
    partials[threadIdx.x] = value;
    __syncthreads();
    value = partials[threadIdx.x % 32];
#pragma unroll
    for (int slice = 1; slice < size; ++slice) value = combine(value, partials[32 * slice + threadIdx.x % 32]);
    return value;
  }
};
