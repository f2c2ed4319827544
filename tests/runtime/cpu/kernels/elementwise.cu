// o = silu(a) * b
extern "C" __global__ void __launch_bounds__(256)
    elementwise(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float x = a[i];
    o[i] = x / (1.0f + expf(-x)) * b[i];
  }
}
LUMINAL_EXPORT(elementwise)
