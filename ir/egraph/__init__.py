"""The e-graph of equal programs: filling it from a graph, saturating it, and reading it back as kernels to choose from."""
