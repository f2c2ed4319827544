"""Splitting the axes of a space where views divide them, so that indices with quotients become linear."""

from __future__ import annotations

from collections.abc import Sequence

from ...plan.dims import Dim, FloorDiv, Mod, Ranges, exact_div, index_symbol
from ...plan.polynomial import pairs
from ...plan.view import View, compose, reshape
from .handles import Shape


def split_axes(views: Sequence[View]) -> list[Shape]:
    """Return for each axis of the views' common output space the extents that it splits into, most often just its own.

    An axis is split by the numbers by which an index divides its variable, as far as they divide one another.
    """
    parts: list[Shape] = []
    for axis, extent in enumerate(views[0].out_shape):
        found: list[Dim] = []
        for divisor in sorted(_divisors(views, axis), reverse=True):
            part = exact_div(extent, divisor)
            if part is not None and part != 1:
                found.append(part)
                extent = divisor
        parts.append((*found, extent))
    return parts


def split_view(view: View, shape: Shape, ranges: Ranges) -> View:
    """Return the view over `shape`, which is its output space with axes split."""
    if shape == view.out_shape:
        return view
    return compose(reshape(view.out_shape, shape, ranges), view, ranges)


def _divisors(views: Sequence[View], axis: int) -> set[int]:
    """Return the numbers by which an index divides the variable of an axis."""
    own = index_symbol(axis)
    atoms = frozenset().union(*(pairs(expr) for view in views for expr in view.index))
    return {
        pair.right for pair in atoms
        if type(pair) in (FloorDiv, Mod) and pair.left == own and type(pair.right) is int
    }
