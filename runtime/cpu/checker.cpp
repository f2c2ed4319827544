// Finds accesses out of bounds, misaligned, of uninitialised bytes, to read-only buffers, and data races.
//
// A kernel is compiled with -fsanitize=thread, which calls __tsan_readN and __tsan_writeN before every access, and
// linked with the functions at the end of this file in place of that sanitizer's own runtime.
// A memcpy from or to a buffer is not seen: kernels use load_pack and store_pack.
//
// Two accesses are ordered if they are of one thread; or of one block with a block barrier between; or of one warp with
// a __syncwarp between. A stamp says who and when: thread of the launch + 1 (32 bits), barriers passed by the block
// (14), fences passed by the warp (14), kind (2), atomic (1). The reads since the last write are kept as one stamp that
// stands for a set: one thread, lanes of one warp, threads of one block, or threads of several blocks.
#include "checker.h"

#include <algorithm>

#include "machine.h"

namespace luminal {

namespace {

enum Readers : unsigned { ONE_THREAD, ONE_WARP, ONE_BLOCK, SEVERAL_BLOCKS };

constexpr uint64_t EPOCH_MASK = (1 << 14) - 1;

struct Stamp {
  uint64_t bits;

  uint64_t thread() const { return (bits >> 32) - 1; }
  uint64_t block(unsigned threads) const { return thread() / threads; }
  uint64_t place(unsigned threads) const { return thread() % threads; }
  uint64_t warp(unsigned threads) const { return place(threads) / LANES; }
  uint64_t block_epoch() const { return bits >> 18 & EPOCH_MASK; }
  uint64_t warp_epoch() const { return bits >> 4 & EPOCH_MASK; }
  Readers readers() const { return static_cast<Readers>(bits >> 1 & 3); }
  bool atomic() const { return bits & 1; }
  Stamp with(Readers readers) const { return {(bits & ~uint64_t(6)) | uint64_t(readers) << 1}; }
};

Stamp stamp_now(bool atomic) {
  const Worker& w = *worker;
  uint64_t thread = w.block_number * w.threads + w.current + 1;
  return {thread << 32 | (w.block_epoch & EPOCH_MASK) << 18 | (w.warp_epoch[w.current / LANES] & EPOCH_MASK) << 4 |
          (atomic ? 1 : 0)};
}

// Did everything that `before` stands for happen before `now`?
bool ordered(Stamp before, Stamp now) {
  const unsigned threads = worker->threads;
  if (before.readers() == SEVERAL_BLOCKS || before.block(threads) != now.block(threads)) return false;
  if (before.block_epoch() != now.block_epoch()) return true;
  if (before.readers() == ONE_BLOCK) return false;
  if (before.warp(threads) != now.warp(threads)) return false;
  if (before.warp_epoch() != now.warp_epoch()) return true;
  return before.readers() == ONE_THREAD && before.thread() == now.thread();
}

// The stamp of the reads so far and one more.
Stamp join(Stamp before, Stamp now) {
  if (before.bits == 0 || ordered(before, now)) return now;
  const unsigned threads = worker->threads;
  Readers readers = before.readers();
  if (before.block(threads) != now.block(threads))
    readers = SEVERAL_BLOCKS;
  else if (before.warp(threads) != now.warp(threads))
    readers = std::max(readers, ONE_BLOCK);
  else
    readers = std::max(readers, ONE_WARP);
  return now.with(readers);
}

bool is_write(Access access) {
  return access == WRITE || access == WRITE_BYTES || access == ATOMIC || access == BEGIN_COPY;
}

const char* verb(Access access) {
  switch (access) {
    case ATOMIC:
      return "atomic access";
    case BEGIN_COPY:
      return "asynchronous copy";
    default:
      return is_write(access) ? "write" : "read";
  }
}

}  // namespace

void Region::reset(char* new_begin, size_t new_bytes, ByteState state) {
  begin = new_begin;
  bytes = new_bytes;
  cells.assign((bytes + granule - 1) / granule, Cell());
  states.assign(bytes, state);
}

Checker::Checker() {
  dynamic_shared.name = "dynamic shared memory";
  static_shared.name = "static shared memory";
}

void Checker::begin_block(char* dynamic, size_t dynamic_bytes, char* statics, size_t static_bytes) {
  dynamic_shared.reset(dynamic, dynamic_bytes, UNINITIALISED);
  static_shared.reset(statics, static_bytes, UNINITIALISED);
}

void Checker::check_end() {
  for (const Region& buffer : buffers) {
    size_t missing = 0, first = 0;
    for (size_t i = buffer.must_end; i-- > buffer.must_begin;) {
      if (buffer.cells[i / buffer.granule].write == 0) {
        missing++;
        first = i;
      }
    }
    if (missing)
      record_fault("the kernel has ended and %zu of the %zu bytes of %s were never written (first: byte %zu)", missing,
                   buffer.must_end - buffer.must_begin, buffer.name, first - buffer.must_begin);
  }
}

Region* Checker::find(const void* address) {
  if (last_ && last_->contains(address)) return last_;
  if (dynamic_shared.contains(address)) return last_ = &dynamic_shared;
  if (static_shared.contains(address)) return last_ = &static_shared;
  for (Region& buffer : buffers) {
    if (buffer.contains(address)) return last_ = &buffer;
  }
  return nullptr;
}

bool Checker::is_unchecked(const char* address) const {
  for (const Range& range : unchecked) {
    if (static_cast<size_t>(address - range.begin) < range.bytes) return true;
  }
  return false;
}

uint32_t Checker::offset(void* pc) const { return static_cast<uint32_t>(static_cast<const char*>(pc) - image); }

void Checker::fault_outside(const char* address, size_t bytes, Access access, void* pc) {
  const Region* nearest = nullptr;
  size_t distance = ~size_t(0);
  auto consider = [&](const Region& region) {
    if (!region.begin) return;
    const char* end = region.begin + region.bytes;
    size_t gap = address < region.begin ? region.begin - address : address - end;
    if (gap < distance) {
      distance = gap;
      nearest = &region;
    }
  };
  for (const Region& buffer : buffers) consider(buffer);
  consider(dynamic_shared);
  consider(static_shared);
  if (!nearest)
    fault("out of bounds %s of %zu bytes: the kernel has no buffers, @pc:%x@", verb(access), bytes, offset(pc));
  fault("out of bounds %s of %zu bytes at byte %td of %s, which has %zu bytes, @pc:%x@", verb(access), bytes,
        address - nearest->begin, nearest->name, nearest->bytes, offset(pc));
}

void Checker::access(const char* address, size_t bytes, Access access, void* pc) {
  Region* region = find(address);
  if (!region) {
    if (is_unchecked(address)) return;
    const char* stacks = worker->stacks;
    if (static_cast<size_t>(address - stacks) < STACK_BYTES * MAX_THREADS) return;
    fault_outside(address, bytes, access, pc);
  }
  size_t begin = address - region->begin;
  if (begin + bytes > region->bytes) fault_outside(address, bytes, access, pc);
  bool any_alignment = access == READ_BYTES || access == WRITE_BYTES;
  if (!any_alignment && reinterpret_cast<uintptr_t>(address) % bytes)
    fault("misaligned %s of %zu bytes at byte %zu of %s, @pc:%x@", verb(access), bytes, begin, region->name,
          offset(pc));
  if (is_write(access) && region->read_only)
    fault("%s at byte %zu of the read-only buffer %s, @pc:%x@", verb(access), begin, region->name, offset(pc));
  record(*region, begin, bytes, access, pc);
}

void Checker::record(Region& region, size_t begin, size_t bytes, Access access, void* pc) {
  const bool writes = is_write(access), reads = !writes || access == ATOMIC;
  for (size_t i = begin; reads && i < begin + bytes; i++) {
    if (region.states[i] == UNINITIALISED)
      fault("%s of uninitialised byte %zu of %s, @pc:%x@", verb(access), i, region.name, offset(pc));
    if (region.states[i] == BEING_COPIED)
      fault("%s of byte %zu of %s, which an asynchronous copy still writes (it has not been waited for), @pc:%x@",
            verb(access), i, region.name, offset(pc));
  }
  const Stamp now = stamp_now(access == ATOMIC);
  auto race = [&](size_t cell, const char* other, Stamp before, uint32_t other_pc) {
    const unsigned threads = worker->threads;
    fault(
        "data race at byte %zu of %s: %s by thread %d of block %zu, @pc:%x@, after a %s by thread %zu of block %zu, "
        "@pc:%x@, "
        "with no barrier between",
        cell * region.granule, region.name, verb(access), worker->current, static_cast<size_t>(worker->block_number),
        offset(pc), other, static_cast<size_t>(before.place(threads)), static_cast<size_t>(before.block(threads)),
        other_pc);
  };
  for (size_t i = begin / region.granule; i <= (begin + bytes - 1) / region.granule; i++) {
    Cell& cell = region.cells[i];
    const Stamp written{cell.write}, read{cell.read};
    bool both_atomic = written.atomic() && access == ATOMIC;
    if (cell.write && !both_atomic && !ordered(written, now)) race(i, "write", written, cell.write_pc);
    if (writes) {
      if (cell.read && !ordered(read, now)) race(i, "read", read, cell.read_pc);
      cell.write = now.bits;
      cell.write_pc = offset(pc);
      cell.read = 0;
    } else {
      cell.read = join(read, now).bits;
      cell.read_pc = offset(pc);
    }
  }
  if (writes) std::fill_n(region.states.begin() + begin, bytes, access == BEGIN_COPY ? BEING_COPIED : INITIALISED);
}

void check_access(const void* address, size_t bytes, Access access, void* pc) {
  Worker* w = worker;
  if (w && w->launch->checker && w->current >= 0)
    w->launch->checker->access(static_cast<const char*>(address), bytes, access, pc);
}

}  // namespace luminal

