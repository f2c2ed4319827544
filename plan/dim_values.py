"""What dims are worth: substitution, evaluation, and the strides of a linear index expression."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .division import rebuild
from .polynomial import (
    Atom,
    Dim,
    Expr,
    FloorDiv,
    IndexVar,
    Max,
    Mod,
    Monomial,
    Symbol,
    as_dim,
    from_terms,
    map_atoms,
    monomial_quotient,
    terms_of,
)


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
        return as_dim(dims.get(atom.name, atom.expr))
    if type(atom) is IndexVar:
        return as_dim(indices.get(atom.axis, atom.expr))
    if not any(leaf.name in dims if type(leaf) is Symbol else leaf.axis in indices for leaf in atom.leaves):
        return atom.expr
    return rebuild(atom, map_atoms(atom.left, value), map_atoms(atom.right, value))


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
