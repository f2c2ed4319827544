"""The one table of tolerances, and the comparison that every numeric test uses.

A comparison is refused as vacuous when the reference does not stand out from its own tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Tolerance:
    """`|actual - expected| <= atol + rtol * |expected|`, both in the units of the values."""

    rtol: float
    atol: float


EXACT = Tolerance(0.0, 0.0)

# One rounding per operation: elementwise chains and casts.
ELEMENTWISE = {
    "float64": Tolerance(1e-12, 1e-13),
    "float32": Tolerance(4e-6, 1e-6),
    "float16": Tolerance(4e-3, 1e-3),
    "bfloat16": Tolerance(3e-2, 8e-3),
}
# Sums of up to some thousand terms of O(1), accumulated in float32 or wider.
REDUCTION = {
    "float64": Tolerance(1e-10, 1e-11),
    "float32": Tolerance(2e-5, 1e-5),
    "float16": Tolerance(5e-3, 2e-3),
    "bfloat16": Tolerance(4e-2, 8e-3),
}
# Whole models whose outputs are O(1).
MODEL = {
    "float64": Tolerance(1e-8, 1e-9),
    "float32": Tolerance(2e-4, 1e-4),
    "float16": Tolerance(2e-2, 8e-3),
    "bfloat16": Tolerance(8e-2, 4e-2),
}
# Parity of a real model: this share of (max - min) of an output over all input sets.
MODEL_SPREAD = 1e-4
# It is at least this many times what onnxruntime's own optimisations change, as a share of the peak.
OPT_NOISES = 4
# A parity case is vacuous when an output's spread is below this share of its peak.
LEAST_SPREAD = 1e-3


def assert_close(actual, expected, classes: dict[str, Tolerance] = ELEMENTWISE, *, vacuous_ok: bool = False) -> None:
    """Compare by the class of `actual`'s dtype: integers and booleans exactly, NaN and infinities in equal places.

    `expected` may be wider than `actual`. Unless `vacuous_ok`, max|expected| must exceed 100 times the absolute tolerance.
    """
    actual = np.asarray(actual)
    expected = np.asarray(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    if actual.dtype.kind in "iub" and actual.dtype != ml_dtypes.bfloat16:
        np.testing.assert_array_equal(actual, expected)
        return
    tolerance = classes[actual.dtype.name]
    got, want = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(want)
    if not vacuous_ok and want.size:
        peak = np.abs(want[finite]).max(initial=0.0)
        assert peak > 100 * tolerance.atol, f"vacuous comparison: max|expected| is {peak}, atol is {tolerance.atol}"
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg="NaN in different places")
    infinite = np.isinf(want)
    np.testing.assert_array_equal(got[infinite], want[infinite], err_msg="infinities differ")
    with np.errstate(invalid="ignore"):
        excess = np.abs(got - want) - (tolerance.atol + tolerance.rtol * np.abs(want))
    excess = np.where(finite, excess, -np.inf)
    if want.size and not excess.max() <= 0:
        worst = np.unravel_index(np.argmax(excess), want.shape)
        raise AssertionError(
            f"{int((excess > 0).sum())} of {want.size} elements differ; worst at {tuple(map(int, worst))}: "
            f"got {got[worst]}, expected {want[worst]} (rtol {tolerance.rtol}, atol {tolerance.atol})"
        )
