"""What holds for every value of the dims: proofs of inequalities, and simplification that uses them.

Proofs are sound and not complete: False and None mean "not proven".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .dim_bounds import Ranges, Space
from .dim_values import substitute
from .division import floor_div, floor_mod, recombined, reduce, without_mods, without_remainders
from .polynomial import (
    Atom,
    Dim,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Monomial,
    Pair,
    as_dim,
    content,
    exact_div,
    from_terms,
    map_atoms,
    maximum,
    minimum,
    monomial_gcd,
    monomial_quotient,
    pairs,
    scaled,
    terms_of,
)


class Setting(Space):
    """A space with what has been simplified in it. Get one from `setting`: equal ones share what they found out."""

    def __init__(self, ranges: Ranges, extents: tuple[Dim, ...]) -> None:
        super().__init__(ranges, extents)
        self._simple: dict[Dim, Dim] = {}
        self._simple_atoms: dict[Atom, Dim] = {}

    def simplify(self, dim: Dim) -> Dim:
        """Return an equal dim with quotients, remainders, maxima and minima resolved where that is proven."""
        if type(dim) is not Expr or not _has_pairs(dim):
            return dim
        found = self._simple.get(dim)
        if found is None:
            found = self._settled(dim)
            count = len(pairs(found))
            if count > 1:  # what cancels only when remainders are written out
                written_out = self._settled(without_mods(found))
                found = written_out if not pairs(written_out) else found
            self._simple[dim] = found
        return found

    def _settled(self, dim: Dim) -> Dim:
        for _ in range(4):
            before = dim
            dim = recombined(map_atoms(dim, self._simple_atom))
            if dim == before:
                break
        return dim

    def _simple_atom(self, atom: Atom) -> Dim:
        if not isinstance(atom, Pair):
            return atom.expr
        found = self._simple_atoms.get(atom)
        if found is None:
            left, right = self.simplify(atom.left), self.simplify(atom.right)
            found = self._simple_atoms[atom] = _SIMPLE[type(atom)](self, left, right)
        return found

    def div(self, n: Dim, d: Dim) -> Dim:
        """Return n // d, simplified."""
        if type(d) is int and d <= 1:
            return floor_div(n, d)
        k, n = without_remainders(n, d)
        q, r, e, _, _ = reduce(n, d)
        q = q + k
        whole = self._constant_quotient(r, e)
        if whole is not None:
            return q + whole
        for g in _common_factors(r, e):
            many, few = _divided(r, g)
            if self._between(few, g):
                return q + self.div(many, exact_div(e, g))
        return q + floor_div(r, e)

    def mod(self, n: Dim, d: Dim) -> Dim:
        """Return n % d, simplified."""
        if type(d) is int and d <= 1:
            return floor_mod(n, d)
        _, r, e, scale, offset = reduce(without_remainders(n, d, eager=True)[1], d)
        whole = self._constant_quotient(r, e)
        if whole is not None:
            return scale * (r - whole * e) + offset
        for g in _common_factors(r, e):
            many, few = _divided(r, g)
            if self._between(few, g):
                return scale * (g * self.mod(many, exact_div(e, g)) + few) + offset
        return scale * floor_mod(r, e) + offset

    def _max(self, a: Dim, b: Dim) -> Dim:
        if self.nonnegative(a - b):
            return a
        return b if self.nonnegative(b - a) else maximum(a, b)

    def _min(self, a: Dim, b: Dim) -> Dim:
        if self.nonnegative(a - b):
            return b
        return a if self.nonnegative(b - a) else minimum(a, b)

    def _between(self, dim: Dim, end: Dim) -> bool:
        return self.nonnegative(dim) and self.nonnegative(end - 1 - dim)

    def _constant_quotient(self, r: Dim, d: Dim) -> int | None:
        if self._between(r, d):
            return 0
        if type(d) is int:
            low, high = self.lower(r), self.upper(r)
            if low is not None and high is not None and low // d == high // d:
                return low // d
            return None
        if self._between(r + d, d):
            return -1
        return 1 if self._between(r - d, d) else None


