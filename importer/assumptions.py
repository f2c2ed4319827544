"""What must hold between dims for a model to make sense, found while importing it.

Inputs whose dims are unnamed say nothing about which of them are equal, but the model does: it adds one tensor to
another. Where two dims must be equal and one is open (the caller said nothing about it), it is replaced by the other
and the import starts anew. That only narrows what may be fed, and feeds are checked against it.

Where a model means one program for some sizes and another for others, nothing is assumed: a `Split` starts the import anew
for each side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..plan.buckets import MOST_BUCKETS
from ..plan.dims import Dim, Range, evaluate, exact_div, prove_nonnegative, substitute, symbol, symbols

MOST_TRIED = 1 << 20  # sizes of one dim
MOST_STEP = 1024  # that a dim is assumed to be a multiple of


class Assumption(Exception):
    """Raised to start the import anew with the dim `name` replaced by `value`; `reason` tells where it must be so."""

    def __init__(self, name: str, value: Dim, reason: str, ranges: Mapping[str, Range] = {}) -> None:
        super().__init__(f"dim {name!r} is taken to be {value}: {reason}")
        self.name = name
        self.value = value
        self.ranges = ranges  # of symbols in the value that are new


def replacement(a: Dim, b: Dim, open_dims: Iterable[str], ranges: Mapping[str, Range]) -> tuple[str, Dim] | None:
    """Return (name, value) of an open dim that, replaced by the value, makes a and b equal; None if there is none.

    Of several the last of `open_dims` is taken. The value is never negative.
    """
    difference = b - a
    for name in reversed(list(open_dims)):
        if name not in symbols(difference):
            continue
        rest = substitute(difference, {name: 0})
        factor = substitute(difference, {name: 1}) - rest
        if type(factor) is not int or factor == 0 or difference != symbol(name) * factor + rest:
            continue
        value = exact_div(-rest, factor)
        if value is not None and prove_nonnegative(value, ranges):
            return name, value
    return None


def sizes_that_fit(
    a: Dim, b: Dim, open_dims: Iterable[str], ranges: Mapping[str, Range]
) -> tuple[str, int, int] | None:
    """Return (name, low, high) if a and b depend on one open dim and are equal for exactly the sizes low to high."""
    names = symbols(a - b)
    if len(names) != 1 or not names <= set(open_dims):
        return None
    (name,) = names
    known = ranges[name]
    fitting = [size for size in range(known.min, known.max + 1) if evaluate(a - b, {name: size}) == 0]
    if not fitting or fitting[-1] - fitting[0] + 1 != len(fitting):
        return None
    return name, fitting[0], fitting[-1]


class Split(Exception):
    """Raised to import the sizes of dim `name` below `value` and those from it on one after the other: the model means
    different programs there, as `reason` tells."""

    def __init__(self, name: str, value: int, reason: str) -> None:
        super().__init__(f"dim {name!r} is split at {value}: {reason}")
        self.name = name
        self.value = value


@dataclass(frozen=True)
class Place:
    """A dim is 0 or more on one side of `value` of the symbol `name`, and not, or not for all sizes, on the other."""

    name: str
    value: int


def decided(dim: Dim, names: Iterable[str], ranges: Mapping[str, Range]) -> bool | Place | None:
    """Say whether a dim is 0 or more: for all sizes, for none, or on which side of a place; None if nothing is found.

    Only the symbols in `names` may be split. Where they are all that the dim depends on, and there is one, every size is
    tried; else the place is sought from which on, or up to which, one answer is proven.
    """
    if prove_nonnegative(dim, ranges):
        return True
    if prove_nonnegative(-1 - dim, ranges):
        return False
    found = sorted(symbols(dim))
    splittable = [name for name in found if name in set(names)]
    if len(found) == 1 and splittable:
        known = ranges[found[0]]
        if known.max - known.min <= MOST_TRIED:
            return _by_trying(dim, found[0], known)
    places = [place for name in splittable for place in _by_proving(dim, name, ranges)]
    return max(places, key=lambda place: place[0])[1] if places else None


def _by_trying(dim: Dim, name: str, known: Range) -> bool | Place | None:
    sizes = np.arange(known.min, known.max + 1)
    holds = np.broadcast_to(evaluate(dim, {name: sizes}) >= 0, sizes.shape)
    changes = np.flatnonzero(holds[1:] != holds[:-1])
    if len(changes) == 0:
        return bool(holds[0])
    return Place(name, known.min + int(changes[0]) + 1) if len(changes) < MOST_BUCKETS else None


def _by_proving(dim: Dim, name: str, ranges: Mapping[str, Range]) -> list[tuple[float, Place]]:
    """Return places that cut off sizes for which the answer is proven, each with the share of sizes that it cuts off."""
    known = ranges[name]
    count = known.max - known.min + 1

    def settled(low: int, high: int) -> bool:
        part = {**ranges, name: Range(low, low, high)}
        return prove_nonnegative(dim, part) or prove_nonnegative(-1 - dim, part)

    def most(settled_for: Callable[[int], bool]) -> int:
        """Return how many sizes can be cut off, if fewer can whenever more can."""
        enough, too_many = 0, count
        while too_many - enough > 1:
            middle = (enough + too_many) // 2
            enough, too_many = (middle, too_many) if settled_for(middle) else (enough, middle)
        return enough

    below = most(lambda sizes: settled(known.min, known.min + sizes - 1))
    above = most(lambda sizes: settled(known.max - sizes + 1, known.max))
    cuts = [(below, known.min + below), (above, known.max - above + 1)]
    return [(cut / count, Place(name, value)) for cut, value in cuts if cut]


def multiple_that_fits(a: Dim, b: Dim, open_dims: Iterable[str], ranges: Mapping[str, Range]) -> tuple[str, int] | None:
    """Return (name, k) if a and b depend on one open dim and are equal for all multiples of k, the least such k > 1."""
    names = symbols(a - b)
    if len(names) != 1 or not names <= set(open_dims):
        return None
    (name,) = names
    known = ranges[name]
    if known.max > MOST_TRIED:
        return None
    sizes = np.arange(known.max + 1)
    fits = np.broadcast_to(evaluate(a - b, {name: sizes}) == 0, sizes.shape)
    for step in range(2, min(known.max // 2, MOST_STEP) + 1):
        if fits[-(-known.min // step) * step :: step].all():
            return name, step
    return None
