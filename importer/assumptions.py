"""What must hold between dims for a model to make sense, found while importing it.

Inputs whose dims are unnamed say nothing about which of them are equal, but the model does: it adds one tensor to
another. Where two dims must be equal and one is open (the caller said nothing about it), it is replaced by the other
and the import starts anew. That only narrows what may be fed, and feeds are checked against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..plan.dims import Dim, Range, evaluate, exact_div, prove_nonnegative, substitute, symbol, symbols


class Assumption(Exception):
    """Raised to start the import anew with the dim `name` replaced by `value`; `reason` tells where it must be so."""

    def __init__(self, name: str, value: Dim, reason: str) -> None:
        super().__init__(f"dim {name!r} is taken to be {value}: {reason}")
        self.name = name
        self.value = value


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
