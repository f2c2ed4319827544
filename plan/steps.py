"""The steps of a plan: launches of generated kernels and calls of cuBLASLt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .dims import Dim, Expr, symbols
from .errors import LuminalError
from .lt import LtMatmul


@dataclass(frozen=True)
class KernelRecord:
    """How to launch one generated kernel.

    Arguments are, in order: a pointer for each of `writes` outputs, a pointer for each of `reads` inputs, then each of
    `scalars` as an integer of `scalar_bits` (32 or 64) bits, evaluated for the dims of the run. Grid entries may be symbolic;
    a grid with a 0 in it is not launched. `source` is the SHA-256 of the kernel's text. `waits` says that every thread of the
    kernel begins by waiting for the kernels before it, so that it may be started early where the machine code can wait.
    """

    name: str
    source: str
    entry: str
    grid: tuple[Dim, Dim, Dim]
    block: tuple[int, int, int]
    shared_bytes: int
    reads: int
    writes: int
    scalars: tuple[Dim, ...] = ()
    scalar_bits: int = 32
    flops: Dim = 0
    bytes_moved: Dim = 0
    waits: bool = False

    def validate(self) -> None:
        """Raise LuminalError if no device could launch this record."""
        x, y, z = self.block
        if not (1 <= x * y * z <= 1024 and z <= 64):
            raise LuminalError(f"kernel {self.name}: block {self.block} is outside 1..1024 threads")
        limits = (2**31 - 1, 65535, 65535)
        for axis, (size, limit) in enumerate(zip(self.grid, limits)):
            if isinstance(size, int) and not 0 <= size <= limit:
                raise LuminalError(f"kernel {self.name}: grid axis {axis} is {size}, at most {limit} allowed")
        if self.scalar_bits not in (32, 64):
            raise LuminalError(f"kernel {self.name}: scalar_bits is {self.scalar_bits}, expected 32 or 64")
        if not 0 <= self.shared_bytes <= 227 * 1024:
            raise LuminalError(f"kernel {self.name}: {self.shared_bytes} bytes of shared memory do not fit")


@dataclass(frozen=True)
class KernelStep:
    """Launch `kernel`, writing and reading buffers by id. `origin` names the ONNX nodes that it covers."""

    kernel: KernelRecord
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class LtStep:
    """Call cuBLASLt; `reads` are A, B, then C if beta ≠ 0, then the bias if the epilogue has one."""

    matmul: LtMatmul
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    origin: tuple[str, ...] = ()


Step = KernelStep | LtStep


def sizes_of(step: Step) -> Iterator[Dim]:
    """Yield every size that the step is launched with."""
    if isinstance(step, KernelStep):
        yield from step.kernel.grid
        yield from step.kernel.scalars
    else:
        yield from step.matmul.sizes()


def symbols_of(step: Step) -> set[str]:
    """Return the dim symbols that must have a value before the step can be launched."""
    return {name for size in sizes_of(step) if isinstance(size, Expr) for name in symbols(size)}
