// Threads, blocks, barriers and dynamic shared memory.
#pragma once

// Where the running thread is. It belongs to the OS thread and is swapped when a fiber is.
struct LuminalPosition {
  uint3 thread;
  uint3 block;
  uint3 block_size;
  uint3 grid_size;
  // While no thread of the block has had to wait, threads 1, 2, ... of a row follow without asking the scheduler until
  // this x; 0 when the scheduler must be asked.
  unsigned plain_end;
};

extern __thread LuminalPosition luminal_position __attribute__((tls_model("initial-exec")));

#define threadIdx luminal_position.thread
#define blockIdx luminal_position.block
#define blockDim luminal_position.block_size
#define gridDim luminal_position.grid_size

constexpr int warpSize = 32;

extern "C" {
// Finishes the running thread of the block and moves on to the next one; false when none is left to start.
bool luminal_next_thread();
// Waits for all threads of the block; returns how many of them came with a true `vote`.
int luminal_block_barrier(bool vote, int line);
void* luminal_dynamic_shared();
}

inline void __syncthreads(LUMINAL_LINE) { luminal_block_barrier(false, line); }
inline int __syncthreads_count(int predicate, LUMINAL_LINE) { return luminal_block_barrier(predicate != 0, line); }
inline int __syncthreads_or(int predicate, LUMINAL_LINE) { return luminal_block_barrier(predicate != 0, line) != 0; }
inline int __syncthreads_and(int predicate, LUMINAL_LINE) { return luminal_block_barrier(predicate == 0, line) == 0; }

// Fibers of one OS thread need no fences, and blocks may not talk to each other.
inline void __threadfence() {}
inline void __threadfence_block() {}

// One kernel runs at a time.
inline void wait_for_inputs() {}
inline void let_next_start() {}

template <class T>
inline T* dynamic_shared() {
  return static_cast<T*>(luminal_dynamic_shared());
}
