// The runtime library's interface to Python (kernel.py mirrors these structures with ctypes).
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

// A buffer of a checked launch.
struct LuminalBuffer {
  const char* name;
  void* address;
  uint64_t bytes;
  uint32_t granule;
  uint8_t initialised, read_only, reserved[2];
  uint64_t must_begin, must_end;  // the bytes that must have been written when the launch ends
};

struct LuminalLaunchRequest {
  void (*run)(void**);  // the kernel's thunk
  void** arguments;     // a table of pointers, followed by the values that it points to
  uint64_t argument_bytes;
  uint32_t grid[3], block[3];
  uint64_t shared_bytes;
  uint32_t max_workers;
  uint8_t reverse, check, poison_static_shared, reserved;
  const LuminalBuffer* buffers;
  uint64_t buffer_count;
};

// Runs a launch to its end. Returns 0, or 1 after a fault, with its text in `message`. Any thread may call it at any
// time.
int luminal_launch(const LuminalLaunchRequest* request, char* message, uint64_t capacity);
}
