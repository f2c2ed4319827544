"""Measures compiled models and their peers on one GPU; see docs/benchmarks.md."""
