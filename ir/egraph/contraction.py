"""Which sums of products are matrix products, of what sizes and strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...plan.dims import Dim, Ranges, index_symbol, product, substitute
from ...plan.dtypes import DType, bfloat16, float16, float32, float64
from ...plan.view import View
from .split_axes import split_axes, split_view

FLOATS = (float64, float32, float16, bfloat16)


@dataclass(frozen=True)
class Contraction:
    """`D[b, r, c] = sum over k of X[b, r, k] · Y[b, k, c]`, each operand strided over a flat buffer.

    `space` is the output space. `fine` is the same with its axes split where an operand's view divides them, and
    `batch_axes`, `row_axes` and `column_axes` are those of its axes that make up b, r and c, the innermost group.
    `x_*`, `y_*`, `d_*` are element strides along the merged axes; a size of 1 has stride 0.
    """

    space: tuple[Dim, ...]
    fine: tuple[Dim, ...]
    batch_axes: tuple[int, ...]
    row_axes: tuple[int, ...]
    column_axes: tuple[int, ...]
    dtype: DType
    batch: Dim
    rows: Dim
    columns: Dim
    depth: Dim
    x_base: Dim
    x_batch: Dim
    x_row: Dim
    x_depth: Dim
    y_base: Dim
    y_batch: Dim
    y_depth: Dim
    y_column: Dim
    d_batch: Dim
    d_row: Dim

    def along(self, view: View, ranges: Ranges) -> tuple[Dim, Dim, Dim, Dim] | None:
        """Return (base, strides along b, r and c) of a total view over the space; None if it has no such strides."""
        if not view.is_total or view.out_shape != self.space:
            return None
        linear = split_view(view, self.fine, ranges).linear(ranges)
        if linear is None:
            return None
        strides = [self._merged_stride(axes, linear[1]) for axes in (self.batch_axes, self.row_axes, self.column_axes)]
        return None if None in strides else (linear[0], *strides)

    def _merged_stride(self, axes: Sequence[int], strides: Sequence[Dim]) -> Dim | None:
        """Return the stride of neighbouring axes taken as one; None where they do not step as one."""
        stride: Dim = 0
        for number, axis in enumerate(axes):
            if number and stride != strides[axis] * self.fine[axis]:
                return None
            stride = strides[axis]
        return stride


@dataclass(frozen=True)
class _Group:
    """Neighbouring axes that act as one: `kind` is the set of operands (a, b) that depend on it."""

    kind: str
    axes: tuple[int, ...]
    extent: Dim
    a: Dim
    b: Dim


@dataclass(frozen=True)
class _Sides:
    """Two views over one space taken apart: its axes split, the base of each view, and the axes in groups."""

    fine: tuple[Dim, ...]
    base_a: Dim
    base_b: Dim
    outer: tuple[_Group, ...]
    summed: tuple[_Group, ...]


def _sides(a: View, b: View, rank: int, ranges: Ranges) -> _Sides | None:
    """Take two views apart whose space has `rank` axes and then the summed ones; None where one has no strides."""
    if not (a.is_total and b.is_total):
        return None
    linear_a, linear_b, fine, outer_rank = a.linear(ranges), b.linear(ranges), a.out_shape, rank
    if linear_a is None or linear_b is None:
        parts = split_axes((a, b))
        if all(len(part) == 1 for part in parts):
            return None
        fine = tuple(extent for part in parts for extent in part)
        outer_rank = sum(len(part) for part in parts[:rank])
        linear_a, linear_b = (split_view(view, fine, ranges).linear(ranges) for view in (a, b))
        if linear_a is None or linear_b is None:
            return None
    groups = _merged(fine, linear_a[1], linear_b[1], outer_rank)
    outer = tuple(group for group in groups if group.axes[0] < outer_rank)
    summed = tuple(group for group in groups if group.axes[0] >= outer_rank)
    return _Sides(fine[:outer_rank], linear_a[0], linear_b[0], outer, summed)


def contraction(
    a: View, b: View, extents: tuple[Dim, ...], dtype: DType, ranges: Ranges
) -> tuple[Contraction, bool] | None:
    """Recognise `sum over extents of load(a) * load(b)` as a matrix product; None if it is not one.

    The flag says that a holds the rows (X); else b does. Each operand must be linear and total, depend on every summed
    axis, and one of them must ignore an output axis that the other has: `sum(x * x)` is no matrix product.
    """
    rank = len(a.out_shape) - len(extents)
    if dtype not in FLOATS or a.out_shape != b.out_shape or rank < 1 or a.out_shape[rank:] != extents:
        return None
    sides = _sides(a, b, rank, ranges)
    if sides is None:
        return None
    outer, summed = sides.outer, sides.summed
    if len(summed) != 1 or summed[0].kind != "ab" or any(group.kind == "" for group in outer):
        return None
    columns, rows_first = outer[-1], outer[-1].kind == "b"
    if columns.kind == "ab":
        return None  # the innermost output axis must belong to one operand alone
    rows = _longest([group for group in outer if group.kind == ("a" if rows_first else "b")])
    # What is left is the batch; an operand that does not depend on it is shared, its stride is 0.
    rest = [group for group in outer if group is not columns and group is not rows]
    if len(rest) > 1:
        return None
    batch = rest[0] if rest else None
    inside = {id(group): product(later.extent for later in outer[k + 1 :]) for k, group in enumerate(outer)}

    def stride(group: _Group | None, operand: str) -> Dim:
        return 0 if group is None else getattr(group, operand)

    x, y = ("a", "b") if rows_first else ("b", "a")
    bases = {"a": sides.base_a, "b": sides.base_b}
    record = Contraction(
        space=a.out_shape[:rank],
        fine=sides.fine,
        batch_axes=batch.axes if batch else (),
        row_axes=rows.axes if rows else (),
        column_axes=columns.axes,
        dtype=dtype,
        batch=batch.extent if batch else 1,
        rows=rows.extent if rows else 1,
        columns=columns.extent,
        depth=summed[0].extent,
        x_base=bases[x],
        x_batch=stride(batch, x),
        x_row=stride(rows, x),
        x_depth=stride(summed[0], x),
        y_base=bases[y],
        y_batch=stride(batch, y),
        y_depth=stride(summed[0], y),
        y_column=stride(columns, y),
        d_batch=inside[id(batch)] if batch else 0,
        d_row=inside[id(rows)] if rows else 0,
    )
    return record, rows_first


def _longest(groups: Sequence[_Group]) -> _Group | None:
    """Return the group of most elements, the innermost where that cannot be said; None of none."""
    longest = None
    for group in reversed(groups):
        if longest is None or (all(isinstance(g.extent, int) for g in (group, longest)) and group.extent > longest.extent):
            longest = group
    return longest


def _merged(shape: Sequence[Dim], a: Sequence[Dim], b: Sequence[Dim], rank: int) -> list[_Group]:
    """Return the axes in order, neighbours merged where both operands step through them as through one axis."""
    groups: list[_Group] = []
    for axis, extent in enumerate(shape):
        kind = ("a" if not _is_zero(a[axis]) else "") + ("b" if not _is_zero(b[axis]) else "")
        group = _Group(kind, (axis,), extent, a[axis], b[axis])
        if groups and axis != rank:
            last = groups[-1]
            if last.kind == kind and last.a == a[axis] * extent and last.b == b[axis] * extent:
                group = _Group(kind, (*last.axes, axis), last.extent * extent, a[axis], b[axis])
                groups.pop()
        groups.append(group)
    return groups


def packing(view: View, summed: int, ranges: Ranges) -> tuple[View, View] | None:
    """Return (copy, read) with `view` equal to `read` after `copy`; None where a copy is of no use.

    The copy holds the axes that the view depends on, in their order, so that matrices lie side by side. It only moves
    elements: a view that reads some twice, or fills in others, is left alone.
    """
    repeated = set(view.broadcast_axes())
    axes = [axis for axis in range(len(view.out_shape)) if axis not in repeated]
    shape = tuple(view.out_shape[axis] for axis in axes)
    if not view.is_total or len(axes) == len(view.out_shape) or product(shape) != product(view.in_shape):
        return None
    if _is_matrix(view, len(view.out_shape) - summed, ranges):
        return None
    place = {axis: index_symbol(position) for position, axis in enumerate(axes)}
    copy = View.make(view.in_shape, shape, [substitute(expr, {}, place) for expr in view.index], ranges=ranges)
    read = View.make(shape, view.out_shape, [index_symbol(axis) for axis in axes], ranges=ranges)
    return copy, read


def _is_matrix(view: View, rank: int, ranges: Ranges) -> bool:
    """Say whether the view reads matrices as a library can: one depth, one side, perhaps a batch, one stride of 1."""
    linear = view.linear(ranges)
    if linear is None:
        return False
    groups = [group for group in _merged(view.out_shape, linear[1], linear[1], rank) if group.kind]
    sides = [group for group in groups if group.axes[0] < rank]
    depths = [group for group in groups if group.axes[0] >= rank]
    return len(sides) <= 2 and len(depths) == 1 and any(_is_one(group.a) for group in (*sides[-1:], *depths))


def is_bias(view: View, c: Contraction, ranges: Ranges) -> bool:
    """Say whether the view reads a vector along the contraction's columns, from its start, the same in every row."""
    return c.along(view, ranges) == (0, 0, 0, 1)


def _is_zero(dim: Dim) -> bool:
    return type(dim) is int and dim == 0


def _is_one(dim: Dim) -> bool:
    return type(dim) is int and dim == 1
