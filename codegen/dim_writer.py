"""Dims as C: which symbols become parameters, how wide index arithmetic is, and how index variables are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy

from ..ir.region import Region
from ..plan.dims import Dim, IndexVar, Ranges, Symbol, bounds, product, prove_nonnegative, symbol, symbols, to_c
from ..plan.view import Bound

INT_LIMIT = 2**31


def needs_wide_index(counts: Iterable[Dim], ranges: Ranges | None) -> bool:
    """Say whether some of these element counts may reach 2**31."""
    most = (bounds(count, ranges)[1] for count in counts)
    return any(high is None or high >= INT_LIMIT for high in most)


def counts_of(region: Region) -> list[Dim]:
    """Return every number of elements that a kernel of this region numbers linearly."""
    spaces = [operand.shape for operand in region.operands]
    spaces += [region.nodes[at].space for at in region.stores]
    spaces += region.row_split() or ()
    return [product(space) for space in spaces]


class DimWriter:
    """Writes dims as C expressions in one kernel.

    Index variables are called `i<axis>` unless `names` says otherwise; `index_type` is `int` or `long long`, and kernels
    call it `Index`.
    """

    def __init__(self, wide: bool, ranges: Ranges | None, extents: Sequence[Dim], dims: Iterable[Dim]) -> None:
        self.wide = wide
        self.ranges = ranges
        self.extents = list(extents)
        names = sorted(frozenset().union(*(symbols(dim) for dim in dims)))
        self.parameters = _parameter_names(names)

    def over(self, extents: Sequence[Dim]) -> DimWriter:
        """Return the writer of the same kernel for index variables of other extents."""
        other = copy(self)
        other.extents = list(extents)
        return other

    @property
    def index_type(self) -> str:
        return "long long" if self.wide else "int"

    @property
    def scalars(self) -> tuple[Dim, ...]:
        """The symbols that are passed to the kernel, in the order of its parameters."""
        return tuple(symbol(name) for name in self.parameters)

    def c(self, dim: Dim, names: Mapping[int, str] = {}) -> str:
        """Return dim as an `Index` expression without parentheses around it."""
        return to_c(dim, lambda atom: self._name(atom, names), self.index_type, self.ranges, self.extents)

    def c_int64(self, dim: Dim, names: Mapping[int, str] = {}) -> str:
        """Return dim as an expression that cannot overflow 64 bits; 32-bit arithmetic where that is known to do."""
        low, high = bounds(dim, self.ranges, self.extents)
        if self.wide or (low is not None and high is not None and -INT_LIMIT <= low and high < INT_LIMIT):
            return f"(int64_t)({self.c(dim, names)})"
        wide = to_c(
            dim, lambda atom: f"(long long){self._name(atom, names)}", "long long", self.ranges, self.extents
        )
        return f"(int64_t)({wide})"

    def condition(self, valid: Sequence[Bound], names: Mapping[int, str] = {}) -> str:
        """Return the C condition that all bounds hold, without the halves that are always true."""
        parts = []
        for bound in valid:
            if not self._is_nonnegative(bound.expr - bound.low):
                parts.append(f"{self.c(bound.low)} <= {self.c(bound.expr, names)}")
            if not self._is_nonnegative(bound.high - 1 - bound.expr):
                parts.append(f"{self.c(bound.expr, names)} < {self.c(bound.high)}")
        return " && ".join(parts) or "true"

    def _is_nonnegative(self, dim: Dim) -> bool:
        return prove_nonnegative(dim, self.ranges, self.extents)

    def _name(self, atom: Symbol | IndexVar, names: Mapping[int, str]) -> str:
        if isinstance(atom, Symbol):
            return self.parameters[atom.name]
        return names.get(atom.axis, f"i{atom.axis}")


def _parameter_names(names: Sequence[str]) -> dict[str, str]:
    """Return a C identifier for every symbol: `n_` and its name with other characters replaced, numbered if that clashes."""
    taken: dict[str, str] = {}
    for name in names:
        plain = "n_" + re.sub(r"\W", "_", name, flags=re.ASCII)
        identifier, number = plain, 2
        while identifier in taken.values():
            identifier, number = f"{plain}_{number}", number + 1
        taken[name] = identifier
    return taken
