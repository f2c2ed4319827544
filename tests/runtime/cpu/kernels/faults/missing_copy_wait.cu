extern "C" __global__ void missing_copy_wait(float* o, int n) {
  float* s = dynamic_shared<float>();
  int i = threadIdx.x;
  if (i < 32) cp_async_16(s + 4 * i, o + 4 * i);
  cp_async_commit();
  __syncthreads();
  o[i] = s[i] + 1;
}
LUMINAL_EXPORT(missing_copy_wait)
