"""Dims: canonical integer polynomials over named symbols and index variables. This module is the whole public face.

A `Dim` is an `int` or an `Expr`. `polynomial` holds the algebra, `division` quotients and remainders, `dim_values`
substitution and evaluation, `proofs` what is true over ranges, `dim_text` the printed form and C expressions.
"""

from .dim_bounds import Range, Ranges
from .dim_text import parse, to_c
from .dim_values import evaluate, linear_terms, substitute
from .division import ceil_div, floor_div, floor_mod
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
    as_dim,
    exact_div,
    index_axes,
    index_symbol,
    maximum,
    minimum,
    product,
    symbol,
    symbols,
)
from .proofs import bounds, divides, prove_less, prove_nonnegative, simplify

__all__ = [
    "Atom",
    "Dim",
    "Expr",
    "FloorDiv",
    "IndexVar",
    "Max",
    "Min",
    "Mod",
    "Range",
    "Ranges",
    "Symbol",
    "as_dim",
    "bounds",
    "ceil_div",
    "divides",
    "evaluate",
    "exact_div",
    "floor_div",
    "floor_mod",
    "index_axes",
    "index_symbol",
    "linear_terms",
    "maximum",
    "minimum",
    "parse",
    "product",
    "prove_less",
    "prove_nonnegative",
    "simplify",
    "substitute",
    "symbol",
    "symbols",
    "to_c",
]
