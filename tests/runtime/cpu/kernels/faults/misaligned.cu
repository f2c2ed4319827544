extern "C" __global__ void misaligned(float* o, int n) {
  if (threadIdx.x == 3) store_pack(o + 1, Pack<float, 4>{{1, 2, 3, 4}});
}
LUMINAL_EXPORT(misaligned)
