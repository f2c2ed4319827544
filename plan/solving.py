"""Finding the value of a dim symbol from the size of an axis."""

from __future__ import annotations

from .dims import Dim, evaluate, symbol, symbols


def solve(dim: Dim, size: int) -> tuple[str, int] | None:
    """Return (name, value) of the only symbol of `dim`, if dim is `a * symbol + b` with a > 0; else None.

    The value is the largest for which dim is not above `size`: where size is no value of dim at all, dim at that value
    tells which size would have been.
    """
    names = symbols(dim)
    if len(names) != 1:
        return None
    (name,) = names
    offset = evaluate(dim, {name: 0})
    factor = evaluate(dim, {name: 1}) - offset
    if factor <= 0 or dim != symbol(name) * factor + offset:
        return None
    return name, max((size - offset) // factor, 0)