using namespace luminal;

#define LUMINAL_HOOK(name, bytes, access) \
  extern "C" void name(void* address) { check_access(address, bytes, access, __builtin_return_address(0)); }
#define LUMINAL_HOOKS(bytes)                              \
  LUMINAL_HOOK(__tsan_read##bytes, bytes, READ)           \
  LUMINAL_HOOK(__tsan_write##bytes, bytes, WRITE)         \
  LUMINAL_HOOK(__tsan_unaligned_read##bytes, bytes, READ) \
  LUMINAL_HOOK(__tsan_unaligned_write##bytes, bytes, WRITE)
LUMINAL_HOOKS(1)
LUMINAL_HOOKS(2)
LUMINAL_HOOKS(4)
LUMINAL_HOOKS(8)
LUMINAL_HOOKS(16)

extern "C" void __tsan_read_range(void* address, size_t bytes) {
  check_access(address, bytes, READ_BYTES, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* address, size_t bytes) {
  check_access(address, bytes, WRITE_BYTES, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_vptr_read(void**) {}

template <class Word>
static Word compare_and_swap(void* target, Word expected, Word desired, void* pc) {
  check_access(target, sizeof(Word), ATOMIC, pc);
  __atomic_compare_exchange_n(static_cast<Word*>(target), &expected, desired, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  return expected;
}

extern "C" uint16_t luminal_compare_and_swap_16(void* target, uint16_t expected, uint16_t desired) {
  return compare_and_swap(target, expected, desired, __builtin_return_address(0));
}
extern "C" uint32_t luminal_compare_and_swap_32(void* target, uint32_t expected, uint32_t desired) {
  return compare_and_swap(target, expected, desired, __builtin_return_address(0));
}
extern "C" uint64_t luminal_compare_and_swap_64(void* target, uint64_t expected, uint64_t desired) {
  return compare_and_swap(target, expected, desired, __builtin_return_address(0));
}
