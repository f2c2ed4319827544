"""The vocabulary that all parts share: dims, dtypes, views, records of kernels and library calls, buffers, the plan."""
