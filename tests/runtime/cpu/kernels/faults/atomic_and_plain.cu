extern "C" __global__ void atomic_and_plain(float* o, int n) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  atomicAdd(&count, 1);
  o[threadIdx.x] = count;
}
LUMINAL_EXPORT(atomic_and_plain)
