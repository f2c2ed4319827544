extern "C" __global__ void blocks_write_one_place(float* o, int n) { o[threadIdx.x] = blockIdx.x; }
LUMINAL_EXPORT(blocks_write_one_place)
