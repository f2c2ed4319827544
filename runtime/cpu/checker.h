// The memory checker: every access of a kernel that was compiled for checking comes here first.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace luminal {

enum Access {
  READ,  // of `bytes` at a multiple of `bytes`
  WRITE,
  READ_BYTES,  // of any number of bytes at any address
  WRITE_BYTES,
  ATOMIC,
  BEGIN_COPY,  // an asynchronous copy may write from now on, and until its end nobody may read
};

// Raises a fault if the running thread may not do this; does nothing in unchecked launches. `pc` is in the kernel.
void check_access(const void* address, size_t bytes, Access access, void* pc);

// Who last read and wrote the bytes of one granule. See checker.cpp for the format of the stamps.
struct Cell {
  uint64_t write = 0, read = 0;
  uint32_t write_pc = 0, read_pc = 0;
};

enum ByteState : uint8_t { UNINITIALISED, INITIALISED, BEING_COPIED };

// Memory that the kernel may use, with the history of its bytes.
struct Region {
  const char* name = "";
  char* begin = nullptr;
  size_t bytes = 0;
  size_t granule = 1;  // bytes that share one history
  bool read_only = false;
  size_t must_begin = 0, must_end = 0;  // the bytes that must have been written when the launch ends
  std::vector<Cell> cells;
  std::vector<uint8_t> states;

  bool contains(const void* address) const {
    return static_cast<size_t>(static_cast<const char*>(address) - begin) < bytes;
  }
  void reset(char* new_begin, size_t new_bytes, ByteState state);
};

struct Range {
  const char* begin;
  size_t bytes;
};

class Checker {
 public:
  std::vector<Region> buffers;
  Region dynamic_shared, static_shared;
  std::vector<Range> unchecked;  // the kernel's constants, its arguments, the position of the running thread
  const char* image = nullptr;   // where the kernel's shared object is loaded

  Checker();
  void begin_block(char* dynamic, size_t dynamic_bytes, char* statics, size_t static_bytes);
  // Raises a fault if a buffer that must be fully written is not.
  void check_end();
  void access(const char* address, size_t bytes, Access access, void* pc);

 private:
  Region* last_ = nullptr;

  Region* find(const void* address);
  bool is_unchecked(const char* address) const;
  uint32_t offset(void* pc) const;
  [[noreturn]] void fault_outside(const char* address, size_t bytes, Access access, void* pc);
  void record(Region& region, size_t offset, size_t bytes, Access access, void* pc);
};

}  // namespace luminal
