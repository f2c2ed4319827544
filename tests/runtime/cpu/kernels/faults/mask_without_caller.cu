extern "C" __global__ void mask_without_caller(float* o, int n) {
  int i = threadIdx.x;
  o[i] = __shfl_sync(0x0000ffffu, 1.0f, 0);
}
LUMINAL_EXPORT(mask_without_caller)
