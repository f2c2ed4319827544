"""Integer polynomials over dim symbols, index variables and floor-div, mod, max and min atoms, in one canonical form.

A `Dim` is a plain `int` or an `Expr`; an operation whose value is constant always gives an `int`. Two expressions that
are equal as polynomials over their atoms are equal objects by `==`. Contracts: symbols and index variables are never
negative, and what one divides by is positive.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Union

import numpy as np


class Atom:
    """What a monomial is a product of. Atoms are interned: equal atoms are one object, compared by identity.

    `key` orders atoms the same way in every run, `leaves` holds the symbols and index variables inside, `nonnegative`
    says that no value of those makes the atom negative.
    """

    __slots__ = ("key", "leaves", "nonnegative", "expr")
    key: tuple
    leaves: frozenset[Atom]
    nonnegative: bool
    expr: Expr

    def __repr__(self) -> str:
        return f"<{self.expr}>"

    def __lt__(self, other: Atom) -> bool:
        return self.key < other.key


class Symbol(Atom):
    """A named dim, such as `batch`. Any name is allowed; it never clashes with an index variable."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> Symbol:
        return _interned(cls, (name,))

    def _init(self, name: str) -> None:
        self.name = name
        self.key = (1, 0, name)
        self.leaves = frozenset((self,))
        self.nonnegative = True

    def __reduce__(self):
        return Symbol, (self.name,)


class IndexVar(Atom):
    """The iteration index of one axis of a view's output space; printed `i0`, `i1`, ..."""

    __slots__ = ("axis",)
    axis: int

    def __new__(cls, axis: int) -> IndexVar:
        return _interned(cls, (operator.index(axis),))

    def _init(self, axis: int) -> None:
        self.axis = axis
        self.key = (0, axis, "")
        self.leaves = frozenset((self,))
        self.nonnegative = True

    def __reduce__(self):
        return IndexVar, (self.axis,)


class Pair(Atom):
    """An atom made of two dims: `FloorDiv`, `Mod`, `Max` or `Min`. Build them with `//`, `%`, `maximum`, `minimum`."""

    __slots__ = ("left", "right")
    left: Dim
    right: Dim
    rank: int

    def __new__(cls, left: Dim, right: Dim) -> Pair:
        return _interned(cls, (left, right))

    def _init(self, left: Dim, right: Dim) -> None:
        self.left = left
        self.right = right
        self.key = (self.rank, 0, f"{left}|{right}")
        self.leaves = leaves(left) | leaves(right)
        self.nonnegative = self._nonnegative()

    def _nonnegative(self) -> bool:
        return is_plainly_nonnegative(self.left)

    def __reduce__(self):
        return type(self), (self.left, self.right)


class FloorDiv(Pair):
    """`left // right`, rounded down."""

    __slots__ = ()
    rank = 2


class Mod(Pair):
    """`left % right`, in `0 .. right - 1`."""

    __slots__ = ()
    rank = 3

    def _nonnegative(self) -> bool:
        return True


class Max(Pair):
    """The larger of two dims."""

    __slots__ = ()
    rank = 4

    def _nonnegative(self) -> bool:
        return is_plainly_nonnegative(self.left) or is_plainly_nonnegative(self.right)


class Min(Pair):
    """The smaller of two dims."""

    __slots__ = ()
    rank = 5

    def _nonnegative(self) -> bool:
        return is_plainly_nonnegative(self.left) and is_plainly_nonnegative(self.right)


Monomial = tuple[Atom, ...]  # sorted, an atom to the power n stands n times; () is the constant's monomial

_atoms: dict[tuple, Atom] = {}


def _interned(cls: type, arguments: tuple) -> Any:
    found = _atoms.get((cls, *arguments))
    if found is None:
        atom = object.__new__(cls)
        atom._init(*arguments)
        atom.expr = Expr({(atom,): 1})
        found = _atoms.setdefault((cls, *arguments), atom)
    return found


