"""Which sums of products are matrix products, and in which cuBLASLt layouts they can be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...plan.dims import Dim, Ranges, index_symbol, product, prove_nonnegative, substitute
from ...plan.dtypes import DType, bfloat16, float16, float32, float64
from ...plan.lt import LtMatmul
from ...plan.view import View

FLOATS = (float64, float32, float16, bfloat16)


@dataclass(frozen=True)
class Contraction:
    """`D[b, r, c] = sum over k of X[b, r, k] · Y[b, k, c]`, each operand strided over a flat buffer.

    `space` is the output space before axes were merged, `column_axes` those of its axes that make up `columns`, the
    innermost group. `x_*`, `y_*`, `d_*` are element strides along the merged axes; a size of 1 has stride 0.
    """

    space: tuple[Dim, ...]
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


@dataclass(frozen=True)
class _Group:
    """Neighbouring axes that act as one: `kind` is the set of operands (a, b) that depend on it."""

    kind: str
    axes: tuple[int, ...]
    extent: Dim
    a: Dim
    b: Dim


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
    linear_a, linear_b = (view.linear(ranges) if view.is_total else None for view in (a, b))
    if linear_a is None or linear_b is None:
        return None
    groups = _merged(a.out_shape, linear_a[1], linear_b[1], rank)
    summed = [group for group in groups if group.axes[0] >= rank]
    outer = [group for group in groups if group.axes[0] < rank]
    if len(summed) != 1 or summed[0].kind != "ab" or any(group.kind == "" for group in outer):
        return None
    columns, rows_first = outer[-1], outer[-1].kind == "b"
    if columns.kind == "ab":
        return None  # the innermost output axis must belong to one operand alone
    rows = next((group for group in reversed(outer) if group.kind == ("a" if rows_first else "b")), None)
    # What is left is the batch; an operand that does not depend on it is shared, its stride is 0.
    rest = [group for group in outer if group is not columns and group is not rows]
    if len(rest) > 1:
        return None
    batch = rest[0] if rest else None
    inside = {id(group): product(later.extent for later in outer[k + 1 :]) for k, group in enumerate(outer)}

    def stride(group: _Group | None, operand: str) -> Dim:
        return 0 if group is None else getattr(group, operand)

    x, y = ("a", "b") if rows_first else ("b", "a")
    bases = {"a": linear_a[0], "b": linear_b[0]}
    record = Contraction(
        space=a.out_shape[:rank],
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


# Family, storage of X, storage of Y. Row-major storage (rm) has stride 1 along depth for X, along columns for Y.
LAYOUTS = tuple((family, x, y) for family in ("col", "row") for x in ("rm", "cm") for y in ("rm", "cm"))


def layout_key(family: str, x: str, y: str) -> str:
    """Return the name of a family of layouts with the storage of both operands."""
    return f"{family}-{x}-{y}"


def lt_records(c: Contraction, ranges: Ranges) -> dict[str, LtMatmul]:
    """Return the cuBLASLt record for each layout key that can express the contraction.

    In the `col` family D is column-ordered, so the library is given the transposed problem: its A is our Y, its B our
    X, m our columns. In the `row` family nothing is swapped.
    """
    if not all(prove_nonnegative(size - 1, ranges) for size in (c.batch, c.rows, c.columns, c.depth)):
        return {}
    if not all(prove_nonnegative(stride, ranges) for stride in (c.x_base, c.y_base, c.x_batch, c.y_batch)):
        return {}
    x = _storage(c.rows, c.x_row, c.depth, c.x_depth, ranges)
    y = _storage(c.depth, c.y_depth, c.columns, c.y_column, ranges)
    if x is None or y is None:
        return {}
    (x_storage, x_ld), (y_storage, y_ld) = x, y
    d_ld = c.columns if _is_one(c.rows) else c.d_row
    common = {
        "k": c.depth,
        "batch": c.batch,
        "stride_d": c.d_batch,
        "ldd": d_ld,
        "type_a": c.dtype,
        "type_b": c.dtype,
        "type_d": c.dtype,
        "compute": float64 if c.dtype is float64 else float32,
    }
    of_x = {"base": c.x_base, "batch": c.x_batch, "ld": x_ld}
    of_y = {"base": c.y_base, "batch": c.y_batch, "ld": y_ld}
    col = LtMatmul(
        m=c.columns, n=c.rows,
        transpose_a=y_storage == "cm", transpose_b=x_storage == "cm",
        order_a="col", order_b="col", order_c="col", order_d="col",
        **_operands(of_y, of_x), **common,
    )
    row = LtMatmul(
        m=c.rows, n=c.columns,
        transpose_a=False, transpose_b=False,
        order_a=_order(x_storage), order_b=_order(y_storage), order_c="row", order_d="row",
        **_operands(of_x, of_y), **common,
    )
    records = {"col": col, "row": row}
    for record in records.values():
        record.validate()
    return {layout_key(family, x_storage, y_storage): record for family, record in records.items()}


def _operands(a: dict[str, Dim], b: dict[str, Dim]) -> dict[str, Dim]:
    return {
        "lda": a["ld"], "ldb": b["ld"],
        "stride_a": a["batch"], "stride_b": b["batch"],
        "offset_a": a["base"], "offset_b": b["base"],
    }


def _storage(rows: Dim, row: Dim, columns: Dim, column: Dim, ranges: Ranges) -> tuple[str, Dim] | None:
    """Return how a matrix of these sizes and strides is stored, and its leading dimension; None if neither way fits."""
    if _is_one(column):
        ld = columns if _is_one(rows) else row
        return ("rm", ld) if prove_nonnegative(ld - columns, ranges) else None
    if _is_one(row) or _is_one(rows):
        return ("cm", column) if prove_nonnegative(column - rows, ranges) else None
    return None


def _order(storage: str) -> str:
    return "row" if storage == "rm" else "col"


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
    if not view.is_total or view.out_shape != c.space:
        return False
    linear = view.linear(ranges)
    if linear is None or not _is_zero(linear[0]):
        return False
    expected: Dim = 1
    wanted = dict.fromkeys(range(len(c.space)), 0)
    for axis in reversed(c.column_axes):
        wanted[axis] = expected
        expected = expected * c.space[axis]
    return all(stride == wanted[axis] for axis, stride in enumerate(linear[1]))


def _is_zero(dim: Dim) -> bool:
    return type(dim) is int and dim == 0


def _is_one(dim: Dim) -> bool:
    return type(dim) is int and dim == 1
