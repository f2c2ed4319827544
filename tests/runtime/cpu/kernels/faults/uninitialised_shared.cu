extern "C" __global__ void uninitialised_shared(float* o, int n) {
  __shared__ float s[128];
  int i = threadIdx.x;
  if (i < 100) s[i] = i;
  __syncthreads();
  o[i] = s[127 - i];
}
LUMINAL_EXPORT(uninitialised_shared)
