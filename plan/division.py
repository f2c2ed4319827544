"""Quotients and remainders of dims, in canonical form, and how they cancel against each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from .polynomial import (
    Atom,
    Dim,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Pair,
    as_dim,
    content,
    exact_div,
    from_terms,
    long_division,
    map_atoms,
    maximum,
    minimum,
    monomial_gcd,
    monomial_quotient,
    scaled,
    terms_of,
    truncated,
)


@lru_cache(maxsize=1 << 16)
def floor_div(n: Dim, d: Dim) -> Dim:
    """Return `n // d`, rounded down; the divisor is taken to be positive unless it is a negative number."""
    if type(n) is int and type(d) is int:
        return n // d
    n, d, _ = _positive_divisor(n, d)
    k, n = without_remainders(n, d)
    q, r, e, _, _ = reduce(n, d)
    q = q + k
    if type(r) is int and (r == 0 or type(e) is int):
        return q if r == 0 else q + r // e
    if type(e) is int and e == 1:
        return q + r
    inner = _only_quotient(r)
    if inner is not None:  # (x//a + y)//e is (x + a*y)//(a*e)
        return q + floor_div(inner.left + inner.right * (r - inner.expr), inner.right * e)
    inner, offset = _single_atom(r)
    if type(inner) is Mod and offset == 0:  # (x % (e*k))//e is (x//e) % k
        factor = exact_div(inner.right, e)
        if factor is not None:
            return q + floor_mod(floor_div(inner.left, e), factor)
    return q + FloorDiv(r, e).expr


@lru_cache(maxsize=1 << 16)
def floor_mod(n: Dim, d: Dim) -> Dim:
    """Return `n % d` as Python does; the divisor is taken to be positive unless it is a negative number."""
    if type(n) is int and type(d) is int:
        return n % d
    n, d, sign = _positive_divisor(n, d)
    _, r, e, g, c = reduce(without_remainders(n, d, eager=True)[1], d)
    if type(r) is int and (r == 0 or type(e) is int):
        small = r if r == 0 else r % e
    elif type(e) is int and e == 1:
        small = 0
    else:
        small = Mod(r, e).expr
    return sign * (g * small + c)


def ceil_div(a: Dim, b: Dim) -> Dim:
    """Return `a / b` rounded up."""
    return floor_div(as_dim(a) + (b - 1), as_dim(b))


def rebuild(atom: Pair, left: Dim, right: Dim) -> Dim:
    """Return the pair of atom's kind over other operands, reduced to canonical form."""
    return _BUILD[type(atom)](left, right)


_BUILD = {FloorDiv: floor_div, Mod: floor_mod, Max: maximum, Min: minimum}


def _positive_divisor(n: Dim, d: Dim) -> tuple[Dim, Dim, int]:
    if type(d) is int:
        if d == 0:
            raise ZeroDivisionError(f"({n}) divided by 0")
        if d < 0:
            return -n, -d, -1
    return n, d, 1


