"""Bounds of dims over ranges of symbols and extents of index variables: the search behind every proof.

A `Space` has a range for each named symbol (a symbol without one is 0 or more) and an extent for each index variable,
`0 <= i_k < extent_k`. Where an extent could be 0 there is nothing to iterate over, so every statement about the space
may assume that all extents are at least 1. A bound is found by replacing one atom after another by a value at which
the dim is smallest, as a polynomial in what remains, so that terms which cancel do cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .division import floor_div
from .errors import InvalidInput
from .polynomial import (
    Atom,
    Dim,
    Expr,
    FloorDiv,
    IndexVar,
    Max,
    Min,
    Mod,
    Monomial,
    Pair,
    Symbol,
    from_terms,
    index_axes,
    map_atoms,
    monomial_quotient,
    symbols,
    terms_of,
)


@dataclass(frozen=True)
class Range:
    """The values that one named symbol may take, `min <= opt <= max`; costs are judged at `opt`."""

    min: int
    opt: int
    max: int

    def __post_init__(self) -> None:
        if not 0 <= self.min <= self.opt <= self.max:
            raise InvalidInput(f"a dim's range needs 0 <= min <= opt <= max, got {self.min}, {self.opt}, {self.max}")


Ranges = Mapping[str, Range]

_EFFORT = 250  # steps that one bound may take; typical ones take under 20


class Space:
    """Ranges and index extents, with the bounds that have been found under them."""

    def __init__(self, ranges: Ranges, extents: tuple[Dim, ...]) -> None:
        self.ranges = ranges
        self.extents = extents
        self._nonempty = {leaf.name for extent in extents for leaf in _positive_factors(extent)}
        self._intervals: dict[Atom, tuple[int | None, int | None]] = {}
        self._lower: dict[tuple[Dim, int | None], int | None] = {}
        self._steps = 0

    def interval(self, atom: Atom) -> tuple[int | None, int | None]:
        """Return numbers that the atom's value lies between, found without looking at how its parts depend."""
        if atom not in self._intervals:
            self._intervals[atom] = self._atom_interval(atom)
        return self._intervals[atom]

    def _atom_interval(self, atom: Atom) -> tuple[int | None, int | None]:
        if type(atom) is Symbol:
            known = self.ranges.get(atom.name)
            low, high = (known.min, known.max) if known else (0, None)
            return (max(low, 1) if atom.name in self._nonempty else low), high
        if type(atom) is IndexVar:
            if atom.axis >= len(self.extents):
                return 0, None
            high = self.span(self.extents[atom.axis])[1]
            return 0, None if high is None else max(high - 1, 0)
        (low, high), (d_low, d_high) = self.span(atom.left), self.span(atom.right)
        if type(atom) is Max:
            return _largest(low, d_low), None if high is None or d_high is None else max(high, d_high)
        if type(atom) is Min:
            return None if low is None or d_low is None else min(low, d_low), _smallest(high, d_high)
        d_low = max(d_low or 1, 1)  # divisors are positive
        if type(atom) is Mod:
            limits = [None if d_high is None else d_high - 1, high if low is not None and low >= 0 else None]
            return 0, _smallest(*limits)
        if low is not None:
            low = low // d_low if low < 0 else 0 if d_high is None else low // max(d_high, 1)
        if high is not None:
            high = high // d_low if high >= 0 else -1 if d_high is None else high // max(d_high, 1)
        return low, high

    def span(self, dim: Dim) -> tuple[int | None, int | None]:
        """Return numbers that the value lies between, adding up the intervals of the terms."""
        low: int | None = 0
        high: int | None = 0
        for monomial, coefficient in terms_of(dim).items():
            small, large = self._monomial_span(monomial)
            if coefficient < 0:
                small, large = large, small
            low = None if low is None or small is None else low + coefficient * small
            high = None if high is None or large is None else high + coefficient * large
        return low, high

    def _monomial_span(self, monomial: Monomial) -> tuple[int | None, int | None]:
        low: int | None = 1
        high: int | None = 1
        for atom in monomial:
            a, b = self.interval(atom)
            if low is not None and low >= 0 and a is not None and a >= 0:
                low, high = low * a, None if high is None or b is None else high * b
            elif None in (low, high, a, b):
                return None, None
            else:
                corners = (low * a, low * b, high * a, high * b)
                low, high = min(corners), max(corners)
        return low, high

    def lower(self, dim: Dim, goal: int | None = None) -> int | None:
        """Return the best lower bound found, None for none; stops looking once it reaches the goal."""
        if type(dim) is not Expr:
            return dim
        key = (dim, goal)
        if key not in self._lower:
            self._steps = 0
            self._lower[key] = self._search(dim, goal, {})
        return self._lower[key]

    def upper(self, dim: Dim) -> int | None:
        """Return the best upper bound found, None for none."""
        low = self.lower(-dim)
        return None if low is None else -low

    def nonnegative(self, dim: Dim) -> bool:
        """Say whether dim is proven to be 0 or more."""
        low = self.lower(dim, 0)
        return low is not None and low >= 0

    def _search(self, dim: Dim, goal: int | None, memo: dict[tuple[Dim, int | None], int | None]) -> int | None:
        """Find a lower bound by replacing one atom after another by a value at which dim is smallest."""
        if type(dim) is not Expr:
            return dim
        best = self.span(dim)[0]
        if self._steps > _EFFORT or (goal is not None and best is not None and best >= goal):
            return best
        key = (dim, goal)
        if key in memo:
            return memo[key]
        self._steps += 1
        memo[key] = best  # a question that meets itself again gets the plain answer

        shifted = self._shifted(dim)
        best = _largest(best, shifted)
        if goal is None or best is None or best < goal:
            atom = self._next_atom(dim)
            if atom is not None:
                for found in self._eliminate(dim, atom, goal, memo):
                    best = _largest(best, found)
                    if goal is not None and best is not None and best >= goal:
                        break
        memo[key] = best
        return best

    def _next_atom(self, dim: Expr) -> Atom | None:
        """Choose what to replace next: pairs first, then index variables, then symbols; only what occurs linearly."""
        linear: dict[Atom, bool] = {}
        for monomial in dim.terms:
            for atom in set(monomial):
                linear[atom] = linear.get(atom, True) and monomial.count(atom) == 1
        usable = [atom for atom, is_linear in linear.items() if is_linear]
        return max(usable, key=lambda atom: (isinstance(atom, Pair), type(atom) is IndexVar, atom.key), default=None)

    def _eliminate(self, dim: Expr, atom: Atom, goal: int | None, memo: dict) -> Iterator[int | None]:
        """Yield lower bounds of dim, each from one way of replacing the atom."""
        factor, rest = _linear_in(dim, atom)
        if type(atom) in (Max, Min):
            sides = [self._search(factor * side + rest, goal, memo) for side in (atom.left, atom.right)]
            yield None if None in sides else min(sides)
        sign = self._sign(factor, memo)
        if type(atom) in (Max, Min):
            if sign == (1 if type(atom) is Max else -1):
                yield from sides
            return
        if sign == 0:  # linear, so smallest at one of its ends
            ends = self.interval(atom) if type(atom) is Symbol else (0, self._last(atom))
            if type(atom) in (Symbol, IndexVar) and ends[1] is not None:
                sides = [self._search(factor * end + rest, goal, memo) for end in ends]
                yield None if None in sides else min(sides)
            return
        values = self._least_values(atom, memo) if sign > 0 else self._greatest_values(atom, memo)
        for value in values:
            yield self._search(factor * value + rest, goal, memo)
        if type(atom) is FloorDiv:
            # n - d + 1 <= d * (n//d) <= n, so d times the bound follows without the quotient
            n, d = atom.left, atom.right
            inside = factor * (n - d + 1) + rest * d if sign > 0 else factor * n + rest * d
            low = self._search(inside, goal if goal == 0 else None, memo)
            if low is not None and type(d) is int:
                yield -((-low) // d)
            elif low is not None and low >= 0:
                yield 0

    def _sign(self, factor: Dim, memo: dict) -> int:
        low = self._search(factor, 0, memo)
        if low is not None and low >= 0:
            return 1
        high = self._search(-factor, 0, memo)
        return -1 if high is not None and high >= 0 else 0

    def _last(self, atom: Atom) -> Dim | None:
        if type(atom) is IndexVar and atom.axis < len(self.extents):
            return self.extents[atom.axis] - 1
        return None

    def _least_values(self, atom: Atom, memo: dict) -> list[Dim]:
        if type(atom) is FloorDiv:
            values = [0] if self._sign(atom.left, memo) == 1 else []
            low = self._at_corner(atom.left, 1, memo)
            return values if low is None else [*values, floor_div(low, atom.right)]
        return [] if type(atom) is Symbol else [0]

    def _greatest_values(self, atom: Atom, memo: dict) -> list[Dim]:
        if type(atom) is IndexVar:
            last = self._last(atom)
            return [] if last is None else [last]
        if type(atom) is Mod:
            values = [atom.right - 1]
            return values + [atom.left] if self._sign(atom.left, memo) == 1 else values
        if type(atom) is FloorDiv:
            high = self._at_corner(atom.left, -1, memo)
            return [] if high is None else [floor_div(high, atom.right)]
        high = self.interval(atom)[1]
        return [] if high is None else [high]

    def _at_corner(self, dim: Dim, direction: int, memo: dict) -> Dim | None:
        """Return an index-free dim that bounds dim below (direction 1) or above (-1), where it is linear in indices;
        None if it is not, or has no index variables to begin with."""
        axes = sorted(index_axes(dim))
        if not axes:
            return None
        for axis in axes:
            atom = IndexVar(axis)
            factor, rest = _linear_in(dim, atom)
            sign = self._sign(factor, memo) * direction
            value = 0 if sign > 0 else self._last(atom)
            if sign == 0 or value is None:
                return None
            dim = factor * value + rest
        return None if index_axes(dim) else dim

    def _shifted(self, dim: Expr) -> int | None:
        """Bound dim after writing every symbol as its minimum plus something that is 0 or more."""
        lows = {}
        for name in symbols(dim):
            low = self.interval(Symbol(name))[0]
            if low:
                lows[name] = low
        if not lows:
            return None
        total: int | None = 0
        moved = map_atoms(dim, lambda atom: atom.expr + lows.get(atom.name, 0) if type(atom) is Symbol else atom.expr)
        for monomial, coefficient in terms_of(moved).items():
            low: int | None = 1
            high: int | None = 1
            for atom in monomial:
                a, b = self.interval(atom)
                if type(atom) is Symbol:
                    shift = lows.get(atom.name, 0)
                    a, b = a - shift, None if b is None else b - shift
                if a is None or a < 0:
                    return None
                low, high = low * a, None if high is None or b is None else high * b
            extreme = low if coefficient > 0 else high
            if extreme is None:
                return None
            total += coefficient * extreme
        return total


def _largest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _smallest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _positive_factors(extent: Dim) -> list[Symbol]:
    """Return the symbols that must be at least 1 for the extent to be so."""
    terms = terms_of(extent)
    if len(terms) != 1:
        return []
    (monomial, coefficient), = terms.items()
    return [atom for atom in monomial if type(atom) is Symbol] if coefficient > 0 and _all_plain(monomial) else []


def _all_plain(monomial: Monomial) -> bool:
    return all(atom.nonnegative for atom in monomial)


def _linear_in(dim: Dim, atom: Atom) -> tuple[Dim, Dim]:
    """Return (f, r) with `dim == f*atom + r`; atoms inside atoms count as something else."""
    factor: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in terms_of(dim).items():
        if atom in monomial:
            factor[monomial_quotient(monomial, (atom,))] = coefficient
        else:
            rest[monomial] = coefficient
    return from_terms(factor), from_terms(rest)
