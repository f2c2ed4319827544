"""Attention as the rules see it: how a result reads its probabilities and its values."""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.dims import Dim, FloorDiv, Mod, Ranges, exact_div, index_axes, index_symbol, linear_terms, product
from ...plan.polynomial import pairs
from ...plan.view import View, compose, reshape
from .handles import Shape


@dataclass(frozen=True)
class Reading:
    """The result ranges over `space`, the sum over `extents`; both views read at `space + extents`."""

    space: Shape
    extents: Shape
    probabilities: View
    values: View


def reading(probabilities: View, values: View, softmaxed: Shape, summed: Shape, space: Shape) -> Reading | None:
    """Return how attention reads its parts; None where the sum does not run along the softmax's own axis, in full."""
    if softmaxed != summed or len(summed) != 1:
        return None
    if not (probabilities.is_total and values.is_total):
        return None
    if probabilities.out_shape != space + summed or values.out_shape != space + summed:
        return None
    *rows, last = probabilities.index
    along = len(space)
    if last != index_symbol(along) or any(along in index_axes(expr) for expr in rows):
        return None
    return Reading(space, summed, probabilities, values)


def reordered(read: Reading, view: View, ranges: Ranges) -> Reading | None:
    """Return the reading of the result through the view; None where that does more than move, split and merge its axes.

    Axes that the view merges stay apart: a tensor is a flat buffer.
    """
    if not view.is_total or product(view.in_shape) != product(view.out_shape):
        return None
    turned = _apart(view, ranges)
    linear = all(linear_terms(expr, range(len(turned.out_shape))) is not None for expr in turned.index)
    if not linear or turned.is_identity(ranges):
        return None
    wider = beside(turned, read.extents, ranges)
    views = [compose(wider, part, ranges) for part in (read.probabilities, read.values)]
    return Reading(turned.out_shape, read.extents, *views)


def _apart(view: View, ranges: Ranges) -> View:
    """Return the view with its axes split wherever its index divides them."""
    shape: list[Dim] = []
    for axis, extent in enumerate(view.out_shape):
        for divisor in sorted(_divisors(view, axis), reverse=True):
            part = exact_div(extent, divisor)
            if part is not None:
                shape.append(part)
                extent = divisor
        shape.append(extent)
    if len(shape) == len(view.out_shape):
        return view
    return compose(reshape(view.out_shape, shape, ranges), view, ranges)


def _divisors(view: View, axis: int) -> set[int]:
    """Return the numbers by which the index divides the variable of an axis."""
    own = index_symbol(axis)
    found: set[int] = set()
    for pair in frozenset().union(*map(pairs, view.index)):
        if type(pair) in (FloorDiv, Mod) and pair.left == own and type(pair.right) is int:
            found.add(pair.right)
    return found


def beside(view: View, extents: Shape, ranges: Ranges) -> View:
    """Return the view beside trailing axes that it leaves alone."""
    rank = len(view.out_shape)
    extra = [index_symbol(rank + axis) for axis in range(len(extents))]
    return View.make(view.in_shape + extents, view.out_shape + extents, [*view.index, *extra], ranges=ranges)
