"""Index maps: which element of an operand an iteration point reads, and where it reads a fill value instead.

A view's *output space* is what one iterates over, its *input* the operand. Reshape, transpose, slice, expand, pad and
sliding windows are views; `compose` chains them. Index expressions are dims over the output space's index variables,
simplified under the extents, so that equal maps are equal objects as far as simplification reaches.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .dims import Dim, Ranges, as_dim, index_axes, index_symbol, linear_terms, parse, product, substitute
from .errors import InvalidInput, LuminalError
from .polynomial import pairs, scaled, terms_of
from .proofs import Setting, setting

Fill = int | float | bool


@dataclass(frozen=True)
class Bound:
    """A condition on the iteration point: `low <= expr < high`."""

    expr: Dim
    low: Dim
    high: Dim

    def __str__(self) -> str:
        return f"{self.low} <= {self.expr} < {self.high}"

    def normal(self, where: Setting) -> Bound:
        """Return the same condition with everything index-free moved out of `expr`, whose first term is positive."""
        expr = where.simplify(self.expr)
        offset = _index_free(expr)
        expr, low, high = expr - offset, self.low - offset, self.high - offset
        if str(expr).startswith("-"):
            expr, low, high = -expr, 1 - high, 1 - low
        return Bound(expr, where.simplify(low), where.simplify(high))

    def is_always_true(self, where: Setting) -> bool:
        return where.nonnegative(self.expr - self.low) and where.nonnegative(self.high - 1 - self.expr)


@dataclass(frozen=True, eq=False)
class View:
    """A map from points of `out_shape` to elements of an array of `in_shape`, or to `fill`.

    `index` gives one expression per input axis. Where all bounds in `valid` hold, the index lies inside `in_shape`;
    where one fails, the value is `fill` and the index means nothing. `fill` is None exactly when `valid` is empty.
    Build views with `make` or the constructors below, which bring them into canonical form.
    """

    in_shape: tuple[Dim, ...]
    out_shape: tuple[Dim, ...]
    index: tuple[Dim, ...]
    valid: tuple[Bound, ...] = ()
    fill: Fill | None = None

    def __post_init__(self) -> None:
        if len(self.index) != len(self.in_shape):
            raise LuminalError(
                f"a view of an operand of shape {_shape_text(self.in_shape)} needs one index expression per axis, "
                f"got {len(self.index)}"
            )
        if (self.fill is None) != (not self.valid):
            raise LuminalError(f"a view has a fill value exactly when it has bounds; got {self.fill}, {self.valid}")

    @classmethod
    def make(
        cls,
        in_shape: Sequence[Dim],
        out_shape: Sequence[Dim],
        index: Sequence[Dim],
        valid: Sequence[Bound] = (),
        fill: Fill | None = None,
        ranges: Ranges | None = None,
    ) -> View:
        """Return the view in canonical form: index 0 along axes of extent 1, simplified, provable bounds dropped."""
        in_shape, out_shape = _dims(in_shape), _dims(out_shape)
        where = setting(ranges, out_shape)
        ones = {axis: 0 for axis, extent in enumerate(out_shape) if _is(extent, 1)}
        kept = {}
        for bound in valid:
            bound = Bound(substitute(bound.expr, {}, ones), bound.low, bound.high).normal(where)
            if not bound.is_always_true(where):
                kept[bound] = None
        bounds = tuple(sorted(kept, key=str))
        index = tuple(where.simplify(substitute(as_dim(expr), {}, ones)) for expr in index)
        if not bounds and any(map(pairs, index)):
            offset = where.simplify(_row_major(in_shape, index))
            if not pairs(offset):  # the digits of the offset are the one form for all spellings of a linear map
                index = tuple(_digits(offset, in_shape, where))
        return cls(in_shape, out_shape, index, bounds, _plain_fill(fill) if bounds else None)

    @cached_property
    def _key(self) -> tuple:
        fill = self.fill
        kind = type(fill).__name__
        exact = fill.hex() if isinstance(fill, float) else fill  # tells -0.0 from 0.0; every NaN reads "nan"
        return (self.in_shape, self.out_shape, self.index, self.valid, kind, exact)

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, View) and self._hash == other._hash and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        shapes = f"{_shape_text(self.in_shape)} -> {_shape_text(self.out_shape)}"
        text = f"{shapes} : {_shape_text(self.index)}"
        if self.valid:
            text += f" where {' and '.join(map(str, self.valid))} else {self.fill!r}"
        return text

    @property
    def is_total(self) -> bool:
        """No point reads the fill value."""
        return not self.valid

    def offset(self, ranges: Ranges | None = None) -> Dim:
        """Return the element's row-major number in an array of `in_shape`."""
        return setting(ranges, self.out_shape).simplify(_row_major(self.in_shape, self.index))

    def linear(self, ranges: Ranges | None = None) -> tuple[Dim, tuple[Dim, ...]] | None:
        """Return (base, stride per output axis) when the offset is linear in the output point, else None.

        An axis of extent 1, or one that repeats the same elements, has stride 0. Bounds are not looked at.
        """
        axes = range(len(self.out_shape))
        parts = linear_terms(self.offset(ranges), axes)
        return None if parts is None else (parts[0], tuple(parts[1][axis] for axis in axes))

    def is_identity(self, ranges: Ranges | None = None) -> bool:
        """Say whether every point provably reads the element of the same position, in an array of the same shape."""
        return self.is_total and self.in_shape == self.out_shape and self.index == _own_index(self.out_shape)

    def is_contiguous(self, ranges: Ranges | None = None) -> bool:
        """Say whether the output provably has the operand's elements in their stored order, all of them."""
        if not self.is_total or product(self.in_shape) != product(self.out_shape):
            return False
        return self.offset(ranges) == _row_major(self.out_shape, _own_index(self.out_shape))

    def broadcast_axes(self) -> tuple[int, ...]:
        """Return the output axes that neither the index nor a bound depends on; extent-1 axes are among them."""
        used = frozenset().union(*map(index_axes, self.index), *(index_axes(bound.expr) for bound in self.valid))
        return tuple(axis for axis in range(len(self.out_shape)) if axis not in used)

    def apply(self, array: np.ndarray, env: Mapping[str, int] = {}) -> np.ndarray:
        """Return what the view reads from array, of shape `out_shape` at the dims of env.

        The result may share memory with array and is then read-only.
        """
        from .view_apply import apply_view

        return apply_view(self, array, env)


