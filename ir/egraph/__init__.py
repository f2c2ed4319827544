"""The e-graph of equal programs: filled from a graph, saturated, and read back as kernels to choose from."""
