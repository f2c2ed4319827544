"""What one generated kernel computes: a small expression DAG between loads and stores.

A region is the unit that the search chooses and that code generation turns into one CUDA kernel. It is pure: its meaning is
independent of any schedule. Every node has a *space*, the dims that it is computed over; index variables `i0, i1, …` in
views and iotas range over the node's own space.

    softmax over the last axis of a [batch, n] tensor:
      0  load x                            space [batch, n]
      1  reduce max 0 over (n)             space [batch]
      2  broadcast 1 over (n)              space [batch, n]
      3  elementwise sub 0 2, 4 exp 3      space [batch, n]
      5  reduce sum 4 over (n)             space [batch]
      6  broadcast 5 over (n), 7 div 4 6   space [batch, n]
      store 7
"""

from __future__ import annotations

from dataclasses import dataclass

from ..plan.dims import Dim
from ..plan.dtypes import DType
from ..plan.view import View
from .graph import TensorType

Space = tuple[Dim, ...]


@dataclass(frozen=True)
class Load:
    """Read operand `slot` through `view`, whose `out_shape` is the node's space."""

    slot: int
    view: View
    dtype: DType
    space: Space
    args: tuple[int, ...] = ()


@dataclass(frozen=True)
class Constant:
    """A scalar, the same at every point. `bits` is its exact little-endian bytes in `dtype`."""

    bits: bytes
    dtype: DType
    space: Space
    args: tuple[int, ...] = ()


@dataclass(frozen=True)
class Iota:
    """The integer expression `expr` of the index variables and dims, as an int64."""

    expr: Dim
    dtype: DType
    space: Space
    args: tuple[int, ...] = ()


@dataclass(frozen=True)
class Elementwise:
    """Row `fn` of the scalar table (`ir/scalars.py`) applied point by point; `cast` converts to `dtype`."""

    fn: str
    args: tuple[int, ...]
    dtype: DType
    space: Space


@dataclass(frozen=True)
class Gather:
    """Element number `args[0]` (an integer, clamped to the valid range) of operand `slot` in row-major order."""

    slot: int
    args: tuple[int, ...]
    dtype: DType
    space: Space


@dataclass(frozen=True)
class Reduce:
    """`fn` (sum, prod, max, min) of `args[0]` over its trailing axes `extents`; their space is `space + extents`.

    Sums and products of floats accumulate in float32 or wider; max and min propagate NaN. Of nothing: 0, 1, lowest, highest.
    """

    fn: str
    args: tuple[int, ...]
    extents: Space
    dtype: DType
    space: Space


@dataclass(frozen=True)
class Broadcast:
    """`args[0]`, of space `space[:-len(extents)]`, repeated along the trailing axes `extents`."""

    args: tuple[int, ...]
    extents: Space
    dtype: DType
    space: Space


RegionNode = Load | Constant | Iota | Elementwise | Gather | Reduce | Broadcast


@dataclass(frozen=True)
class Region:
    """Nodes in topological order (operands are positions), the nodes that are stored, and the operands' types.

    Store number k writes node `stores[k]`, converted to nothing else than its dtype, as a row-major tensor of its space.
    All stores lie in the row space or the full space (see `row_split`). Slots are numbered by first use.
    """

    nodes: tuple[RegionNode, ...]
    stores: tuple[int, ...]
    operands: tuple[TensorType, ...]

    @property
    def reductions(self) -> tuple[Reduce, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Reduce))

    def row_split(self) -> tuple[Space, Space] | None:
        """Return (row space, column space) shared by every reduction; None if there is none to share.

        The row program needs it: every node is computed either once a row or once an element of a row.
        Without reductions: (space of the store, ()).
        """
        reductions = self.reductions
        if not reductions:
            spaces = {node.space for node in self.nodes}
            return (self.nodes[self.stores[0]].space, ()) if len(spaces) == 1 else None
        rows, columns = reductions[0].space, reductions[0].extents
        full = rows + columns
        fits = all(node.space in (rows, full) for node in self.nodes) and all(
            (node.space, node.extents) == (rows, columns) for node in reductions
        )
        return (rows, columns) if fits else None