def compose(outer: View, inner: View, ranges: Ranges | None = None) -> View | None:
    """Return the view of inner's operand that reads what outer reads from inner's output.

    `outer.in_shape` must equal `inner.out_shape`. None when both have bounds that matter and different fill values,
    which one view cannot express.
    """
    if outer.in_shape != inner.out_shape:
        raise LuminalError(
            f"cannot compose views: the outer one reads shape {_shape_text(outer.in_shape)}, "
            f"the inner one makes {_shape_text(inner.out_shape)}"
        )
    at = dict(enumerate(outer.index))
    index = [substitute(expr, {}, at) for expr in inner.index]
    bounds = [Bound(substitute(bound.expr, {}, at), bound.low, bound.high) for bound in inner.valid]
    fill = outer.fill
    if bounds and outer.valid:
        bounds = [bound for bound in bounds if not _holds_where(bound, outer, ranges)]
        if bounds and not _same_fill(outer.fill, inner.fill):
            return None
    elif bounds:
        fill = inner.fill
    return View.make(inner.in_shape, outer.out_shape, index, [*outer.valid, *bounds], fill, ranges)


def _holds_where(bound: Bound, view: View, ranges: Ranges | None) -> bool:
    """Say whether the bound provably holds wherever the view's own bounds do.

    Each of those that limits a bare index variable is used by renaming the variable to `low + i`, i below the width.
    """
    extents = list(view.out_shape)
    moved: dict[int, Dim] = {}
    for own in view.valid:
        axes = index_axes(own.expr)
        axis = next(iter(axes), None)
        if len(axes) == 1 and own.expr == index_symbol(axis) and axis not in moved:
            where = setting(ranges, view.out_shape)
            low = own.low if where.nonnegative(own.low) else 0
            high = own.high if where.nonnegative(extents[axis] - own.high) else extents[axis]
            moved[axis] = index_symbol(axis) + low
            extents[axis] = high - low
    shifted = Bound(substitute(bound.expr, {}, moved), bound.low, bound.high)
    return shifted.is_always_true(setting(ranges, extents))


