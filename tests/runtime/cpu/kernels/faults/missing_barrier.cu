extern "C" __global__ void missing_barrier(float* o, int n) {
  __shared__ float s[128];
  int i = threadIdx.x;
  s[i] = i;
  o[i] = s[i ^ 64];
}
LUMINAL_EXPORT(missing_barrier)
