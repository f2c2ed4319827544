// The state of the emulated machine: one Worker an OS thread runs blocks, one at a time, of a Launch.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "context_switch.h"
#include "luminal_host.h"

namespace luminal {

constexpr int MAX_THREADS = 1024;
constexpr int LANES = 32;
constexpr int MAX_WARPS = MAX_THREADS / LANES;
constexpr size_t STACK_BYTES = 256 << 10;
// Fills memory that nothing has written: NaN as float, double, half and bf16, and large as an integer.
constexpr uint16_t POISON = 0x7fff;

class Checker;

// One launch of a kernel. Workers claim blocks from it until none is left or a fault was raised.
struct Launch {
  void (*run)(void**);
  void** arguments;
  uint3 grid, block;
  size_t shared_bytes;
  bool reverse;
  bool poison_static_shared;  // not when other kernels live in the same shared object, whose memory would be filled too
  Checker* checker;           // null unless the kernel was compiled for checking
  uint64_t blocks;
  std::atomic<uint64_t> next_block{0};

  std::atomic<bool> faulted{false};
  std::mutex fault_mutex;
  char fault[1536] = "";
};

// Lanes that have come to one warp collective.
struct CollectiveGroup {
  unsigned mask, arrived;
  LuminalCollective collective;
  void* requests[LANES];
  int line;
};

struct AsyncCopy {
  char* shared;
  const char* global;
  int bytes, valid;
};

// The asynchronous copies of one thread, in the order in which they were started.
struct AsyncCopies {
  std::vector<AsyncCopy> started;
  std::vector<size_t> group_ends;
};

struct Worker {
  Launch* launch = nullptr;
  uint64_t block_number = 0;

  // Fibers. `fiber` is the running one, -1 outside of all: in the hub, which starts a block and releases barriers.
  char* stacks = nullptr;
  Context contexts[MAX_THREADS];
  Context hub;
  bool guarded[MAX_THREADS] = {};
  int fiber = -1;
  int fibers = 0;

  // Threads of the block. A thread is unstarted, running (`current`), ready, waiting at a barrier, in a collective's
  // group, or finished.
  int threads = 0, warps = 0;
  int current = -1;
  int started = 0, finished = 0;
  bool plain = false;  // no thread has had to wait yet: `started` and `finished` are not kept up to date
  int rows_given = 0;  // in plain mode: threads of the rows that were begun
  unsigned ready[MAX_WARPS];
  unsigned waiting[MAX_WARPS];
  int waiting_count = 0;
  int fiber_of[MAX_THREADS];
  int line_of[MAX_THREADS];
  int barrier_line = 0;
  bool lines_differ = false;
  int votes = 0, vote_result = 0;
  CollectiveGroup groups[MAX_WARPS][4];
  int group_count[MAX_WARPS];

  // How many barriers the block, and how many fences each warp has passed: the checker's clocks.
  unsigned block_epoch = 0;
  unsigned warp_epoch[MAX_WARPS];

  char* dynamic_shared = nullptr;
  size_t dynamic_capacity = 0;
  AsyncCopies copies[MAX_THREADS];
  bool any_copies = false;

  int lane() const { return current % LANES; }
};

// The worker of this OS thread while it runs a launch.
extern __thread Worker* worker __attribute__((tls_model("initial-exec"), visibility("hidden")));

// Records a fault of the running thread (the first of a launch is kept) and ends its block. In the text `@line:N@` and
// `@pc:X@` stand for a line of the source and an offset in the kernel's shared object.
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
// The same from the hub, where there is no fiber to leave.
void record_fault(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Runs one block to its end or to a fault.
void run_block(Worker& w);

// Fills memory with POISON.
void poison(void* begin, size_t bytes);

}  // namespace luminal
