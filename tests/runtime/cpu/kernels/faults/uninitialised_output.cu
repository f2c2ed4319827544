extern "C" __global__ void uninitialised_output(float* o, int n) { o[threadIdx.x] += 1; }
LUMINAL_EXPORT(uninitialised_output)
