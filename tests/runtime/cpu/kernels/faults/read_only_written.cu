extern "C" __global__ void read_only_written(float* o, int n) { o[threadIdx.x] = 1; }
LUMINAL_EXPORT(read_only_written)
