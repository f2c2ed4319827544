// What a kernel includes when it is compiled for the host: CUDA's own types, and everything that NVRTC has built in.
//
// The real CUDA headers compile with a plain C++ compiler and bring the vector types, half, bf16 and their conversions.
// What they hide from host code, and what only a GPU has, stands in the headers below; the parts that need state live
// in the runtime library (scheduler.cpp and its neighbours), which every kernel's shared object is linked against.
#ifndef LUMINAL_HOST_H
#define LUMINAL_HOST_H

#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#ifdef LUMINAL_FP8
#include <cuda_fp8.h>
#endif

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>
#include <utility>

#include "host_qualifiers.h"

#include "host_threads.h"

#include "host_warps.h"

#include "host_math.h"

#include "host_half.h"

#include "host_atomics.h"

#include "host_tensor.h"

#include "host_export.h"

#endif  // LUMINAL_HOST_H
