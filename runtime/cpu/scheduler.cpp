// Runs the threads of a block as fibers, one at a time.
//
// A fiber claims the next thread, runs it to its end, claims another. Only when a thread has to wait does the next
// thread get a fiber of its own, so a kernel without barriers is a plain loop. When no thread can run, control returns
// to the hub: all threads wait at one barrier and are released, or the block is stuck, which is a fault and never a
// hang.
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine.h"

#if defined(__x86_64__) && !defined(LUMINAL_POSIX_CONTEXTS)
asm(R"(
.text
.globl luminal_switch_stack
.hidden luminal_switch_stack
.type luminal_switch_stack, @function
luminal_switch_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size luminal_switch_stack, .-luminal_switch_stack
)");
#endif

__thread LuminalPosition luminal_position;

namespace luminal {

__thread Worker* worker;

namespace {

constexpr int NO_THREAD = -1;
constexpr int NEW_THREAD = -2;
constexpr size_t COLOUR_BYTES = 17 * 64;

unsigned bit(int thread) { return 1u << (thread % LANES); }

uint3 coordinates(int thread) {
  uint3 size = luminal_position.block_size;
  uint3 place;
  place.x = thread % size.x;
  place.y = thread / size.x % size.y;
  place.z = thread / (size.x * size.y);
  return place;
}

int first_lane(const Worker& w, unsigned lanes) {
  return w.launch->reverse ? LANES - 1 - __builtin_clz(lanes) : __builtin_ctz(lanes);
}

int first_ready(const Worker& w) {
  for (int i = 0; i < w.warps; i++) {
    int warp = w.launch->reverse ? w.warps - 1 - i : i;
    if (w.ready[warp]) return warp * LANES + first_lane(w, w.ready[warp]);
  }
  return NO_THREAD;
}

// Keeps to the warp, so that its lanes meet soon; then starts new threads, so that the block does.
int choose_next(const Worker& w, int warp) {
  if (w.ready[warp]) return warp * LANES + first_lane(w, w.ready[warp]);
  if (w.started < w.threads) return NEW_THREAD;
  return first_ready(w);
}

Context& context_of(Worker& w, int fiber) { return fiber < 0 ? w.hub : w.contexts[fiber]; }

void switch_fiber(Worker& w, int to) {
  int from = w.fiber;
  w.fiber = to;
  switch_context(context_of(w, from), context_of(w, to));
  w.fiber = from;
}

void resume(Worker& w, int thread) {
  w.ready[thread / LANES] &= ~bit(thread);
  w.current = thread;
  switch_fiber(w, w.fiber_of[thread]);
}

// What a fiber does: run threads while there are unstarted ones, then let the others go on. It is never resumed after.
void fiber_main() {
  Worker& w = *worker;
  w.launch->run(w.launch->arguments);
  for (;;) {
    int next = first_ready(w);
    if (next == NO_THREAD)
      switch_fiber(w, -1);
    else
      resume(w, next);
  }
}

void prepare_fiber(Worker& w, int fiber) {
  char* stack = w.stacks + fiber * STACK_BYTES;
  if (!w.guarded[fiber]) {
    mprotect(stack, sysconf(_SC_PAGESIZE), PROT_NONE);
    w.guarded[fiber] = true;
  }
  // Equal places in all stacks would share a few lines of the processor's caches.
  size_t colour = fiber * COLOUR_BYTES % (STACK_BYTES / 4);
  prepare_context(w.contexts[fiber], stack, STACK_BYTES - colour, fiber_main);
}

// Leaves the running thread, already marked as ready or waiting, and comes back when it is chosen again.
void leave(Worker& w) {
  int thread = w.current;
  uint3 place = luminal_position.thread;
  int next = choose_next(w, thread / LANES);
  if (next == thread) {
    w.ready[thread / LANES] &= ~bit(thread);
    return;
  }
  if (next == NO_THREAD) {
    switch_fiber(w, -1);
  } else if (next == NEW_THREAD) {
    int fiber = w.fibers++;
    prepare_fiber(w, fiber);
    w.current = NO_THREAD;  // the new fiber has no thread that could end when it asks for one
    switch_fiber(w, fiber);
  } else {
    resume(w, next);
  }
  w.current = thread;
  luminal_position.thread = place;
}

// In plain mode threads are counted by rows; from the first wait on each is known by its number.
void end_plain_mode(Worker& w) {
  if (!w.plain) return;
  w.plain = false;
  luminal_position.plain_end = 0;
  w.current = w.rows_given - luminal_position.block_size.x + luminal_position.thread.x;
  w.started = w.current + 1;
  w.finished = w.current;
  w.fiber_of[w.current] = w.fiber;
}

bool next_plain_thread(Worker& w) {
  if (w.rows_given == w.threads) {
    w.started = w.finished = w.threads;
    return false;
  }
  luminal_position.thread = coordinates(w.rows_given);
  w.rows_given += luminal_position.block_size.x;
  return true;
}

void release_barrier(Worker& w) {
  for (int warp = 0; warp < w.warps; warp++) {
    w.ready[warp] |= w.waiting[warp];
    w.waiting[warp] = 0;
  }
  w.waiting_count = 0;
  w.lines_differ = false;
  w.vote_result = w.votes;
  w.votes = 0;
  w.block_epoch++;
}

// Nothing can run and the block has not come together at one barrier.
void record_divergence(Worker& w) {
  int at_barrier = NO_THREAD, other_line = NO_THREAD, in_collective = NO_THREAD, collective_count = 0,
      ended = NO_THREAD;
  for (int thread = 0; thread < w.threads; thread++) {
    int warp = thread / LANES;
    unsigned collective = 0;
    for (int g = 0; g < w.group_count[warp]; g++) collective |= w.groups[warp][g].arrived;
    if (collective & bit(thread)) {
      collective_count++;
      if (in_collective == NO_THREAD) in_collective = thread;
    } else if (w.waiting[warp] & bit(thread)) {
      if (at_barrier == NO_THREAD)
        at_barrier = thread;
      else if (other_line == NO_THREAD && w.line_of[thread] != w.line_of[at_barrier])
        other_line = thread;
    } else if (ended == NO_THREAD) {
      ended = thread;
    }
  }
  char text[1024];
  size_t n = snprintf(text, sizeof text, "barrier divergence:");
  auto add = [&](const char* format, auto... values) { n += snprintf(text + n, sizeof text - n, format, values...); };
  const char* separator = " ";
  if (w.finished) {
    add("%s%d thread(s) have ended (first: thread %d)", separator, w.finished, ended);
    separator = ", ";
  }
  if (at_barrier != NO_THREAD) {
    add("%s%d wait at __syncthreads (first: thread %d, @line:%d@)", separator, w.waiting_count, at_barrier,
        w.line_of[at_barrier]);
    separator = ", ";
  }
  if (other_line != NO_THREAD) add(", thread %d at another one, @line:%d@", other_line, w.line_of[other_line]);
  if (in_collective != NO_THREAD)
    add("%s%d wait at a warp collective (first: thread %d, @line:%d@)", separator, collective_count, in_collective,
        w.line_of[in_collective]);
  w.current = at_barrier != NO_THREAD ? at_barrier : in_collective;
  record_fault("%s", text);
}

void begin_block(Worker& w) {
  const uint3 size = luminal_position.block_size;
  w.threads = size.x * size.y * size.z;
  w.warps = (w.threads + LANES - 1) / LANES;
  w.started = w.finished = w.waiting_count = w.votes = 0;
  w.current = NO_THREAD;
  w.lines_differ = false;
  w.block_epoch = 0;
  for (int warp = 0; warp < w.warps; warp++) {
    w.ready[warp] = w.waiting[warp] = w.warp_epoch[warp] = 0;
    w.group_count[warp] = 0;
  }
  if (w.any_copies) {
    for (AsyncCopies& copies : w.copies) {
      copies.started.clear();
      copies.group_ends.clear();
    }
    w.any_copies = false;
  }
  // The checker wants to know the current thread, and the reverse order has no plain rows.
  w.plain = !w.launch->reverse && !w.launch->checker;
  w.rows_given = 0;
  luminal_position.plain_end = w.plain ? size.x : 0;
  luminal_position.thread = {~0u, 0, 0};
  if (w.plain) luminal_position.thread.x = size.x - 1;  // so that the first advance asks for a row
  w.fibers = 1;
  prepare_fiber(w, 0);
}

}  // namespace

void record_fault(const char* format, ...) {
  Launch& launch = *worker->launch;
  std::lock_guard<std::mutex> lock(launch.fault_mutex);
  if (launch.faulted) return;
  const uint3& block = luminal_position.block;
  uint3 place = worker->current < 0 ? luminal_position.thread : coordinates(worker->current);
  int n = snprintf(launch.fault, sizeof launch.fault, "block (%u, %u, %u), thread (%u, %u, %u): ", block.x, block.y,
                   block.z, place.x, place.y, place.z);
  va_list values;
  va_start(values, format);
  vsnprintf(launch.fault + n, sizeof launch.fault - n, format, values);
  va_end(values);
  launch.faulted = true;
}

void fault(const char* format, ...) {
  char text[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  record_fault("%s", text);
  switch_fiber(*worker, -1);
  __builtin_unreachable();  // the hub never resumes a block that has faulted
}

void run_block(Worker& w) {
  begin_block(w);
  switch_fiber(w, 0);
  while (!w.launch->faulted) {
    if (w.finished == w.threads) return;
    if (w.waiting_count != w.threads || w.lines_differ) {
      record_divergence(w);
      return;
    }
    release_barrier(w);
    resume(w, first_ready(w));
  }
}

}  // namespace luminal

using namespace luminal;

extern "C" bool luminal_next_thread() {
  Worker& w = *worker;
  if (w.plain) return next_plain_thread(w);
  if (w.current != NO_THREAD) w.finished++;
  w.current = NO_THREAD;
  if (w.started == w.threads) return false;
  int thread = w.launch->reverse ? w.threads - 1 - w.started : w.started;
  w.started++;
  w.current = thread;
  w.fiber_of[thread] = w.fiber;
  luminal_position.thread = coordinates(thread);
  return true;
}

extern "C" int luminal_block_barrier(bool vote, int line) {
  Worker& w = *worker;
  end_plain_mode(w);
  int thread = w.current;
  if (w.waiting_count == 0)
    w.barrier_line = line;
  else if (w.barrier_line != line)
    w.lines_differ = true;
  w.line_of[thread] = line;
  w.waiting[thread / LANES] |= bit(thread);
  w.waiting_count++;
  w.votes += vote;
  leave(w);
  return w.vote_result;
}

extern "C" void luminal_warp_collective(unsigned mask, LuminalCollective collective, void* request, int line,
                                        bool fence) {
  Worker& w = *worker;
  end_plain_mode(w);
  int thread = w.current, warp = thread / LANES, lane = thread % LANES;
  int lanes_of_warp = w.threads - warp * LANES;
  if (lanes_of_warp < LANES) mask &= (1u << lanes_of_warp) - 1;
  if (!(mask & bit(thread)))
    fault("lane %d calls a warp collective whose mask %08x leaves it out, @line:%d@", lane, mask, line);

  CollectiveGroup* group = nullptr;
  for (int i = 0; i < w.group_count[warp] && !group; i++) {
    CollectiveGroup& other = w.groups[warp][i];
    if (other.mask == mask)
      group = &other;
    else if (other.mask & mask)
      fault("warp collective with mask %08x, @line:%d@, while lanes of mask %08x wait for it, @line:%d@", mask, line,
            other.mask, other.line);
  }
  if (!group) {
    if (w.group_count[warp] == 4) fault("more than 4 warp collectives of one warp are pending, @line:%d@", line);
    group = &w.groups[warp][w.group_count[warp]++];
    group->mask = mask;
    group->arrived = 0;
    group->collective = collective;
    group->line = line;
  }
  if (group->collective != collective || group->line != line)
    fault("divergent warp collectives: lane %d is at @line:%d@, others of its warp at @line:%d@", lane, line,
          group->line);
  group->arrived |= bit(thread);
  group->requests[lane] = request;
  w.line_of[thread] = line;
  if (group->arrived == mask) {
    if (collective) collective(group->requests, mask);
    if (fence) w.warp_epoch[warp]++;
    *group = w.groups[warp][--w.group_count[warp]];
    w.ready[warp] |= mask;
  }
  leave(w);
}

extern "C" unsigned luminal_lane() {
  const Worker& w = *worker;
  if (!w.plain) return w.lane();
  return (w.rows_given - luminal_position.block_size.x + luminal_position.thread.x) % LANES;
}

extern "C" void* luminal_dynamic_shared() { return worker->dynamic_shared; }
