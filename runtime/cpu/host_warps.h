// Warp collectives: the last lane to arrive runs one function over the requests of all lanes.
#pragma once

extern "C" {
// `requests` has 32 entries, those in `lanes` are set.
typedef void (*LuminalCollective)(void** requests, unsigned lanes);

// Waits until all lanes of `mask` have come with the same function and line, and runs `collective` (if any) once.
// `fence`: memory accesses before it are ordered before those after it.
void luminal_warp_collective(unsigned mask, LuminalCollective collective, void* request, int line, bool fence);
unsigned luminal_lane();
void luminal_run_shuffle(void** requests, unsigned lanes);
void luminal_run_ballot(void** requests, unsigned lanes);
}

struct LuminalShuffle {
  uint64_t value;
  uint64_t result;
  int source;  // a lane, or -1: keep the own value
};

struct LuminalBallot {
  bool predicate;
  unsigned result;
};

inline void __syncwarp(unsigned mask = 0xffffffffu, LUMINAL_LINE) {
  luminal_warp_collective(mask, nullptr, nullptr, line, true);
}

template <class T>
inline T luminal_shuffle(unsigned mask, T value, int source, int line) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "shuffles move at most 8 bytes");
  LuminalShuffle request{0, 0, source};
  memcpy(&request.value, &value, sizeof(T));
  luminal_warp_collective(mask, luminal_run_shuffle, &request, line, false);
  T result;
  memcpy(static_cast<void*>(&result), &request.result, sizeof(T));
  return result;
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, LUMINAL_LINE) {
  int first = luminal_lane() & ~(width - 1);
  return luminal_shuffle(mask, value, first | (source & (width - 1)), line);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, LUMINAL_LINE) {
  int lane = luminal_lane();
  bool inside = (lane & (width - 1)) + static_cast<int>(delta) < width;
  return luminal_shuffle(mask, value, inside ? lane + static_cast<int>(delta) : -1, line);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, LUMINAL_LINE) {
  int lane = luminal_lane();
  bool inside = (lane & (width - 1)) >= static_cast<int>(delta);
  return luminal_shuffle(mask, value, inside ? lane - static_cast<int>(delta) : -1, line);
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, LUMINAL_LINE) {
  int lane = luminal_lane();
  int source = lane ^ lane_mask;
  bool inside = (source & ~(width - 1)) <= (lane & ~(width - 1));
  return luminal_shuffle(mask, value, inside ? source : -1, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, LUMINAL_LINE) {
  LuminalBallot request{predicate != 0, 0};
  luminal_warp_collective(mask, luminal_run_ballot, &request, line, false);
  return request.result;
}

inline int __any_sync(unsigned mask, int predicate, LUMINAL_LINE) { return __ballot_sync(mask, predicate, line) != 0; }
inline int __all_sync(unsigned mask, int predicate, LUMINAL_LINE) { return __ballot_sync(mask, !predicate, line) == 0; }

#ifndef __SANITIZE_THREAD__  // the checker shall see every shuffle
#define LUMINAL_WHOLE_REDUCTIONS
#endif

// A whole butterfly of shuffles: `combine(own, that of the lane so far away)` for each distance from Width / 2 down to 1.
// The lanes wait once for all of it and not once for each distance.
template <int Width, class T, class Combine>
struct LuminalReduction {
  T value;
  const Combine* combine;

  static void run(void** requests, unsigned lanes) {
    T values[32], combined[32];
    memset(static_cast<void*>(values), 0x7f, sizeof values);  // lanes that are not there
    const Combine* combine = nullptr;
    for (int lane = 0; lane < 32; lane++) {
      if (!(lanes >> lane & 1)) continue;
      auto* request = static_cast<LuminalReduction*>(requests[lane]);
      values[lane] = request->value;
      combine = request->combine;
    }
    for (int distance = Width / 2; distance > 0; distance /= 2) {
      for (int lane = 0; lane < 32; lane++) combined[lane] = (*combine)(values[lane], values[lane ^ distance]);
      memcpy(static_cast<void*>(values), combined, sizeof values);
    }
    for (int lane = 0; lane < 32; lane++) {
      if (lanes >> lane & 1) static_cast<LuminalReduction*>(requests[lane])->value = values[lane];
    }
  }
};

template <int Width, class T, class Combine>
inline T luminal_warp_reduce(unsigned mask, T value, const Combine& combine, LUMINAL_LINE) {
  using Reduction = LuminalReduction<Width, T, Combine>;
  Reduction request{value, &combine};
  luminal_warp_collective(mask, Reduction::run, &request, line, false);
  return request.value;
}
