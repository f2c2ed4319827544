// Switching between stacks. On x86-64 a few instructions; elsewhere POSIX contexts, some ten times slower.
#pragma once

#include <stddef.h>

#if defined(__x86_64__) && !defined(LUMINAL_POSIX_CONTEXTS)

namespace luminal {
using Context = void*;  // the stack pointer; the callee-saved registers lie on the stack
}

extern "C" __attribute__((visibility("hidden"))) void luminal_switch_stack(void** save, void* resume);

namespace luminal {

inline void switch_context(Context& from, Context& to) { luminal_switch_stack(&from, to); }

// Makes `context` start `entry` on the given stack. At a function's entry the stack pointer is 8 modulo 16.
inline void prepare_context(Context& context, char* stack, size_t bytes, void (*entry)()) {
  constexpr int callee_saved_registers = 6;
  void** top = reinterpret_cast<void**>(stack + bytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < callee_saved_registers; i++) *--top = nullptr;
  context = top;
}

}  // namespace luminal

#else

#include <ucontext.h>

namespace luminal {

using Context = ucontext_t;

inline void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }

inline void prepare_context(Context& context, char* stack, size_t bytes, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}

}  // namespace luminal

#endif
