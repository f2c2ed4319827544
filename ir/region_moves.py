"""Moving a region's nodes to other spaces: the same values, numbered otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..plan.dims import Dim, Ranges, substitute
from ..plan.view import View, compose
from .region import Broadcast, Iota, Load, RegionNode

Space = tuple[Dim, ...]


def moved(
    node: RegionNode,
    place: Mapping[int, int],
    moves: Mapping[Space, View],
    slots: Mapping[int, int],
    ranges: Ranges | None,
) -> RegionNode:
    """Return the node over the space that its own space became.

    `moves` gives for every old space the view of it from the new one, `place` the operands' new positions, `slots` the
    operands' new slots.
    """
    move = moves[node.space]
    changes: dict = {"args": tuple(place[arg] for arg in node.args), "space": move.out_shape}
    if isinstance(node, Load):
        view = compose(move, node.view, ranges)
        assert view is not None, "moves are total, so they compose with every view"
        changes["view"] = view
    elif isinstance(node, Iota):
        changes["expr"] = substitute(node.expr, {}, dict(enumerate(move.index)))
    elif isinstance(node, Broadcast):
        rows = moves[node.space[: -len(node.extents)]].out_shape
        changes["extents"] = move.out_shape[len(rows) :]
    elif hasattr(node, "extents"):
        full = moves[node.space + node.extents].out_shape
        changes["extents"] = full[len(move.out_shape) :]
    if hasattr(node, "slot"):
        changes["slot"] = slots[node.slot]
    return replace(node, **changes)
