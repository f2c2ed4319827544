"""The CPU road: emitted CUDA C++ kernels, compiled by the host's C++ compiler and run with a checker.

`compile_host` makes a `HostKernel` of a kernel's text; `HostKernel.launch` runs it with a grid and blocks as on a
GPU. The C++ side is a shim (`luminal_host.h`) that every kernel's prelude includes, and a runtime
library: `scheduler.cpp` is the place to start reading.
"""

from .checked import CheckedBuffer
from .kernel import HostKernel, compile_host, compile_many

__all__ = ["CheckedBuffer", "HostKernel", "compile_host", "compile_many"]