def identity(shape: Sequence[Dim], ranges: Ranges | None = None) -> View:
    """Return the view that changes nothing."""
    return View.make(shape, shape, _own_index(_dims(shape)), ranges=ranges)


def select(
    in_shape: Sequence[Dim], out_shape: Sequence[Dim], index: Sequence[Dim], ranges: Ranges | None = None
) -> View:
    """Return the total view with these index expressions; they must stay inside `in_shape`."""
    return View.make(in_shape, out_shape, index, ranges=ranges)


def transpose(in_shape: Sequence[Dim], perm: Sequence[int], ranges: Ranges | None = None) -> View:
    """Return the view whose axis k is the operand's axis `perm[k]`."""
    if sorted(perm) != list(range(len(in_shape))):
        raise LuminalError(f"the permutation {list(perm)} does not fit a shape of {len(in_shape)} axes")
    place = {axis: index_symbol(k) for k, axis in enumerate(perm)}
    return View.make(
        in_shape, [in_shape[axis] for axis in perm], [place[axis] for axis in range(len(perm))], ranges=ranges
    )


def expand(in_shape: Sequence[Dim], out_shape: Sequence[Dim], ranges: Ranges | None = None) -> View:
    """Return the view that repeats along axes of extent 1 and in front, as NumPy broadcasts."""
    in_shape, out_shape = _dims(in_shape), _dims(out_shape)
    lead = len(out_shape) - len(in_shape)
    index: list[Dim] = []
    for axis, extent in enumerate(in_shape):
        if lead >= 0 and extent == out_shape[lead + axis]:
            index.append(index_symbol(lead + axis))
        elif lead >= 0 and _is(extent, 1):
            index.append(0)
        else:
            raise LuminalError(f"shape {_shape_text(in_shape)} does not broadcast to {_shape_text(out_shape)}")
    return View.make(in_shape, out_shape, index, ranges=ranges)


def slice_(
    in_shape: Sequence[Dim],
    starts: Sequence[Dim],
    steps: Sequence[Dim],
    sizes: Sequence[Dim],
    ranges: Ranges | None = None,
) -> View:
    """Return the view of `sizes[k]` elements along axis k: the one at `starts[k]`, then every `steps[k]`-th.

    Every axis has an entry; steps may be negative. All elements must exist.
    """
    _same_rank(in_shape, starts=starts, steps=steps, sizes=sizes)
    index = [start + step * index_symbol(axis) for axis, (start, step) in enumerate(zip(starts, steps, strict=True))]
    return View.make(in_shape, sizes, index, ranges=ranges)


def pad(
    in_shape: Sequence[Dim],
    before: Sequence[Dim],
    after: Sequence[Dim],
    fill: Fill,
    ranges: Ranges | None = None,
) -> View:
    """Return the view with `fill` added around the operand; negative amounts crop."""
    _same_rank(in_shape, before=before, after=after)
    index = [index_symbol(axis) - amount for axis, amount in enumerate(before)]
    out_shape = [extent + a + b for extent, a, b in zip(in_shape, before, after, strict=True)]
    bounds = [Bound(expr, 0, extent) for expr, extent in zip(index, in_shape, strict=True)]
    return View.make(in_shape, out_shape, index, bounds, fill, ranges)


