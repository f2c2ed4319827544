"""Where scalar functions jump: what they may give if their operands are off by no more than so much."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from luminal_onnx.ir.graph import Node

Arrays = list[np.ndarray]
_COMPARISONS = frozenset({"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"})
_STEPS = frozenset({"floor", "ceil", "trunc", "round_even", "sign", "isnan", "isinf"})
_MODULI = {"floor_mod": np.floor, "trunc_mod": np.trunc}
# Continuous but for a pole, or the end of where they have a value.
_EDGES = frozenset({"sqrt", "rsqrt", "log", "log2", "asin", "acos", "atanh", "acosh", "recip", "div", "pow", "tan"})


def choices(
    node: Node, centres: Arrays, radii: Arrays, computed: Callable[[Arrays], np.ndarray]
) -> tuple[np.ndarray, Arrays] | None:
    """Return where an elementwise node may jump, and results on the sides of the jump; None if it never does.

    Each operand is within its radius of its centre; `computed` says what the node makes of operands.
    """
    fn = node.attrs["fn"]
    steps = fn in _STEPS or (fn == "cast" and not node.types[0].dtype.is_float)
    with np.errstate(all="ignore"):
        if fn in _COMPARISONS:
            return _compared(centres, radii)
        if fn in _MODULI:
            return _wrapped(_MODULI[fn], centres, radii)
        if not steps and fn not in _EDGES:
            return None
        results = [computed(point) for point in _corners(centres, radii)]
        where = np.zeros(results[0].shape, bool)
        for one in results[1:]:
            where |= one != results[0] if steps else _sort(one) != _sort(results[0])
        return where, results


def _compared(centres: Arrays, radii: Arrays) -> tuple[np.ndarray, Arrays]:
    """A comparison may fall either way as soon as the operands may be equal."""
    radius = radii[0] + radii[1]
    apart = np.abs(np.subtract(*centres, dtype=np.float64))
    where = (radius > 0) & ~(apart > radius)
    return where, [np.zeros(where.shape, bool), np.ones(where.shape, bool)]


def _wrapped(whole: Callable, centres: Arrays, radii: Arrays) -> tuple[np.ndarray, Arrays]:
    """A remainder jumps by the divisor where the quotient is near a whole number."""
    (x, y), (off_x, off_y) = centres, radii
    quotient = x / y
    off = (off_x + np.abs(quotient) * off_y) / np.abs(y)
    low, high = whole(quotient - off), whole(quotient + off)
    return (off > 0) & (low != high), [x - y * low, x - y * high]


def _corners(centres: Arrays, radii: Arrays) -> list[Arrays]:
    """Every operand at either end of what it may be, and at 0 or 1 in size where that lies between."""
    axes = []
    for centre, radius in zip(centres, radii):
        between = np.where(np.abs(centre) <= radius, 0.0, centre)
        between = np.where(np.abs(np.abs(centre) - 1) <= radius, np.sign(centre), between)
        axes.append([centre - radius, centre + radius, between] if radius.any() else [centre])
    points: list[Arrays] = [[]]
    for options in axes:
        points = [[*point, option] for point in points for option in options]
    return points


def _sort(array: np.ndarray) -> np.ndarray:
    """Tell numbers of either sign, infinities and NaN apart."""
    return np.where(np.isnan(array), 3.0, np.sign(array) * np.where(np.isinf(array), 2.0, 1.0))
