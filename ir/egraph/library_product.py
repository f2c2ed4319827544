"""What cuBLASLt can make of one matrix product: scaled, added to, activated and cast, all in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...plan.dims import Dim, Ranges, prove_nonnegative
from ...plan.dtypes import DType, float32, float64
from ...plan.lt import RESULT_TYPES, LtMatmul
from ...plan.view import View
from .contraction import Contraction, is_bias


@dataclass(frozen=True)
class Addend:
    """How a matrix that is added is read: the strides along the product's batch and rows, 1 along its columns."""

    base: Dim
    batch: Dim
    row: Dim
    dtype: DType


@dataclass(frozen=True)
class LibraryProduct:
    """`activation(alpha · factors + beta · addend + bias)`, rounded to `dtype`: a value that one call may store.

    The methods return what the value becomes by one more operation, or None where the library computes no such thing:
    it scales first, then adds, then activates. What lies between is not rounded; a product is rounded once.
    """

    factors: Contraction
    dtype: DType
    alpha: float = 1.0
    beta: float = 0.0
    addend: Addend | None = None
    bias: DType | None = None
    activation: str = ""
    is_narrowed: bool = False

    @property
    def _is_plain(self) -> bool:
        return self == LibraryProduct(self.factors, self.dtype)

    @property
    def _takes_addends(self) -> bool:
        return not self.activation and not self.is_narrowed

    def times(self, number: float) -> LibraryProduct | None:
        """A scale of 1 would be the value itself; one of 0 would hide NaN and infinities, which the library knows."""
        scale = float(self._scale_type.numpy.type(number))
        if not self._is_plain or not math.isfinite(scale) or scale in (0.0, 1.0):
            return None
        return replace(self, alpha=scale)

    @property
    def _scale_type(self) -> DType:
        return float64 if self.factors.dtype is float64 else float32

    def plus_bias(self, view: View, ranges: Ranges) -> LibraryProduct | None:
        """A bias is a vector along the columns, read from its start, of the type that is stored."""
        if not self._takes_addends or self.bias is not None or not is_bias(view, self.factors, ranges):
            return None
        return replace(self, bias=self.dtype)

    def plus_matrix(self, view: View, factor: float, ranges: Ranges) -> LibraryProduct | None:
        """A matrix may be part of a wider one, or one for all of a batch, but its columns lie side by side.

        One row for all is a bias or nothing: no leading dimension says so.
        """
        c = self.factors
        scale = float(self._scale_type.numpy.type(factor))
        if not self._takes_addends or self.addend is not None or not math.isfinite(scale) or scale == 0.0:
            return None
        read = c.along(view, ranges)
        if read is None or read[3] != 1:
            return None
        base, batch, row, _ = read
        row = c.columns if c.rows == 1 else row
        if not all(prove_nonnegative(value, ranges) for value in (base, batch, row - c.columns)):
            return None
        return replace(self, beta=scale, addend=Addend(base, batch, row, self.dtype))

    def activated(self, name: str) -> LibraryProduct | None:
        if not self._takes_addends or self.dtype is float64:
            return None
        return replace(self, activation=name)

    def cast(self, dtype: DType) -> LibraryProduct | None:
        """Products of 16 bits may be kept in float32, sums of float32 may be stored in the factors' type, once."""
        narrow = self.factors.dtype
        if self.is_narrowed or narrow.bits != 16:
            return None
        if self.dtype is narrow and dtype is float32:
            return replace(self, dtype=dtype)
        if self.dtype is float32 and dtype is narrow:
            return replace(self, dtype=dtype, is_narrowed=True)
        return None

    def records(self, ranges: Ranges) -> dict[str, LtMatmul]:
        """Return the calls that store the value row by row, by the order of D.

        In the `col` family D is column-ordered, so the library is given the transposed problem: its A is our Y, its B
        our X, m our columns. In the `row` family nothing is swapped; it has no epilogues.
        """
        c = self.factors
        parts = [part for part in (self.bias, self.addend and self.addend.dtype) if part is not None]
        if self.dtype not in RESULT_TYPES[c.dtype] or any(part is not self.dtype for part in parts):
            return {}
        if not all(prove_nonnegative(size - 1, ranges) for size in (c.batch, c.rows, c.columns, c.depth)):
            return {}
        if not all(prove_nonnegative(stride, ranges) for stride in (c.x_base, c.y_base, c.x_batch, c.y_batch)):
            return {}
        x = _storage(c.rows, c.x_row, c.depth, c.x_depth, ranges)
        y = _storage(c.depth, c.y_depth, c.columns, c.y_column, ranges)
        if x is None or y is None:
            return {}
        (x_storage, x_ld), (y_storage, y_ld) = x, y
        common = {
            "k": c.depth,
            "batch": c.batch,
            "stride_d": c.d_batch,
            "ldd": c.columns if c.rows == 1 else c.d_row,
            "type_a": c.dtype,
            "type_b": c.dtype,
            "type_d": self.dtype,
            "compute": self._scale_type,
            "alpha": self.alpha,
            **self._of_c(),
        }
        of_x = {"base": c.x_base, "batch": c.x_batch, "ld": x_ld}
        of_y = {"base": c.y_base, "batch": c.y_batch, "ld": y_ld}
        epilogue = "_".join(filter(None, (self.activation, "bias" if self.bias else ""))) or "default"
        found = {
            "col": LtMatmul(
                m=c.columns, n=c.rows,
                transpose_a=y_storage == "cm", transpose_b=x_storage == "cm",
                order_a="col", order_b="col", order_c="col", order_d="col",
                epilogue=epilogue, **_operands(of_y, of_x), **common,
            )
        }
        if epilogue == "default":
            found["row"] = LtMatmul(
                m=c.rows, n=c.columns,
                transpose_a=False, transpose_b=False,
                order_a=_order(x_storage), order_b=_order(y_storage), order_c="row", order_d="row",
                **_operands(of_x, of_y), **common,
            )
        for record in found.values():
            record.validate()
        return found

    def _of_c(self) -> dict[str, Dim | float]:
        if self.addend is None:
            return {}
        read = self.addend
        return {"beta": self.beta, "ldc": read.row, "stride_c": read.batch, "offset_c": read.base}


def _operands(a: dict[str, Dim], b: dict[str, Dim]) -> dict[str, Dim]:
    return {
        "lda": a["ld"], "ldb": b["ld"],
        "stride_a": a["batch"], "stride_b": b["batch"],
        "offset_a": a["base"], "offset_b": b["base"],
    }


def _storage(rows: Dim, row: Dim, columns: Dim, column: Dim, ranges: Ranges) -> tuple[str, Dim] | None:
    """Return how a matrix of these sizes and strides is stored, and its leading dimension; None if neither way fits.

    Row-major storage (rm) has stride 1 along the columns.
    """
    if column == 1:
        ld = columns if rows == 1 else row
        return ("rm", ld) if prove_nonnegative(ld - columns, ranges) else None
    if row == 1 or rows == 1:
        return ("cm", column) if prove_nonnegative(column - rows, ranges) else None
    return None


def _order(storage: str) -> str:
    return "row" if storage == "rm" else "col"
