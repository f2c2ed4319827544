// The way into a kernel: a thunk with cuLaunchKernel's `void**` that runs threads of the block one after another.
#pragma once

// One kernel parameter, for checking a launch against the kernel: kind is p(ointer), i(nteger), u(nsigned), f(loat) or
// o(ther), 0 ends the list.
struct LuminalParameter {
  char kind;
  uint8_t size;
};

template <class T>
constexpr LuminalParameter luminal_parameter() {
  using V = std::remove_cv_t<T>;
  return {std::is_pointer_v<V>          ? 'p'
          : std::is_floating_point_v<V> ? 'f'
          : !std::is_integral_v<V>      ? 'o'
          : std::is_signed_v<V>         ? 'i'
                                        : 'u',
          static_cast<uint8_t>(sizeof(V))};
}

// The cheap way to the next thread while no thread of the block has had to wait.
inline bool luminal_advance() {
  if (luminal_position.thread.x + 1 < luminal_position.plain_end) {
    ++luminal_position.thread.x;
    return true;
  }
  return luminal_next_thread();
}

template <auto Kernel>
struct LuminalEntry;

template <class... A, void (*Kernel)(A...)>
struct LuminalEntry<Kernel> {
  template <size_t... I>
  __attribute__((always_inline)) static inline void call(void** arguments, std::index_sequence<I...>) {
    Kernel(*static_cast<std::remove_reference_t<A>*>(arguments[I])...);
  }
  static void run(void** arguments) {
    while (luminal_advance()) call(arguments, std::index_sequence_for<A...>{});
  }
  static constexpr LuminalParameter parameters[] = {luminal_parameter<A>()..., {0, 0}};
};

// In a batch of kernels the name is a macro, so it is expanded before it is joined.
#define LUMINAL_EXPORT(kernel) LUMINAL_EXPORT_AS(kernel)

#define LUMINAL_EXPORT_AS(kernel)                                                                    \
  extern "C" __attribute__((visibility("default"))) void kernel##__run(void** arguments) {           \
    LuminalEntry<kernel>::run(arguments);                                                            \
  }                                                                                                  \
  extern "C" __attribute__((visibility("default"))) const LuminalParameter* kernel##__parameters() { \
    return LuminalEntry<kernel>::parameters;                                                         \
  }
