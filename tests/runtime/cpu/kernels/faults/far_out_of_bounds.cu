extern "C" __global__ void far_out_of_bounds(float* o, int n) {
  int i = threadIdx.x;
  o[i] = o[static_cast<int64_t>(i + 1) << 40];
}
LUMINAL_EXPORT(far_out_of_bounds)
