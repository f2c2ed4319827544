// Asynchronous copies: queued when they start, done when they are waited for. Until then the destination is poison.
#include "checker.h"
#include "machine.h"

using namespace luminal;

namespace {

AsyncCopies& copies_of_thread() {
  Worker& w = *worker;
  w.any_copies = true;
  if (!w.plain) return w.copies[w.current];
  return w.copies[w.rows_given - luminal_position.block_size.x + luminal_position.thread.x];
}

void finish(const AsyncCopy& copy, void* pc) {
  check_access(copy.shared, copy.bytes, WRITE, pc);
  memcpy(copy.shared, copy.global, copy.valid);
  memset(copy.shared + copy.valid, 0, copy.bytes - copy.valid);
}

}  // namespace

extern "C" void luminal_cp_async(void* shared, const void* global, int bytes, int valid, int line) {
  uintptr_t addresses = reinterpret_cast<uintptr_t>(shared) | (valid ? reinterpret_cast<uintptr_t>(global) : 0);
  if (addresses % bytes) fault("misaligned cp.async: an address is no multiple of %d bytes, @line:%d@", bytes, line);
  if (valid < 0 || valid > bytes) fault("cp.async of %d valid bytes out of %d, @line:%d@", valid, bytes, line);
  if (valid) check_access(global, valid, READ_BYTES, __builtin_return_address(0));
  check_access(shared, bytes, BEGIN_COPY, __builtin_return_address(0));
  poison(shared, bytes);
  copies_of_thread().started.push_back({static_cast<char*>(shared), static_cast<const char*>(global), bytes, valid});
}

extern "C" void luminal_cp_async_commit() {
  AsyncCopies& copies = copies_of_thread();
  copies.group_ends.push_back(copies.started.size());
}

extern "C" void luminal_cp_async_wait(int groups) {
  AsyncCopies& copies = copies_of_thread();
  int done = static_cast<int>(copies.group_ends.size()) - groups;
  if (done <= 0) return;
  size_t end = copies.group_ends[done - 1];
  for (size_t i = 0; i < end; i++) finish(copies.started[i], __builtin_return_address(0));
  copies.started.erase(copies.started.begin(), copies.started.begin() + end);
  copies.group_ends.erase(copies.group_ends.begin(), copies.group_ends.begin() + done);
  for (size_t& group_end : copies.group_ends) group_end -= end;
}
