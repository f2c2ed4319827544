"""A sum of products in NumPy, in blocks: the product of the operands over the whole space is never stored.

It sorts the axes into batch, rows, columns and depth, and lets `numpy.matmul` do the work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

BLOCK_BYTES = 64 << 20  # copies of operands stay below this, where they can be split


def sum_of_products(a: np.ndarray, b: np.ndarray, space: Sequence[int], count: int, dtype: np.dtype) -> np.ndarray:
    """Return the sum of `a * b` over the last `count` axes of space, computed and returned in `dtype`.

    a and b have as many axes as space; an extent of 1 is repeated.
    """
    kept = len(space) - count
    if 0 in space:
        return np.zeros(tuple(space[:kept]), dtype)
    depth = list(range(kept, len(space)))
    varies = [(a.shape[axis] > 1, b.shape[axis] > 1) for axis in range(kept)]
    batch = [axis for axis in range(kept) if varies[axis] == (True, True)]
    rows = [axis for axis in range(kept) if varies[axis] == (True, False)]
    columns = [axis for axis in range(kept) if varies[axis] == (False, True)]
    idle = [axis for axis in range(kept) if varies[axis] == (False, False)]

    def arranged(operand: np.ndarray, own: list[int]) -> np.ndarray:
        axes = [*batch, *own, *depth]
        others = [axis for axis in range(len(space)) if axis not in axes]
        moved = operand.transpose([*axes, *others])[(..., *[0] * len(others))]
        return np.broadcast_to(moved, [space[axis] for axis in axes])

    left, right = arranged(a, rows), arranged(b, columns)
    result = np.empty([space[axis] for axis in (*batch, *rows, *columns)], dtype)
    _multiply(left, right, result, len(batch), len(rows), len(columns), len(depth))
    order = [*batch, *rows, *columns, *idle]
    result = result.reshape((*result.shape, *[1] * len(idle))).transpose([order.index(axis) for axis in range(kept)])
    return np.broadcast_to(result, tuple(space[:kept]))


def _multiply(
    left: np.ndarray, right: np.ndarray, out: np.ndarray, batch: int, rows: int, columns: int, depth: int
) -> None:
    """Write the products of left [*batch, *rows, *depth] and right [*batch, *columns, *depth] into out."""
    size = out.dtype.itemsize
    if (left.size + right.size) * size > BLOCK_BYTES and out.size > 1:
        big_left = left.size >= right.size
        own = range(batch, batch + rows) if big_left else range(batch + rows, batch + rows + columns)
        axis = max([*range(batch), *own], key=lambda k: out.shape[k])
        if out.shape[axis] > 1:
            half = out.shape[axis] // 2
            for piece in (slice(0, half), slice(half, None)):
                part = (*[slice(None)] * axis, piece)
                right_part = part if axis < batch else (*[slice(None)] * (axis - rows), piece)
                _multiply(
                    left[part] if axis < batch + rows else left,
                    right[right_part] if not batch <= axis < batch + rows else right,
                    out[part], batch, rows, columns, depth,
                )
            return
    counts = [math.prod(out.shape[:batch]), math.prod(out.shape[batch : batch + rows])]
    width = math.prod(out.shape[batch + rows :])
    length = math.prod(left.shape[left.ndim - depth :])
    first = left.reshape(counts[0], counts[1], length).astype(out.dtype, copy=False)
    second = right.reshape(counts[0], width, length).astype(out.dtype, copy=False)
    with np.errstate(all="ignore"):
        if counts[1] == 1 and width == 1:
            wide = np.dtype(np.float64) if out.dtype.kind == "f" else out.dtype
            result = (first * second).sum(axis=-1, dtype=wide)
        else:
            result = np.matmul(first, second.transpose(0, 2, 1))
    out[...] = result.reshape(out.shape)
