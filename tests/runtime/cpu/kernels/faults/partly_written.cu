extern "C" __global__ void partly_written(float* o, int n) {
  if (threadIdx.x != 77) o[threadIdx.x] = 1;
}
LUMINAL_EXPORT(partly_written)
