extern "C" __global__ void out_of_bounds(float* o, int n) {
  int i = threadIdx.x;
  o[i + 1] = 1;
}
LUMINAL_EXPORT(out_of_bounds)
