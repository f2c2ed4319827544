"""The error function in NumPy, to the last bit or two of float64: Taylor polynomials around a grid of centres."""

from __future__ import annotations

import math

import numpy as np

_STEP = 0.125
_LAST = 6.0  # erf(x) rounds to 1 beyond
_DEGREE = 12


def _taylor_table() -> np.ndarray:
    """Return coefficients[n, k] of (x - k * _STEP)**n, from erf'' = -2 x erf' and its derivatives."""
    centres = np.arange(int(_LAST / _STEP) + 2) * _STEP
    table = np.empty((_DEGREE + 1, centres.size))
    table[0] = [math.erf(centre) for centre in centres]
    before = np.zeros_like(centres)
    current = 2.0 / math.sqrt(math.pi) * np.exp(-centres * centres)  # Taylor coefficients of the derivative
    for n in range(_DEGREE):
        table[n + 1] = current / (n + 1)
        before, current = current, -2.0 * (centres * current + before) / (n + 1)
    return table


_TABLE = _taylor_table()


def erf(x: np.ndarray) -> np.ndarray:
    """Return erf(x) for a float32 or float64 array, computed in float64; within 1e-15 before the final rounding."""
    x = np.asarray(x)
    wide = np.atleast_1d(x).astype(np.float64).reshape(-1)
    result = np.empty_like(wide)
    for start in range(0, wide.size, 1 << 16):  # pieces that stay in cache
        piece = slice(start, start + (1 << 16))
        result[piece] = _erf_piece(wide[piece])
    return result.reshape(x.shape).astype(x.dtype)


def _erf_piece(x: np.ndarray) -> np.ndarray:
    size = np.minimum(np.abs(np.where(np.isnan(x), 0.0, x)), _LAST)
    centre = np.rint(size / _STEP).astype(np.intp)
    offset = size - centre * _STEP
    total = _TABLE[_DEGREE][centre]
    for coefficients in _TABLE[_DEGREE - 1 :: -1]:
        total = total * offset + coefficients[centre]
    return np.where(np.isnan(x), x, np.copysign(total, x))
