extern "C" __global__ void barrier_against_syncwarp(float* o, int n) {
  int i = threadIdx.x;
  if (i == 0)
    __syncthreads();
  else
    __syncwarp();
  o[i] = 1;
}
LUMINAL_EXPORT(barrier_against_syncwarp)
