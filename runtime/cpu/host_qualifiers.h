// CUDA's qualifiers, which the host compiler does not need, and shared memory as thread-local storage.
#pragma once

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

// The threads of a block are fibers of one OS thread, so what is local to the OS thread is shared by the block. Without
// __constinit a type with a constructor gets a guard variable in the same storage, which poisoning would overwrite.
#define __shared__ static __constinit thread_local

#define LUMINAL_DEVICE inline

// The line of the call, when it is the default of a function's last parameter.
#define LUMINAL_LINE int line = __builtin_LINE()
