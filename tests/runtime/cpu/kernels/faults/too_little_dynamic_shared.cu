extern "C" __global__ void too_little_dynamic_shared(float* o, int n) {
  float* s = dynamic_shared<float>();
  int i = threadIdx.x;
  s[i] = i;
  __syncthreads();
  o[i] = s[i ^ 1];
}
LUMINAL_EXPORT(too_little_dynamic_shared)
