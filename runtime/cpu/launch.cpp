// Launches: blocks are claimed by workers, which run them in parallel when there is enough to do.
#include "launch.h"

#include <link.h>
#include <stdio.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "checker.h"
#include "machine.h"

namespace luminal {

void poison(void* begin, size_t bytes) {
  auto* bytes_of = static_cast<unsigned char*>(begin);
  const unsigned char low = POISON & 0xff, high = POISON >> 8;
  for (size_t i = 0; i + 1 < bytes; i += 2) {
    bytes_of[i] = low;
    bytes_of[i + 1] = high;
  }
  if (bytes % 2) bytes_of[bytes - 1] = high;
}

namespace {

// Workers are kept for later launches: their stacks are many pages, which the system would have to clear again.
std::mutex idle_mutex;
std::vector<std::unique_ptr<Worker>> idle_workers;

char* map_memory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

std::unique_ptr<Worker> take_worker() {
  {
    std::lock_guard<std::mutex> lock(idle_mutex);
    if (!idle_workers.empty()) {
      std::unique_ptr<Worker> idle = std::move(idle_workers.back());
      idle_workers.pop_back();
      return idle;
    }
  }
  auto fresh = std::make_unique<Worker>();
  fresh->stacks = map_memory(STACK_BYTES * MAX_THREADS);
  return fresh->stacks ? std::move(fresh) : nullptr;
}

void return_worker(std::unique_ptr<Worker> done) {
  std::lock_guard<std::mutex> lock(idle_mutex);
  idle_workers.push_back(std::move(done));
}

// The kernel's shared object: where it is loaded, and this OS thread's copy of its thread-local (that is, shared)
// memory.
struct Image {
  const void* inside;
  std::vector<Range> segments;
  const char* base = nullptr;
  char* thread_local_memory = nullptr;
  size_t thread_local_bytes = 0;
};

extern "C" void* __tls_get_addr(void*);

int visit_object(dl_phdr_info* info, size_t, void* data) {
  auto* image = static_cast<Image*>(data);
  bool found = false;
  size_t thread_local_bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& header = info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && reinterpret_cast<uintptr_t>(image->inside) - begin < header.p_memsz) found = true;
    if (header.p_type == PT_TLS) thread_local_bytes = header.p_memsz;
  }
  if (!found) return 0;
  image->base = reinterpret_cast<const char*>(info->dlpi_addr);
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type == PT_LOAD) image->segments.push_back({image->base + header.p_vaddr, header.p_memsz});
  }
  if (thread_local_bytes) {
    struct {
      unsigned long module, offset;
    } index{info->dlpi_tls_modid, 0};
    image->thread_local_memory = static_cast<char*>(__tls_get_addr(&index));
    image->thread_local_bytes = thread_local_bytes;
  }
  return 1;
}

Image find_image(void (*run)(void**)) {
  Image image;
  image.inside = reinterpret_cast<const void*>(run);
  dl_iterate_phdr(visit_object, &image);
  return image;
}

bool reserve_dynamic_shared(Worker& w, size_t bytes) {
  if (bytes <= w.dynamic_capacity && w.dynamic_shared) return true;
  if (w.dynamic_shared) munmap(w.dynamic_shared, w.dynamic_capacity);
  w.dynamic_capacity = std::max<size_t>(bytes, 64 << 10);
  w.dynamic_shared = map_memory(w.dynamic_capacity);
  return w.dynamic_shared;
}

