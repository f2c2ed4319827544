"""The chosen program: kernels in launch order over named tensors. What the search returns and code generation takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..plan.dims import Dim, Range
from ..plan.lt import LtMatmul
from .graph import TensorType
from .region import Region


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor that lives in memory. `kind` is input, weight (then `data` holds it), or computed."""

    id: int
    type: TensorType
    kind: str
    name: str
    data: np.ndarray | None = None


@dataclass(frozen=True)
class RegionKernel:
    """One generated kernel: `region` over the tensors `reads` (by slot) into `writes` (by store)."""

    region: Region
    schedule: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScatterKernel:
    """`writes[0] = reads[0]`, then element `reads[1][p]` of it becomes `fn` of itself and `reads[2][p]`, in order of p."""

    fn: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class LtKernel:
    """One cuBLASLt call: `reads` are A, B, then C if beta ≠ 0, then the bias if the epilogue has one."""

    matmul: LtMatmul
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class SizeRead:
    """Nothing is computed: from here on `symbol` is the number in `reads[0]`, an int64 scalar within least..most."""

    symbol: str
    least: Dim
    most: Dim
    reads: tuple[int, ...]
    writes: tuple[int, ...] = ()
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoopKernel:
    """A loop: `body` runs once for each trip (`ir/control.py` says what the fields mean).

    `reads` are the condition if it is conditional, the initial states, the captures: the last two are the body's inputs.
    `writes` are the last states, then the rows. The body's outputs are the condition, the next states and one row each.
    """

    body: Program
    trip: str
    trips: Dim | None
    states: int
    conditional: bool
    count: str | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class BranchKernel:
    """One of two programs is run: `reads` are the condition, then the inputs of both; `writes` their outputs."""

    then: Program
    otherwise: Program
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    origin: tuple[str, ...] = ()


Kernel = RegionKernel | ScatterKernel | LtKernel | SizeRead | LoopKernel | BranchKernel


@dataclass(frozen=True)
class Program:
    """Kernels in an order in which every tensor is written before it is read, every size read before it is needed.

    `inputs` and `outputs` pair each name of the signature with its type and a tensor id; an output's tensor may be an
    input, a weight, another output's, or one of equal element count and another shape (a free reshape).
    """

    name: str
    tensors: tuple[Tensor, ...]
    kernels: tuple[Kernel, ...]
    inputs: tuple[tuple[str, TensorType, int], ...]
    outputs: tuple[tuple[str, TensorType, int], ...]
    ranges: dict[str, Range]

    def all_kernels(self) -> Iterator[Kernel]:
        """Yield every kernel in order, those of bodies after the loop or branch that holds them."""
        for kernel in self.kernels:
            yield kernel
            for body in bodies_of(kernel):
                yield from body.all_kernels()


def bodies_of(kernel: Kernel) -> tuple[Program, ...]:
    """Return the programs that a kernel holds; most hold none."""
    if isinstance(kernel, LoopKernel):
        return (kernel.body,)
    return (kernel.then, kernel.otherwise) if isinstance(kernel, BranchKernel) else ()
