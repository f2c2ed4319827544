"""Chosen kernels to CUDA C++, plans and machine code."""

from .binaries import Binaries, compile_sources
from .joining import Joined, join
from .lowering import Lowered, lower
from .region_kernels import lower_region
from .scatter import lower_scatter

__all__ = ["Binaries", "Joined", "Lowered", "compile_sources", "join", "lower", "lower_region", "lower_scatter"]
