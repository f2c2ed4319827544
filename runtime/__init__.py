"""Runs artifacts: the file reader, memory, CUDA graphs, the CPU road, and `session.InferenceSession`."""