def insert_axes(in_shape: Sequence[Dim], axes: Sequence[int], ranges: Ranges | None = None) -> View:
    """Return the view with axes of extent 1 added; `axes` are their positions in the result (0 or more)."""
    out_shape, index = list(in_shape), []
    for axis in sorted(axes):
        out_shape.insert(axis, 1)
    index = [index_symbol(axis) for axis in range(len(out_shape)) if axis not in set(axes)]
    return View.make(in_shape, out_shape, index, ranges=ranges)


def drop_axes(in_shape: Sequence[Dim], axes: Sequence[int], ranges: Ranges | None = None) -> View:
    """Return the view without these axes (0 or more), reading their element 0; they are meant to have extent 1."""
    kept = [axis for axis in range(len(in_shape)) if axis not in set(axes)]
    place = {axis: index_symbol(k) for k, axis in enumerate(kept)}
    index = [place.get(axis, 0) for axis in range(len(in_shape))]
    return View.make(in_shape, [in_shape[axis] for axis in kept], index, ranges=ranges)


def windows(
    in_shape: Sequence[Dim],
    axes: Sequence[int],
    kernel: Sequence[Dim],
    strides: Sequence[Dim],
    dilations: Sequence[Dim],
    pads_before: Sequence[Dim],
    out_sizes: Sequence[Dim],
    fill: Fill,
    ranges: Ranges | None = None,
) -> View:
    """Return the view of all sliding windows, as convolutions and pooling read their operand.

    `out_shape` is `in_shape` with each of `axes` replaced by its entry of `out_sizes`, then the kernel's axes. Points
    outside the operand read `fill`; without any, the view is total.
    """
    index: list[Dim] = [index_symbol(axis) for axis in range(len(in_shape))]
    out_shape = list(in_shape)
    bounds = []
    for k, axis in enumerate(axes):
        at_kernel = index_symbol(len(in_shape) + k)
        index[axis] = index_symbol(axis) * strides[k] + at_kernel * dilations[k] - pads_before[k]
        out_shape[axis] = out_sizes[k]
        bounds.append(Bound(index[axis], 0, in_shape[axis]))
    return View.make(in_shape, [*out_shape, *kernel], index, bounds, fill, ranges)


def reshape(in_shape: Sequence[Dim], out_shape: Sequence[Dim], ranges: Ranges | None = None) -> View:
    """Return the view that numbers the operand's elements row-major into another shape of as many elements.

    Axes that split or merge cleanly, symbolic ones too, get plain strides; only others get quotients and remainders.
    """
    in_shape, out_shape = _dims(in_shape), _dims(out_shape)
    total, wanted = product(in_shape), product(out_shape)
    if total != wanted and isinstance(total, int) and isinstance(wanted, int):
        raise LuminalError(
            f"cannot reshape {_shape_text(in_shape)} ({total} elements) to {_shape_text(out_shape)} ({wanted})"
        )
    index: list[Dim] = [0] * len(in_shape)
    if not _is(total, 0):
        where = setting(ranges, out_shape)
        for ins, outs in _groups(in_shape, out_shape):
            flat = _row_major([out_shape[axis] for axis in outs], [index_symbol(axis) for axis in outs])
            for axis, digit in zip(ins, _digits(flat, [in_shape[axis] for axis in ins], where), strict=True):
                index[axis] = digit
    return View.make(in_shape, out_shape, index, ranges=ranges)


def _groups(in_shape: tuple[Dim, ...], out_shape: tuple[Dim, ...]) -> list[tuple[list[int], list[int]]]:
    """Cut both shapes into the most runs of axes with equal products; axes of extent 1 take no part."""
    ins = [axis for axis, extent in enumerate(in_shape) if not _is(extent, 1)]
    outs = [axis for axis, extent in enumerate(out_shape) if not _is(extent, 1)]
    reached = {}  # product of the first k output axes -> k
    total: Dim = 1
    for k, axis in enumerate(outs, 1):
        total = total * out_shape[axis]
        reached.setdefault(total, k)
    groups = []
    in_done = out_done = 0
    total = 1
    for k, axis in enumerate(ins, 1):
        total = total * in_shape[axis]
        match = reached.get(total, 0)
        if match > out_done:
            groups.append((ins[in_done:k], outs[out_done:match]))
            in_done, out_done = k, match
    if in_done < len(ins) or out_done < len(outs):
        groups.append((ins[in_done:], outs[out_done:]))
    return groups


