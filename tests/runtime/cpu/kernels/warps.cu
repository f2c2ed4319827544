// Shuffles, votes, block votes, atomics and constant memory; 64 threads
__constant__ int TABLE[4] = {1, 20, 300, 4000};

extern "C" __global__ void __launch_bounds__(64)
    warps(const int* __restrict__ in, int* __restrict__ out, int* __restrict__ counters) {
  __shared__ int count;
  int t = threadIdx.x, v = in[t];
  if (t == 0) count = 0;
  __syncthreads();
  atomicAdd(&count, v);
  int* o = out + 12 * t;
  o[0] = static_cast<int>(__ballot_sync(ALL_LANES, v & 1));
  o[1] = __shfl_down_sync(ALL_LANES, v, 3);
  o[2] = __shfl_up_sync(ALL_LANES, v, 1);
  o[3] = __shfl_sync(ALL_LANES, v, 5);
  o[4] = __shfl_xor_sync(ALL_LANES, v, 4, 8);
  o[5] = __any_sync(ALL_LANES, v > 90);
  o[6] = __all_sync(ALL_LANES, v >= 0);
  o[7] = __syncthreads_count(v & 1);
  o[8] = count;
  o[9] = TABLE[t % 4];
  o[10] = warp_sum(v);
  o[11] = t % 32 < 16 ? __shfl_xor_sync(0x0000ffffu, v, 1) : __shfl_xor_sync(0xffff0000u, v, 2);
  atomicMax(&counters[0], t);
  atomicAdd(&counters[1], 1);
}
LUMINAL_EXPORT(warps)
