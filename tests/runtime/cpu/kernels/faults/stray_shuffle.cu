extern "C" __global__ void stray_shuffle(float* o, int n) {
  int i = threadIdx.x;
  if (i % 32 < 16) o[i] = __shfl_sync(0x0000ffffu, 1.0f, 20);
}
LUMINAL_EXPORT(stray_shuffle)