def _row_major(shape: Sequence[Dim], index: Sequence[Dim]) -> Dim:
    offset: Dim = 0
    for extent, at in zip(shape, index, strict=True):
        offset = offset * extent + at
    return offset


def _digits(flat: Dim, shape: Sequence[Dim], where: Setting) -> list[Dim]:
    """Return the index of the element whose row-major number in an array of that shape is `flat`."""
    digits: list[Dim] = []
    for axis, extent in enumerate(shape):
        digit = where.div(flat, product(shape[axis + 1 :]))
        digits.append(digit if all(_is(d, 1) for d in shape[:axis]) else where.mod(digit, extent))
    return digits


def _own_index(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(0 if _is(extent, 1) else index_symbol(axis) for axis, extent in enumerate(shape))


def _index_free(dim: Dim) -> Dim:
    """Return the sum of dim's terms without index variables."""
    terms = [scaled(monomial, coefficient) for monomial, coefficient in terms_of(dim).items()]
    return sum(term for term in terms if not index_axes(term))


def _dims(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(as_dim(extent) for extent in shape)


def _is(dim: Dim, number: int) -> bool:
    return type(dim) is int and dim == number


def _plain_fill(fill: Fill | np.generic | None) -> Fill | None:
    return fill.item() if isinstance(fill, np.generic) else fill


_VIEW_TEXT = re.compile(r"\s*\[(.*?)\]\s*->\s*\[(.*?)\]\s*:\s*\[(.*?)\](?:\s*where\s+(.*)\s+else\s+(\S+))?\s*\Z", re.S)
_FILL_WORDS = {"True": True, "False": False, "nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def parse_view(text: str, ranges: Ranges | None = None) -> View:
    """Read a view's printed form: `parse_view(str(view), ranges) == view` for the ranges that view was made with."""
    match = _VIEW_TEXT.match(text)
    if match is None:
        raise InvalidInput(
            f"cannot read the view {text!r}; expected [dims] -> [dims] : [index], "
            "then perhaps: where low <= expr < high and ... else fill"
        )
    in_shape, out_shape, index = (_parsed_list(part) for part in match.groups()[:3])
    bounds = []
    for condition in match[4].split(" and ") if match[4] else ():
        parts = re.fullmatch(r"(.*)<=(.*)<(.*)", condition)
        if parts is None:
            raise InvalidInput(f"cannot read the bound {condition!r} of a view; expected low <= expr < high")
        low, expr, high = map(parse, parts.groups())
        bounds.append(Bound(expr, low, high))
    return View.make(in_shape, out_shape, index, bounds, _parsed_fill(match[5]), ranges)


def _parsed_list(text: str) -> list[Dim]:
    """Read dims separated by commas that stand outside parentheses and quotes."""
    pieces = re.findall(r'(?:"(?:[^"\\]|\\.)*"|\((?:[^()]|\([^()]*\))*\)|[^,])+', text)
    return [parse(piece) for piece in pieces] if text.strip() else []


def _parsed_fill(text: str | None) -> Fill | None:
    if text is None or text in _FILL_WORDS:
        return _FILL_WORDS.get(text)
    try:
        return int(text)
    except ValueError:
        return float(text)


def _same_fill(a: Fill | None, b: Fill | None) -> bool:
    if type(a) is not type(b):
        return False
    return a.hex() == b.hex() if isinstance(a, float) else a == b


def _same_rank(in_shape: Sequence[Dim], **lists: Sequence) -> None:
    for name, values in lists.items():
        if len(values) != len(in_shape):
            raise LuminalError(f"{name} has {len(values)} entries for a shape of {len(in_shape)} axes")


def _shape_text(dims: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, dims))}]"
