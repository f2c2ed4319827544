extern "C" __global__ void shared_overflow(float* o, int n) {
  __shared__ float s[128];
  __shared__ float r[128];
  int i = threadIdx.x;
  r[i] = 1;
  s[i + 1] = i;
  __syncthreads();
  o[i] = s[i] + r[i];
}
LUMINAL_EXPORT(shared_overflow)