def reduce(n: Dim, d: Dim) -> tuple[Dim, Dim, Dim, Dim, Dim]:
    """Return (q, r, e, g, c) with `n // d == q + r // e` and `n % d == g * (r % e) + c`, r and e as small as can be."""
    q, r = split(n, d)
    if type(r) is int and r == 0:
        return q, 0, d, 1, 0
    number, common = content(d)
    rest = {m: c for m, c in terms_of(r).items() if m}
    if () in terms_of(r):
        common = ()
    for monomial, coefficient in rest.items():
        number = math.gcd(number, coefficient)
        common = monomial_gcd(common, monomial)
    if not rest and common == () and type(d) is int:
        return q, 0, d, 1, r  # a constant below d
    if number == 1 and not common:
        return q, r, d, 1, 0
    constant = terms_of(r).get((), 0)
    g = scaled(common, number)
    inner_q, r, e, inner_g, c = reduce(exact_div(from_terms(rest), g) + constant // number, exact_div(d, g))
    return q + inner_q, r, e, g * inner_g, g * c + constant % number


def split(n: Dim, d: Dim) -> tuple[Dim, Dim]:
    """Return (q, r) with `n == q*d + r` and r smaller: what of n is visibly a multiple of d moves into q.

    For a number d, r's constant lies in `0 .. d-1` and its other coefficients between -d and d.
    """
    if type(d) is int:
        quotients, rests = {}, {}
        for monomial, coefficient in terms_of(n).items():
            q = truncated(coefficient, d) if monomial else coefficient // d
            if q:
                quotients[monomial] = q
            if coefficient != q * d:
                rests[monomial] = coefficient - q * d
        return from_terms(quotients), from_terms(rests)
    q, r = long_division(n, d, exact=False)
    if len(d.terms) == 1 or len(terms_of(r)) < len(terms_of(n)):
        return q, r
    return 0, n


def _only_quotient(dim: Dim) -> FloorDiv | None:
    """Return the quotient that dim has as a term, if it has no other pair."""
    pairs = {atom for monomial in terms_of(dim) for atom in monomial if isinstance(atom, Pair)}
    if len(pairs) == 1:
        (atom,) = pairs
        if type(atom) is FloorDiv and terms_of(dim).get((atom,)) == 1:
            return atom
    return None


def _single_atom(dim: Dim) -> tuple[Atom | None, int]:
    """Return (atom, k) when dim is `atom + k`, else (None, 0)."""
    terms = terms_of(dim)
    if len(terms) - (() in terms) == 1:
        for monomial, coefficient in terms.items():
            if len(monomial) == 1 and coefficient == 1:
                return monomial[0], terms.get((), 0)
    return None, 0


def recombined(dim: Dim) -> Dim:
    """Put quotients and remainders together: `d*(n//d) + n%d` is n, and `a*(n//a % b) + n%a` is `n % (a*b)`.

    Both sides may be multiplied by the same thing.
    """
    return without_remainders(dim, 0)[1]


def without_remainders(dim: Dim, modulus: Dim, eager: bool = False) -> tuple[Dim, Dim]:
    """Return (k, r) with `dim == k*modulus + r`, r put together as in `recombined`.

    Where a coefficient is off by a multiple of the modulus, that multiple moves into k: modulo 3, `x//4 + x%4` is x.
    With `eager`, this happens to remainders without their quotient too: modulo 3, `x % 6` is x.
    """
    moved: Dim = 0
    while True:
        for part, whole, gap in _recombinations(dim, modulus, eager):
            moved = moved + gap
            dim = dim - part + whole
            break
        else:
            return moved, dim


def _recombinations(dim: Dim, modulus: Dim, eager: bool) -> Iterator[tuple[Dim, Dim, Dim]]:
    """Yield (p, w, k): terms p of dim that equal `w + k*modulus`, where w has fewer remainders."""
    if type(dim) is not Expr:
        return
    remainders = [(m, atom) for m in dim.terms for atom in m if type(atom) is Mod]
    for monomial, atom in sorted(remainders, key=lambda item: (item[1].key, str(item[0]))):
        n, d = atom.left, atom.right
        around = scaled(monomial_quotient(monomial, (atom,)), dim.terms[monomial])
        above = floor_div(n, d)
        have, gap = _gap(dim, around * d * above, modulus, eager)
        if gap is not None:
            yield have + around * atom.expr, around * n, gap
        for _, other in remainders:
            extra = None if other is atom else _beyond(other, above)
            if extra is not None:
                have, gap = _gap(dim, around * d * other.expr, modulus, False)
                if gap is not None:
                    yield have + around * atom.expr, around * floor_mod(n + d * extra, d * other.right), gap


def _gap(dim: Expr, wanted: Dim, modulus: Dim, eager: bool) -> tuple[Dim, Dim | None]:
    """Return (have, k): the terms of dim that `wanted` is about, and k with `have == wanted + k*modulus` if any."""
    have = from_terms({m: dim.terms[m] for m in terms_of(wanted) if m in dim.terms})
    if have == wanted:
        return have, 0
    if type(have) is int and not eager:
        return have, None
    return have, exact_div(have - wanted, modulus)


def _beyond(digit: Mod, quotient: Dim) -> Dim | None:
    """Return x with `digit == (quotient + x) % digit.right`, where that is plain to see."""
    if floor_mod(quotient, digit.right) == digit.expr:
        return 0
    atom, offset = _single_atom(quotient)
    if type(atom) is FloorDiv and terms_of(digit.left).get((atom,)) == 1:
        return digit.left - quotient
    return None


def without_mods(dim: Dim) -> Dim:
    """Return an equal dim in which each `n % d` is written as `n - d*(n//d)`, inside pairs too."""

    def value(atom: Atom) -> Dim:
        if not isinstance(atom, Pair):
            return atom.expr
        left, right = without_mods(atom.left), without_mods(atom.right)
        return left - right * floor_div(left, right) if type(atom) is Mod else rebuild(atom, left, right)

    return map_atoms(dim, value)
