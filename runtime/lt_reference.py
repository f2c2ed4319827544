"""What cuBLASLt computes for an `LtMatmul`, in NumPy: the CPU road's library, reading the very record the GPU reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..plan.dtypes import DType
from ..plan.errors import KernelFault
from ..plan.lt import LtMatmul


def run_matmul(record: LtMatmul, out: np.ndarray, operands: Sequence[np.ndarray]) -> None:
    """Compute `record`, whose sizes are all numbers, into `out`, which may be the buffer of C laid out as D is.

    `out` and `operands` (A, B, then C if beta ≠ 0, then the bias if the epilogue has one) are the buffers, flat, each of
    its type in the record. Sums are of float32, of float64 for float64 operands, and rounded once, when stored.
    Raises KernelFault if the record reaches outside a buffer.
    """
    if len(operands) != record.operand_count:
        raise KernelFault(f"matrix product takes {record.operand_count} operands, got {len(operands)}: {record}")
    wide = record.compute.numpy
    matrices = record.matrices()
    a = _matrices("A", operands[0], record, record.type_a, matrices["A"], record.stride_a, record.offset_a)
    b = _matrices("B", operands[1], record, record.type_b, matrices["B"], record.stride_b, record.offset_b)
    d = _matrices("D", out, record, record.type_d, matrices["D"], record.stride_d, 0)
    if record.transpose_a:
        a = a.swapaxes(1, 2)
    if record.transpose_b:
        b = b.swapaxes(1, 2)
    with np.errstate(all="ignore"):
        result = np.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False))
        if record.alpha != 1.0:
            result *= wide.type(record.alpha)
        if record.has_c:
            c = _matrices("C", operands[2], record, record.type_d, matrices["C"], record.stride_c, record.offset_c)
            result += wide.type(record.beta) * c.astype(wide)
        if record.has_bias:
            bias = operands[-1]
            _check("the bias", bias, record.type_d, record.m, record)
            result += bias[: record.m].astype(wide)[:, None]
        if record.activation:
            result = ACTIVATIONS[record.activation](result)
        d[...] = result.astype(record.type_d.numpy)


def _relu(x: np.ndarray) -> np.ndarray:
    """The library's: NaN becomes 0."""
    return np.where(x > 0, x, x.dtype.type(0))


def _gelu(x: np.ndarray) -> np.ndarray:
    """The library's: the approximation by tanh."""
    inner = np.sqrt(2 / np.pi).astype(x.dtype) * (x + x.dtype.type(0.044715) * x * x * x)
    return x.dtype.type(0.5) * x * (1 + np.tanh(inner))


ACTIVATIONS = {"relu": _relu, "gelu": _gelu}


def _matrices(
    label: str,
    buffer: np.ndarray,
    record: LtMatmul,
    dtype: DType,
    layout: tuple[int, int, int, str],
    stride: int,
    offset: int,
) -> np.ndarray:
    """Return the view [batch, rows, columns] of a buffer that a layout describes."""
    rows, columns, ld, order = layout
    down, across = (1, ld) if order == "col" else (ld, 1)
    stride = stride if record.batch > 1 else 0
    last = offset + (record.batch - 1) * stride + max(rows - 1, 0) * down + max(columns - 1, 0) * across
    empty = rows == 0 or columns == 0
    _check(label, buffer, dtype, 0 if empty else last + 1, record)
    if offset < 0 or stride < 0:
        raise KernelFault(f"matrix product reads {label} from {offset} on, in steps of {stride}: {record}")
    if empty:
        return np.zeros((record.batch, rows, columns), dtype.numpy)
    size = dtype.size
    return np.lib.stride_tricks.as_strided(
        buffer[offset:], (record.batch, rows, columns), (stride * size, down * size, across * size)
    )


def _check(label: str, buffer: np.ndarray, dtype: DType, needed: int, record: LtMatmul) -> None:
    if buffer.dtype != dtype.numpy:
        raise KernelFault(f"{label} of a matrix product is {buffer.dtype}, the record says {dtype}: {record}")
    if buffer.ndim != 1 or needed > buffer.size:
        raise KernelFault(f"matrix product reaches element {needed - 1} of {label}, which has {buffer.size}: {record}")
