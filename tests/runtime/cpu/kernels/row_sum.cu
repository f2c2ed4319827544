// o[row] = sum of x[row, :], one block a row
extern "C" __global__ void __launch_bounds__(256)
    row_sum(const float* __restrict__ x, float* __restrict__ o, int columns) {
  __shared__ float part[8];
  const float* row = x + static_cast<int64_t>(blockIdx.x) * columns;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns / 4; i += blockDim.x) {
    Pack<float, 4> v = load_pack<4>(row + 4 * i);
    sum += (v[0] + v[1]) + (v[2] + v[3]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = warp_sum(threadIdx.x < 8 ? part[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) o[blockIdx.x] = sum;
  }
}
LUMINAL_EXPORT(row_sum)