// Claims and runs blocks until none is left. `after_block` is called between blocks.
template <class AfterBlock>
void run_blocks(Launch& launch, AfterBlock after_block) {
  std::unique_ptr<Worker> own = take_worker();
  if (!own || !reserve_dynamic_shared(*own, launch.shared_bytes)) {
    std::lock_guard<std::mutex> lock(launch.fault_mutex);
    snprintf(launch.fault, sizeof launch.fault, "no memory for the stacks and shared memory of a block");
    launch.faulted = true;
    return;
  }
  Worker& w = *own;
  w.launch = &launch;
  worker = &w;
  luminal_position.grid_size = launch.grid;
  luminal_position.block_size = launch.block;
  Image image = find_image(launch.run);
  for (uint64_t claimed; !launch.faulted && (claimed = launch.next_block++) < launch.blocks;) {
    w.block_number = launch.reverse ? launch.blocks - 1 - claimed : claimed;
    uint64_t rows = w.block_number / launch.grid.x;
    luminal_position.block = {static_cast<unsigned>(w.block_number % launch.grid.x),
                              static_cast<unsigned>(rows % launch.grid.y), static_cast<unsigned>(rows / launch.grid.y)};
    poison(w.dynamic_shared, launch.shared_bytes);
    if (launch.poison_static_shared) poison(image.thread_local_memory, image.thread_local_bytes);
    if (launch.checker)
      launch.checker->begin_block(w.dynamic_shared, launch.shared_bytes, image.thread_local_memory,
                                  image.thread_local_bytes);
    run_block(w);
    w.fiber = -1;
    after_block();
  }
  w.current = -1;
  if (launch.checker && !launch.faulted) launch.checker->check_end();
  worker = nullptr;
  return_worker(std::move(own));
}

// Starting a thread takes some ten microseconds, so small launches stay on the caller's.
constexpr uint64_t PARALLEL_THREADS = 1 << 15;
constexpr auto PARALLEL_AFTER = std::chrono::microseconds(300);

void run_launch(Launch& launch, unsigned max_workers) {
  std::vector<std::thread> helpers;
  auto start_helpers = [&] {
    for (unsigned i = 1; i < max_workers && i < launch.blocks; i++) {
      try {
        helpers.emplace_back([&launch] { run_blocks(launch, [] {}); });
      } catch (const std::system_error&) {
        return;  // no more threads: fewer workers do the same blocks
      }
    }
  };
  auto begin = std::chrono::steady_clock::now();
  uint64_t threads = launch.blocks * launch.block.x * launch.block.y * launch.block.z;
  if (threads >= PARALLEL_THREADS) start_helpers();
  run_blocks(launch, [&] {
    bool worth_it = helpers.empty() && launch.next_block + 1 < launch.blocks;
    if (worth_it && std::chrono::steady_clock::now() - begin > PARALLEL_AFTER) start_helpers();
  });
  for (std::thread& helper : helpers) helper.join();
}

void add_buffers(Checker& checker, const LuminalLaunchRequest& request) {
  for (uint64_t i = 0; i < request.buffer_count; i++) {
    const LuminalBuffer& buffer = request.buffers[i];
    Region& region = checker.buffers.emplace_back();
    region.name = buffer.name;
    region.granule = buffer.granule;
    region.read_only = buffer.read_only;
    region.must_begin = buffer.must_begin;
    region.must_end = buffer.must_end;
    region.reset(static_cast<char*>(buffer.address), buffer.bytes, buffer.initialised ? INITIALISED : UNINITIALISED);
  }
  Image image = find_image(request.run);
  checker.image = image.base;
  checker.unchecked = image.segments;
  checker.unchecked.push_back({reinterpret_cast<const char*>(request.arguments), request.argument_bytes});
  checker.unchecked.push_back({reinterpret_cast<const char*>(&luminal_position), sizeof luminal_position});
}

}  // namespace
}  // namespace luminal

using namespace luminal;

extern "C" int luminal_launch(const LuminalLaunchRequest* request, char* message, uint64_t capacity) {
  Launch launch;
  launch.run = request->run;
  launch.arguments = request->arguments;
  launch.grid = {request->grid[0], request->grid[1], request->grid[2]};
  launch.block = {request->block[0], request->block[1], request->block[2]};
  launch.shared_bytes = request->shared_bytes;
  launch.reverse = request->reverse;
  launch.poison_static_shared = request->poison_static_shared;
  launch.checker = nullptr;
  launch.blocks = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
  std::unique_ptr<Checker> checker;
  if (request->check) {
    checker = std::make_unique<Checker>();
    add_buffers(*checker, *request);
    launch.checker = checker.get();
  }
  run_launch(launch, request->check ? 1 : request->max_workers);
  if (!launch.faulted) return 0;
  snprintf(message, capacity, "%s", launch.fault);
  return 1;
}