_SIMPLE = {FloorDiv: Setting.div, Mod: Setting.mod, Max: Setting._max, Min: Setting._min}


def _has_pairs(dim: Expr) -> bool:
    return any(isinstance(atom, Pair) for monomial in dim.terms for atom in monomial)


def _common_factors(n: Dim, d: Dim) -> list[Dim]:
    """List what divides d and a term of n, other than 1, in a fixed order."""
    number, common = content(d)
    found = {}
    for monomial, coefficient in terms_of(n).items():
        if monomial:
            g = scaled(monomial_gcd(monomial, common), math.gcd(coefficient, number))
            if not (type(g) is int and g == 1):
                found[g] = None
    return sorted(found, key=lambda g: (-len(max(terms_of(g), key=len)), -content(g)[0], str(g)))


def _divided(n: Dim, g: Dim) -> tuple[Dim, Dim]:
    """Return (q, r) with `n == q*g + r`, q from the terms that g, a single term, divides; r's constant is least."""
    (divisor, number), = terms_of(g).items()
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in terms_of(n).items():
        over = monomial_quotient(monomial, divisor)
        if over is not None and monomial and coefficient % number == 0:
            quotient[over] = coefficient // number
        elif over is not None and coefficient // number:
            quotient[over] = coefficient // number
            if coefficient % number:
                rest[monomial] = coefficient % number
        else:
            rest[monomial] = coefficient
    return from_terms(quotient), from_terms(rest)


_settings: dict[tuple, Setting] = {}
_KEPT_SETTINGS = 4096


def setting(ranges: Ranges | None, index_extents: Sequence[Dim] = ()) -> Setting:
    """Return the setting of these ranges and extents; equal ones share what they have found out."""
    key = (frozenset(ranges.items()) if ranges else (), tuple(index_extents))
    found = _settings.get(key)
    if found is None:
        if len(_settings) >= _KEPT_SETTINGS:
            _settings.clear()
        extents = tuple(as_dim(extent) for extent in index_extents)
        found = _settings[key] = Setting(dict(ranges or {}), extents)
    return found


def bounds(e: Dim, ranges: Ranges | None = None, index_extents: Sequence[Dim] = ()) -> tuple[int | None, int | None]:
    """Return numbers (low, high) that e lies between, both ends included; None where no bound was found."""
    where = setting(ranges, index_extents)
    return where.lower(e), where.upper(e)


def prove_nonnegative(e: Dim, ranges: Ranges | None = None, index_extents: Sequence[Dim] = ()) -> bool:
    """Say whether e >= 0 is proven."""
    return setting(ranges, index_extents).nonnegative(e)


def prove_less(a: Dim, b: Dim, ranges: Ranges | None = None, index_extents: Sequence[Dim] = ()) -> bool:
    """Say whether a < b is proven."""
    return setting(ranges, index_extents).nonnegative(b - a - 1)


def simplify(e: Dim, ranges: Ranges | None = None, index_extents: Sequence[Dim] = ()) -> Dim:
    """Return a dim equal to e everywhere in the setting, with `//`, `%`, max and min resolved where that is proven."""
    return setting(ranges, index_extents).simplify(e)


def divides(k: int, e: Dim, ranges: Ranges | None = None) -> bool:
    """Say whether e is proven to be a multiple of k for all dims in range."""
    fixed = {name: known.min for name, known in (ranges or {}).items() if known.min == known.max}
    return _known_divisor(substitute(e, fixed)) % k == 0


def _known_divisor(dim: Dim) -> int:
    """Return a number that divides dim whatever its symbols are; 0 for 0."""
    result = 0
    for monomial, coefficient in terms_of(dim).items():
        divisor = coefficient
        for atom in monomial:
            if type(atom) in (Mod, Max, Min):
                divisor *= math.gcd(_known_divisor(atom.left), _known_divisor(atom.right))
        result = math.gcd(result, divisor)
    return result
