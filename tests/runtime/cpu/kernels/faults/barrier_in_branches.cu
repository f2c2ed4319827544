extern "C" __global__ void barrier_in_branches(float* o, int n) {
  int i = threadIdx.x;
  if (i < n) {
    __syncthreads();
    o[i] = 1;
  } else {
    __syncthreads();
    o[i] = 2;
  }
}
LUMINAL_EXPORT(barrier_in_branches)
