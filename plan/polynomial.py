"""Integer polynomials over dim symbols, index variables and floor-div, mod, max and min atoms, in one canonical form.

A `Dim` is a plain `int` or an `Expr`; an operation whose value is constant always gives an `int`. Two expressions that
are equal as polynomials over their atoms are equal objects by `==`. Contracts: symbols and index variables are never
negative, and what one divides by is positive.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Union


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
        return _quotient("floor_div", self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return _quotient("floor_div", other, self)

    def __mod__(self, other: Dim) -> Dim:
        return _quotient("floor_mod", self, other)

    def __rmod__(self, other: int) -> Dim:
        return _quotient("floor_mod", other, self)

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


def _quotient(kind: str, n: Dim, d: Dim) -> Dim:
    from . import division  # it builds on this module

    n, d = (value if type(value) is Expr else _as_int(value) for value in (n, d))
    return NotImplemented if n is NotImplemented or d is NotImplemented else getattr(division, kind)(n, d)


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
    quotient, rest = long_division(a, b, exact=True)
    return quotient if type(rest) is int and rest == 0 else None


def truncated(a: int, b: int) -> int:
    """Return a / b rounded towards 0."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _lead(monomial: Monomial) -> tuple:
    return (len(monomial), tuple(atom.key for atom in monomial))


def long_division(a: Dim, b: Dim, exact: bool) -> tuple[Dim, Dim]:
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
        step = 0 if over is None else truncated(coefficient, factor)
        if step:
            part = scaled(over, step)
            quotient = quotient + part
            rest = rest - part * b


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


