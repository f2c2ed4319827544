extern "C" __global__ void missing_second_barrier(float* o, int n) {
  __shared__ float s;
  int i = threadIdx.x;
  if (i == 0) s = 1;
  __syncthreads();
  o[i] = s;
  if (i == 0) s = 2;
}
LUMINAL_EXPORT(missing_second_barrier)
