"""Iteration axes of a kernel: neighbours that every access treats as one are merged, and names and numbers follow.

An axis keeps the number that it has in the region's index expressions (`i0`, `i1`, …); a merged pair keeps the inner one's.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from ..plan.dims import Dim, index_symbol, substitute

Expressions = Mapping[Hashable, Dim]


@dataclass(frozen=True)
class Coalesced:
    """`groups` of axes as (number, extent) pairs, outermost first, and the expressions over the axes that are left."""

    groups: tuple[tuple[tuple[int, Dim], ...], ...]
    expressions: dict[Hashable, Dim]

    def extents(self, rank: int) -> list[Dim]:
        """Return the extent of every axis number below `rank`; 1 for those that vanished."""
        found: list[Dim] = [1] * rank
        for group in self.groups:
            for axis, extent in group:
                found[axis] = extent
        return found


def coalesce(groups: Sequence[Sequence[int]], extents: Sequence[Dim], expressions: Expressions) -> Coalesced:
    """Merge axes that are next to each other in a group wherever all expressions allow it; axes of extent 1 vanish.

    Axes j and k, of extents d and e, merge when every expression depends on them only through `j*e + k`.
    """
    ones = {axis: 0 for group in groups for axis in group if _is_one(extents[axis])}
    current = {key: substitute(expr, {}, ones) for key, expr in expressions.items()}
    merged_groups = []
    for group in groups:
        merged: list[tuple[int, Dim]] = []
        for axis in reversed([axis for axis in group if axis not in ones]):
            outer = (axis, extents[axis])
            together = _merged(outer, merged[0], current) if merged else None
            if together is None:
                merged.insert(0, outer)
            else:
                inner, inner_extent = merged[0]
                merged[0] = (inner, extents[axis] * inner_extent)
                current = together
        merged_groups.append(tuple(merged))
    return Coalesced(tuple(merged_groups), current)


def _merged(outer: tuple[int, Dim], inner: tuple[int, Dim], expressions: Expressions) -> dict[Hashable, Dim] | None:
    """Return the expressions over the merged axis, which keeps inner's number; None if one tells the two apart."""
    together = index_symbol(outer[0]) * inner[1] + index_symbol(inner[0])
    found = {}
    for key, expr in expressions.items():
        candidate = substitute(expr, {}, {outer[0]: 0})
        if substitute(candidate, {}, {inner[0]: together}) != expr:
            return None
        found[key] = candidate
    return found


def _is_one(extent: Dim) -> bool:
    return isinstance(extent, int) and extent == 1
