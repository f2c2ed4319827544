"""Handles: how dims, shapes, views and constants appear in the e-graph.

A handle is an i64. One that is 0 or more is the dim of that value; a negative one numbers something interned here.
Equal things have equal handles, so rules compare handles and never look inside.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ...plan.dims import Dim, Ranges, index_symbol, product, substitute
from ...plan.view import Bound, View, compose, reshape

Shape = tuple[Dim, ...]


class Handles:
    """The one interner of an e-graph. `ranges` bounds the symbolic dims."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self._things: list[Any] = []
        self._numbers: dict[Hashable, int] = {}
        self._views: dict[View, int] = {}
        self._seen: dict[tuple[int, Shape], View | None] = {}

    def intern(self, kind: str, thing: Hashable) -> int:
        """Return the handle of a thing; things of different kinds never share one."""
        return self._intern((kind, thing), thing)

    def _intern(self, key: Hashable, thing: Any) -> int:
        handle = self._numbers.get(key)
        if handle is None:
            self._things.append(thing)
            handle = self._numbers[key] = -len(self._things)
        return handle

    def thing(self, handle: int) -> Any:
        """Return what a handle stands for."""
        return handle if handle >= 0 else self._things[-handle - 1]

    def dim(self, dim: Dim) -> int:
        if type(dim) is int and dim >= 0:
            return dim
        return self.intern("dim", dim)

    def shape(self, shape: Shape) -> int:
        return self.intern("shape", shape)

    def view(self, view: View) -> int:
        """Return the handle of a view. Two views that read the same elements of a flat buffer share one.

        The first of them to come stands for both: tensors are flat buffers, so the shape of the operand only matters to
        how the index is written.
        """
        handle = self._views.get(view)
        if handle is None:
            flat = (product(view.in_shape), view.out_shape, view.offset(self.ranges), view.valid, _exact(view.fill))
            handle = self._views[view] = self._intern(("view", flat), view)
        return handle

    def seen_by(self, view: int, shape: Shape) -> View | None:
        """Return the view written over an operand of `shape`; None if that has another number of elements."""
        key = (view, shape)
        if key not in self._seen:
            self._seen[key] = over_shape(self.thing(view), shape, self.ranges)
        return self._seen[key]


def over_shape(view: View, shape: Shape, ranges: Ranges) -> View | None:
    """Return the view of the same flat buffer, read as an array of `shape`; None if the element counts differ."""
    if view.in_shape == shape:
        return view
    if product(view.in_shape) != product(shape):
        return None
    return compose(view, reshape(shape, view.in_shape, ranges), ranges)


def squeezed(shape: Shape) -> Shape:
    """Return the shape without its axes of extent 1: in memory they make no difference."""
    return tuple(extent for extent in shape if not _is_one(extent))


def squeezed_expr(expr: Dim, shape: Shape) -> Dim:
    """Return an expression over the index variables of `shape` as one over those of its squeezed shape."""
    return substitute(expr, {}, _renumbering(shape))


def squeezed_view(view: View, ranges: Ranges) -> View:
    """Return the view between the squeezed shapes."""
    at = _renumbering(view.out_shape)
    index = [substitute(expr, {}, at) for expr, extent in zip(view.index, view.in_shape) if not _is_one(extent)]
    valid = [Bound(substitute(bound.expr, {}, at), bound.low, bound.high) for bound in view.valid]
    return View.make(squeezed(view.in_shape), squeezed(view.out_shape), index, valid, view.fill, ranges)


def _renumbering(shape: Shape) -> dict[int, Dim]:
    at, position = {}, 0
    for axis, extent in enumerate(shape):
        at[axis] = 0 if _is_one(extent) else index_symbol(position)
        position += not _is_one(extent)
    return at


def _is_one(dim: Dim) -> bool:
    return type(dim) is int and dim == 1


def _exact(fill: Any) -> Hashable:
    return (type(fill).__name__, fill.hex() if isinstance(fill, float) else fill)
