"""Chosen kernels to CUDA C++, plans and machine code."""

from .binaries import Binaries, compile_sources
from .lowering import Lowered, lower
from .region_kernels import lower_region
from .scatter import lower_scatter

__all__ = ["Binaries", "Lowered", "compile_sources", "lower", "lower_region", "lower_scatter"]
