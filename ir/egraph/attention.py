"""Attention as the rules see it: how a result reads its probabilities and its values."""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.dims import Ranges, index_axes, index_symbol, linear_terms, product
from ...plan.view import View, compose
from .handles import Shape
from .split_axes import split_axes, split_view


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
    turned = split_view(view, sum(split_axes((view,)), ()), ranges)
    linear = all(linear_terms(expr, range(len(turned.out_shape))) is not None for expr in turned.index)
    if not linear or turned.is_identity(ranges):
        return None
    wider = beside(turned, read.extents, ranges)
    views = [compose(wider, part, ranges) for part in (read.probabilities, read.values)]
    return Reading(turned.out_shape, read.extents, *views)


def beside(view: View, extents: Shape, ranges: Ranges) -> View:
    """Return the view beside trailing axes that it leaves alone."""
    rank = len(view.out_shape)
    extra = [index_symbol(rank + axis) for axis in range(len(extents))]
    return View.make(view.in_shape + extents, view.out_shape + extents, [*view.index, *extra], ranges=ranges)
