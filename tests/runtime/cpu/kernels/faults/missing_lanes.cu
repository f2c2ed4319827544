extern "C" __global__ void missing_lanes(float* o, int n) {
  int i = threadIdx.x;
  float v = i;
  if (i % 32 < 16) v += __shfl_xor_sync(ALL_LANES, v, 1);
  o[i] = v;
}
LUMINAL_EXPORT(missing_lanes)