class Expr:
    """A polynomial that is not constant. Immutable and hashable; `+ - * // % **` take `Expr` and `int` on either side.

    `terms` maps each monomial to its coefficient (never 0); do not change it. An `Expr` never equals an `int`. Its
    truth value is an error, so that `if dim:` cannot pass for a test against zero.
    """

    __slots__ = ("terms", "_hash", "_text")
    __array_ufunc__ = None  # NumPy integers leave the operators to us
    terms: dict[Monomial, int]

    def __init__(self, terms: dict[Monomial, int]) -> None:
        self.terms = terms
        self._hash = 0
        self._text = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(other) is Expr and hash(self) == hash(other) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash == 0:
            self._hash = hash(frozenset(self.terms.items())) or 1
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError(f"the truth value of the dim {self} is unknown; compare with == or prove a bound")

    def __str__(self) -> str:
        if self._text is None:
            from .dim_text import to_text

            self._text = to_text(self)
        return self._text

    def __repr__(self) -> str:
        return f"<{self}>"

    def __reduce__(self):
        return _from_items, (tuple(self.terms.items()),)

    def __add__(self, other: Dim) -> Dim:
        if type(other) is Expr:
            terms = dict(self.terms)
            for monomial, coefficient in other.terms.items():
                total = terms.get(monomial, 0) + coefficient
                if total:
                    terms[monomial] = total
                else:
                    del terms[monomial]
            return from_terms(terms)
        other = _as_int(other)
        if other is NotImplemented or other == 0:
            return other if other is NotImplemented else self
        terms = dict(self.terms)
        total = terms.pop((), 0) + other
        if total:
            terms[()] = total
        return Expr(terms)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr({monomial: -coefficient for monomial, coefficient in self.terms.items()})

    def __sub__(self, other: Dim) -> Dim:
        if type(other) is not Expr:
            other = _as_int(other)
            if other is NotImplemented:
                return other
        return self + (-other)

    def __rsub__(self, other: int) -> Dim:
        return (-self) + other

    def __mul__(self, other: Dim) -> Dim:
        if type(other) is Expr:
            terms: dict[Monomial, int] = {}
            for left, a in self.terms.items():
                for right, b in other.terms.items():
                    monomial = _times(left, right)
                    total = terms.get(monomial, 0) + a * b
                    if total:
                        terms[monomial] = total
                    else:
                        del terms[monomial]
            return from_terms(terms)
        other = _as_int(other)
        if other is NotImplemented or other == 0:
            return other
        if other == 1:
            return self
        return Expr({monomial: coefficient * other for monomial, coefficient in self.terms.items()})

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        other = other if type(other) is Expr else _as_int(other)
        return other if other is NotImplemented else floor_div(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        other = _as_int(other)
        return other if other is NotImplemented else floor_div(other, self)

    def __mod__(self, other: Dim) -> Dim:
        other = other if type(other) is Expr else _as_int(other)
        return other if other is NotImplemented else floor_mod(self, other)

    def __rmod__(self, other: int) -> Dim:
        other = _as_int(other)
        return other if other is NotImplemented else floor_mod(other, self)

    def __pow__(self, exponent: int) -> Dim:
        exponent = _as_int(exponent)
        if exponent is NotImplemented:
            return exponent
        if exponent < 0:
            raise ValueError(f"({self}) ** {exponent}: a dim takes powers of zero and more only")
        result: Dim = 1
        for _ in range(exponent):
            result = self * result
        return result


Dim = Union[int, Expr]


def _as_int(value: Any) -> Any:
    if type(value) is int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        return NotImplemented


def as_dim(value: Any) -> Dim:
    """Return `value` as a Dim: an `Expr` as it is, any integer (bool and NumPy ones too) as a plain int."""
    return value if type(value) is Expr else operator.index(value)


def from_terms(terms: dict[Monomial, int]) -> Dim:
    """Return the Dim with these terms, none of which has coefficient 0. The dict is taken over, not copied."""
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    return Expr(terms)


def _from_items(items: tuple) -> Dim:
    return from_terms({tuple(sorted(monomial)): coefficient for monomial, coefficient in items})


def terms_of(dim: Dim) -> dict[Monomial, int]:
    """Return the terms of a Dim; those of an int are its constant term, or none for 0."""
    if type(dim) is Expr:
        return dim.terms
    return {(): dim} if dim else {}


@lru_cache(maxsize=1 << 16)
def _times(left: Monomial, right: Monomial) -> Monomial:
    return tuple(sorted(left + right))


def monomial_quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """Return `monomial / divisor`, or None when it is not exact."""
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def monomial_gcd(left: Monomial, right: Monomial) -> Monomial:
    """Return the largest monomial that divides both."""
    rest = list(right)
    common = []
    for atom in left:
        if atom in rest:
            rest.remove(atom)
            common.append(atom)
    return tuple(common)


def scaled(monomial: Monomial, coefficient: int) -> Dim:
    """Return `coefficient * monomial`."""
    return from_terms({monomial: coefficient}) if coefficient else 0


def content(dim: Dim) -> tuple[int, Monomial]:
    """Return the largest number and the largest monomial that divide every term; (0, ()) for 0."""
    number, common = 0, None
    for monomial, coefficient in terms_of(dim).items():
        number = math.gcd(number, coefficient)
        common = monomial if common is None else monomial_gcd(common, monomial)
    return number, common or ()


def symbol(name: str) -> Expr:
    """Return the dim symbol of that name."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"a dim symbol needs a name, not {name!r}")
    return Symbol(name).expr


def index_symbol(axis: int) -> Expr:
    """Return the index variable of an axis of a view's output space."""
    return IndexVar(axis).expr


def is_plainly_nonnegative(dim: Dim) -> bool:
    """Say whether every term of `dim` is visibly at least 0, whatever its symbols and index variables are."""
    if type(dim) is not Expr:
        return dim >= 0
    return all(c >= 0 and all(atom.nonnegative for atom in m) for m, c in dim.terms.items())


def maximum(a: Dim, b: Dim) -> Dim:
    """Return the larger of two dims, as a plain one of them where that is plain to see."""
    a, b = as_dim(a), as_dim(b)
    difference = a - b
    if is_plainly_nonnegative(difference):
        return a
    if is_plainly_nonnegative(-difference):
        return b
    return Max(*sorted((a, b), key=_text_key)).expr


def minimum(a: Dim, b: Dim) -> Dim:
    """Return the smaller of two dims, as a plain one of them where that is plain to see."""
    a, b = as_dim(a), as_dim(b)
    difference = a - b
    if is_plainly_nonnegative(difference):
        return b
    if is_plainly_nonnegative(-difference):
        return a
    return Min(*sorted((a, b), key=_text_key)).expr


def _text_key(dim: Dim) -> tuple:
    return (type(dim) is int, str(dim))


def ceil_div(a: Dim, b: Dim) -> Dim:
    """Return `a / b` rounded up."""
    return floor_div(as_dim(a) + (b - 1), as_dim(b))


def product(dims: Iterable[Dim]) -> Dim:
    """Return the product of the dims; 1 for none."""
    result: Dim = 1
    for dim in dims:
        result = result * as_dim(dim)
    return result


def exact_div(a: Dim, b: Dim) -> Dim | None:
    """Return the polynomial `q` with `a == q * b`, or None when there is none (or `b` is 0)."""
    a, b = as_dim(a), as_dim(b)
    if type(b) is int and b == 0:
        return None
    quotient, rest = _long_division(a, b, exact=True)
    return quotient if type(rest) is int and rest == 0 else None


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _lead(monomial: Monomial) -> tuple:
    return (len(monomial), tuple(atom.key for atom in monomial))


def _long_division(a: Dim, b: Dim, exact: bool) -> tuple[Dim, Dim]:
    """Return (q, r) with `a == q*b + r`. With `exact`, only whole coefficients move into q, and it stops at the first
    leading term that does not divide; else a coefficient's whole part (rounded to zero) moves."""
    lead = max(terms_of(b), key=_lead)
    factor = terms_of(b)[lead]
    quotient: Dim = 0
    rest = a
    done: set[Monomial] = set()
    while True:
        waiting = [m for m in terms_of(rest) if m not in done]
        if not waiting:
            return quotient, rest
        monomial = max(waiting, key=_lead)
        coefficient = terms_of(rest)[monomial]
        over = monomial_quotient(monomial, lead)
        if exact and (over is None or coefficient % factor):
            return quotient, rest
        done.add(monomial)
        step = 0 if over is None else _truncated(coefficient, factor)
        if step:
            part = scaled(over, step)
            quotient = quotient + part
            rest = rest - part * b


def split(n: Dim, d: Dim) -> tuple[Dim, Dim]:
    """Return (q, r) with `n == q*d + r` and r smaller: what of n is visibly a multiple of d moves into q.

    For a number d, r's constant lies in `0 .. d-1` and its other coefficients between -d and d.
    """
    if type(d) is int:
        quotients, rests = {}, {}
        for monomial, coefficient in terms_of(n).items():
            q = _truncated(coefficient, d) if monomial else coefficient // d
            if q:
                quotients[monomial] = q
            if coefficient != q * d:
                rests[monomial] = coefficient - q * d
        return from_terms(quotients), from_terms(rests)
    q, r = _long_division(n, d, exact=False)
    if len(d.terms) == 1 or len(terms_of(r)) < len(terms_of(n)):
        return q, r
    return 0, n


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


def _positive_divisor(n: Dim, d: Dim) -> tuple[Dim, Dim, int]:
    if type(d) is int:
        if d == 0:
            raise ZeroDivisionError(f"({n}) divided by 0")
        if d < 0:
            return -n, -d, -1
    return n, d, 1


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


def pairs(dim: Dim) -> frozenset[Pair]:
    """Return the pairs that occur in dim, inside other pairs too."""
    found: set[Pair] = set()
    waiting = [dim]
    while waiting:
        for monomial in terms_of(waiting.pop()):
            for atom in monomial:
                if isinstance(atom, Pair) and atom not in found:
                    found.add(atom)
                    waiting += (atom.left, atom.right)
    return frozenset(found)


def leaves(dim: Dim) -> frozenset[Atom]:
    """Return the symbols and index variables that occur in dim, inside atoms too."""
    if type(dim) is not Expr:
        return frozenset()
    return frozenset().union(*(atom.leaves for monomial in dim.terms for atom in monomial))


def symbols(dim: Dim) -> frozenset[str]:
    """Return the names of the dim symbols that occur in dim."""
    return frozenset(leaf.name for leaf in leaves(dim) if type(leaf) is Symbol)


def index_axes(dim: Dim) -> frozenset[int]:
    """Return the axes whose index variables occur in dim."""
    return frozenset(leaf.axis for leaf in leaves(dim) if type(leaf) is IndexVar)


def substitute(dim: Dim, dims: Mapping[str, Dim] = {}, indices: Mapping[int, Dim] = {}) -> Dim:
    """Return dim with symbols (by name) and index variables (by axis) replaced, all at once."""
    memo: dict[Atom, Dim] = {}

    def value(atom: Atom) -> Dim:
        if atom not in memo:
            memo[atom] = _substituted(atom, dims, indices, value)
        return memo[atom]

    return map_atoms(dim, value)


def _substituted(atom: Atom, dims: Mapping[str, Dim], indices: Mapping[int, Dim], value: Callable) -> Dim:
    if type(atom) is Symbol:
        return dims.get(atom.name, atom.expr)
    if type(atom) is IndexVar:
        return indices.get(atom.axis, atom.expr)
    if not any(leaf.name in dims if type(leaf) is Symbol else leaf.axis in indices for leaf in atom.leaves):
        return atom.expr
    return rebuild(atom, map_atoms(atom.left, value), map_atoms(atom.right, value))


def rebuild(atom: Pair, left: Dim, right: Dim) -> Dim:
    """Return the pair of atom's kind over other operands, reduced to canonical form."""
    return _BUILD[type(atom)](left, right)


_BUILD = {FloorDiv: floor_div, Mod: floor_mod, Max: maximum, Min: minimum}


def map_atoms(dim: Dim, value: Callable[[Atom], Dim]) -> Dim:
    """Return dim with each atom of its monomials replaced by `value(atom)`; dim itself where nothing changes."""
    if type(dim) is not Expr:
        return dim
    values = {atom: value(atom) for monomial in dim.terms for atom in monomial}
    if all(values[atom] is atom.expr for atom in values):
        return dim
    kept: dict[Monomial, int] = {}
    moved: Dim = 0
    for monomial, coefficient in dim.terms.items():
        if all(values[atom] is atom.expr for atom in monomial):
            kept[monomial] = coefficient
            continue
        term: Dim = coefficient
        for atom in monomial:
            term = term * values[atom]
        moved = moved + term
    return from_terms(kept) + moved


def evaluate(dim: Dim, env: Mapping[str, int], indices: Sequence[Any] = ()) -> Any:
    """Return the value of dim: symbols from env by name, index variables from indices by axis.

    Index values are ints or integer arrays, which broadcast against each other. KeyError and IndexError name what is
    missing; a zero divisor raises ZeroDivisionError for ints and follows NumPy for arrays.
    """
    if type(dim) is not Expr:
        return dim
    total: Any = 0
    for monomial, coefficient in dim.terms.items():
        term: Any = coefficient
        for atom in monomial:
            term = term * _value(atom, env, indices)
        total = total + term
    return total


def _value(atom: Atom, env: Mapping[str, int], indices: Sequence[Any]) -> Any:
    kind = type(atom)
    if kind is Symbol:
        if atom.name not in env:
            raise KeyError(f"no value for the dim {atom.name!r}; known: {', '.join(sorted(env)) or 'none'}")
        return env[atom.name]
    if kind is IndexVar:
        if atom.axis >= len(indices):
            raise IndexError(f"no value for the index i{atom.axis}; {len(indices)} given")
        value = indices[atom.axis]
        return value.astype(np.int64, copy=False) if isinstance(value, np.ndarray) else operator.index(value)
    left, right = evaluate(atom.left, env, indices), evaluate(atom.right, env, indices)
    if kind is FloorDiv:
        return left // right
    if kind is Mod:
        return left % right
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.maximum(left, right) if kind is Max else np.minimum(left, right)
    return max(left, right) if kind is Max else min(left, right)


def linear_terms(dim: Dim, axes: Iterable[int]) -> tuple[Dim, dict[int, Dim]] | None:
    """Return (offset, {axis: stride}) when dim is `offset + sum(stride * i_axis)` over the axes, else None.

    Offset and strides hold none of the axes' index variables; every axis has an entry, 0 where it does not occur.
    """
    wanted = {IndexVar(axis) for axis in axes}
    parts: dict[int, dict[Monomial, int]] = {atom.axis: {} for atom in wanted}
    offset: dict[Monomial, int] = {}
    for monomial, coefficient in terms_of(dim).items():
        inside = [atom for atom in monomial if not wanted.isdisjoint(atom.leaves)]
        if not inside:
            offset[monomial] = coefficient
        elif len(inside) == 1 and type(inside[0]) is IndexVar:
            parts[inside[0].axis][monomial_quotient(monomial, (inside[0],))] = coefficient
        else:
            return None
    return from_terms(offset), {axis: from_terms(part) for axis, part in sorted(parts.items())}
