"""Dims as text: the printed form, its parser, and C expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from .division import floor_div, floor_mod
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
    Symbol,
    index_symbol,
    maximum,
    minimum,
    symbol,
    terms_of,
)

_PLAIN_NAME = re.compile(r"(?!i\d+\Z|max\Z|min\Z)[A-Za-z_][A-Za-z0-9_.]*\Z")


class _Printer:
    """Prints sums of products with as few parentheses as left-to-right `* / %` of equal rank allow."""

    def text(self, dim: Dim) -> str:
        if type(dim) is not Expr:
            return self.literal(dim)
        text = ""
        for monomial, coefficient in sorted(dim.terms.items(), key=_print_order):
            term = self.term(monomial, abs(coefficient))
            if text:
                text += f" - {term}" if coefficient < 0 else f" + {term}"
            elif coefficient < 0:  # a minus in front binds more tightly than // and %
                bare_quotient = coefficient == -1 and len(monomial) == 1 and self.is_quotient(monomial[0])
                text = f"-({term})" if bare_quotient else f"-{term}"
            else:
                text = term
        return text

    def term(self, monomial: tuple[Atom, ...], coefficient: int) -> str:
        if not monomial:
            return self.literal(coefficient)
        if coefficient == 1 and len(monomial) == 1:
            return self.atom(monomial[0])
        factors = [] if coefficient == 1 else [self.literal(coefficient)]
        return "*".join(factors + self.powers(monomial))

    def powers(self, monomial: tuple[Atom, ...]) -> list[str]:
        return [self.factor(atom) for atom in monomial]

    def factor(self, atom: Atom) -> str:
        return f"({self.atom(atom)})" if self.is_quotient(atom) else self.atom(atom)

    def is_quotient(self, atom: Atom) -> bool:
        return type(atom) in (FloorDiv, Mod)

    def operand(self, dim: Dim, left: bool) -> str:
        terms = terms_of(dim)
        if type(dim) is int and dim >= 0:
            return self.literal(dim)
        if len(terms) == 1:
            (monomial, coefficient), = terms.items()
            if coefficient == 1 and len(monomial) == 1 and (left or not self.is_quotient(monomial[0])):
                return self.atom(monomial[0])
        return f"({self.text(dim)})"

    def atom(self, atom: Atom) -> str:
        raise TypeError(f"{type(self).__name__} prints no atoms")

    def literal(self, value: int) -> str:
        return str(value)


def _print_order(item: tuple[tuple[Atom, ...], int]) -> tuple:
    """Order terms: added before subtracted ones, then by degree, then by name."""
    monomial, coefficient = item
    return (coefficient < 0, -len(monomial), tuple(atom.key for atom in monomial))


class _TextPrinter(_Printer):
    def atom(self, atom: Atom) -> str:
        if type(atom) is Symbol:
            return atom.name if _PLAIN_NAME.match(atom.name) else json.dumps(atom.name)
        if type(atom) is IndexVar:
            return f"i{atom.axis}"
        if type(atom) in (Max, Min):
            return f"{'max' if type(atom) is Max else 'min'}({self.text(atom.left)}, {self.text(atom.right)})"
        left, right = self.operand(atom.left, True), self.operand(atom.right, False)
        return f"{left}//{right}" if type(atom) is FloorDiv else f"{left} % {right}"

    def powers(self, monomial: tuple[Atom, ...]) -> list[str]:
        counts: dict[Atom, int] = {}
        for atom in monomial:
            counts[atom] = counts.get(atom, 0) + 1
        return [self.factor(atom) + (f"**{count}" if count > 1 else "") for atom, count in counts.items()]


_text_printer = _TextPrinter()


def to_text(dim: Dim) -> str:
    """Return the printed form, the same in every run; `parse` reads it back."""
    return _text_printer.text(dim)


class _CPrinter(_Printer):
    def __init__(self, name: Callable[[Atom], str], wide: bool, nonnegative: Callable[[Dim], bool]) -> None:
        self.name = name
        self.wide = wide
        self.nonnegative = nonnegative

    def literal(self, value: int) -> str:
        if self.wide or not -(2**31) < value < 2**31:
            return f"{value}LL"
        return str(value)

    def is_quotient(self, atom: Atom) -> bool:
        return type(atom) in (FloorDiv, Mod) and self.nonnegative(atom.left)

    def atom(self, atom: Atom) -> str:
        if type(atom) in (Symbol, IndexVar):
            return self.name(atom)
        if self.is_quotient(atom):
            sign = "/" if type(atom) is FloorDiv else "%"
            return f"{self.operand(atom.left, True)} {sign} {self.operand(atom.right, False)}"
        function = {FloorDiv: "floor_div", Mod: "floor_mod", Max: "max", Min: "min"}[type(atom)]
        return f"{function}({self.text(atom.left)}, {self.text(atom.right)})"


def to_c(
    dim: Dim,
    name: Callable[[Atom], str],
    type: str = "int",
    ranges=None,
    index_extents: Sequence[Dim] = (),
) -> str:
    """Return dim as a C expression; `name` gives the C name of a `Symbol` or `IndexVar`.

    `type` is "int" or "long long": the type of the named variables, which literals take too. Where the dividend is
    proven non-negative over the ranges and extents, `/` and `%` are used; elsewhere calls of `floor_div(a, b)` and
    `floor_mod(a, b)`, which the source must define, as it must `max` and `min`.
    """
    from .proofs import prove_nonnegative

    if type not in ("int", "long long"):
        raise ValueError(f"to_c writes int or long long, not {type!r}")
    printer = _CPrinter(name, type == "long long", lambda left: prove_nonnegative(left, ranges, index_extents))
    return printer.text(dim)


_TOKEN = re.compile(r'\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_.]*)|("(?:[^"\\]|\\.)*")|(//|\*\*|[-+*%(),]))')


class _Parser:
    def __init__(self, text: str) -> None:
        self.source = text
        self.tokens: list[str] = []
        end = len(text.rstrip())
        place = 0
        while place < end:
            match = _TOKEN.match(text, place)
            if match is None:
                raise self.error(f"unexpected {text[place:].strip()[:10]!r}")
            self.tokens.append(match.group().strip())
            place = match.end()
        self.place = 0

    def error(self, found: str) -> InvalidInput:
        return InvalidInput(
            f"cannot read the dim {self.source!r}: {found}; "
            "expected numbers, names, + - * // % **, max(a, b), min(a, b)"
        )

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise self.error(f"{'end of text' if not token else repr(token)} where {expected or 'a value'!r} belongs")
        self.place += 1
        return token

    def sum(self) -> Dim:
        value = self.product()
        while self.peek() in ("+", "-"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        return value

    def product(self) -> Dim:
        value = self.signed()
        while self.peek() in ("*", "//", "%"):
            sign = self.take()
            right = self.signed()
            if sign != "*" and type(right) is int and right == 0:
                raise self.error("division by 0")
            if sign == "*":
                value = value * right
            else:
                value = floor_div(value, right) if sign == "//" else floor_mod(value, right)
        return value

    def signed(self) -> Dim:
        if self.peek() in ("-", "+"):
            return -self.signed() if self.take() == "-" else self.signed()
        value = self.value()
        if self.peek() == "**":
            self.take()
            exponent = self.take()
            if not exponent.isdigit():
                raise self.error(f"the power {exponent!r} is not a number")
            value = value ** int(exponent)
        return value

    def value(self) -> Dim:
        token = self.take()
        if token == "(":
            value = self.sum()
            self.take(")")
            return value
        if token.isdigit():
            return int(token)
        if token[0] == '"':
            return symbol(json.loads(token))
        if token in ("max", "min"):
            self.take("(")
            left = self.sum()
            self.take(",")
            right = self.sum()
            self.take(")")
            return maximum(left, right) if token == "max" else minimum(left, right)
        if re.fullmatch(r"i\d+", token):
            return index_symbol(int(token[1:]))
        if not (token[0].isalpha() or token[0] == "_"):
            raise self.error(f"{token!r} where a value belongs")
        return symbol(token)


def parse(text: str) -> Dim:
    """Read the printed form of a dim: `parse(str(dim)) == dim`.

    A symbol whose name is not a plain word, or would read as an index variable, stands in double quotes. InvalidInput
    says what could not be read.
    """
    parser = _Parser(text)
    value = parser.sum()
    if parser.peek():
        raise parser.error(f"{parser.peek()!r} after the end")
    return value
