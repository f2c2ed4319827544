"""Resize and Upsample: each axis in turn reads its operand at computed places, nearest or weighted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...ir.graph import Value
from ...plan.dims import Dim, index_symbol
from ...plan.dtypes import float32, int64
from ..context import NodeBuilder
from ..registry import onnx_op

_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
)  # fmt: skip
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_ONLY = {
    "mode": ("nearest", "linear", "cubic"),
    "coordinate_transformation_mode": _COORDINATES,
    "nearest_mode": _NEAREST,
}


@dataclass(frozen=True)
class Rule:
    """How output places become operand places, and how elements are read there."""

    mode: str
    coordinates: str
    nearest: str
    cubic_a: float = -0.75
    exclude_outside: bool = False


@onnx_op("Upsample", 7, only={"mode": ("nearest", "linear")})
def upsample_7(b: NodeBuilder, x: Value, *, mode: str, scales: Sequence[float]) -> Value:
    return _scaled(b, x, range(x.type.rank), scales, Rule(mode, "asymmetric", "floor"))


@onnx_op("Upsample", 9, only={"mode": ("nearest", "linear")})
@onnx_op("Resize", 10, only={"mode": ("nearest", "linear")})
def resize_10(b: NodeBuilder, x: Value, scales: Value, *, mode: str) -> Value:
    """Nearest rounds down where an axis grows and up where it shrinks."""
    return _scaled(
        b, x, range(x.type.rank), b.numbers(scales, "the scales").tolist(), Rule(mode, "asymmetric", "simple")
    )


@onnx_op("Resize", 11, 13, only=_ONLY, ignored=("extrapolation_value",))
def resize_11(
    b: NodeBuilder,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    mode: str,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    nearest_mode: str,
) -> Value:
    rule = Rule(mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(exclude_outside))
    return _resized(b, x, range(x.type.rank), scales, sizes, rule)


@onnx_op(
    "Resize", 18, 19, ignored=("extrapolation_value",),
    only={**_ONLY, "antialias": (0,), "keep_aspect_ratio_policy": ("stretch",)},
)  # fmt: skip
def resize(
    b: NodeBuilder,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    mode: str,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    nearest_mode: str,
    antialias: int,
    keep_aspect_ratio_policy: str,
    axes: Sequence[int] | None = None,
) -> Value:
    rule = Rule(mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(exclude_outside))
    return _resized(b, x, range(x.type.rank) if axes is None else b.axes(axes, x.type.rank), scales, sizes, rule)


def _resized(
    b: NodeBuilder, x: Value, axes: Sequence[int], scales: Value | None, sizes: Value | None, rule: Rule
) -> Value:
    if sizes is not None and sizes.shape != (0,):
        return _sized(b, x, axes, b.ints(sizes, "the sizes"), rule)
    if scales is None or scales.shape == (0,):
        b.invalid("needs scales or sizes")
    return _scaled(b, x, axes, b.numbers(scales, "the scales").tolist(), rule)


def _scaled(b: NodeBuilder, x: Value, axes: Sequence[int], scales: Sequence[float], rule: Rule) -> Value:
    if len(scales) != len(axes):
        b.invalid(f"{len(scales)} scales for {len(axes)} axes")
    return _by_axis(b, x, [(axis, _floor(b, x.shape[axis], s), s) for axis, s in zip(axes, scales, strict=True)], rule)


def _floor(b: NodeBuilder, extent: Dim, scale: float) -> Dim:
    """Return the new extent, which is rounded down."""
    if type(extent) is int:
        return int(np.floor(np.float32(extent) * np.float32(scale)))
    ratio = Fraction(scale).limit_denominator(1000)
    return b.simplify(extent * ratio.numerator // ratio.denominator)


def _sized(b: NodeBuilder, x: Value, axes: Sequence[int], sizes: Sequence[Dim], rule: Rule) -> Value:
    if len(sizes) != len(axes):
        b.invalid(f"{len(sizes)} sizes for {len(axes)} axes")
    return _by_axis(
        b, x, [(axis, size, _ratio(size, x.shape[axis])) for axis, size in zip(axes, sizes, strict=True)], rule
    )


def _ratio(size: Dim, extent: Dim) -> float | None:
    """Return the scale as a number; None if it depends on symbolic dims."""
    if size == extent:
        return 1.0
    return size / extent if type(size) is int and type(extent) is int and extent else None


def _by_axis(b: NodeBuilder, x: Value, steps: Sequence[tuple[int, Dim, float | None]], rule: Rule) -> Value:
    dtype = x.dtype
    for axis, size, scale in steps:
        if scale == 1 and size == x.shape[axis]:
            continue
        if rule.mode == "nearest":
            x = _nearest(b, x, axis, size, scale, rule)
        else:
            x = _weighted(b, b.cast(x, float32 if not dtype.is_float else dtype.compute), axis, size, scale, rule)
    return b.cast(x, dtype)


_PLAIN_REPEATS = {("asymmetric", "floor"), ("asymmetric", "simple"), ("half_pixel", "round_prefer_floor"),
                  ("half_pixel", "round_prefer_ceil"), ("tf_half_pixel_for_nn", "floor")}  # fmt: skip


def _nearest(b: NodeBuilder, x: Value, axis: int, size: Dim, scale: float | None, rule: Rule) -> Value:
    if scale is not None and scale.is_integer() and (rule.coordinates, rule.nearest) in _PLAIN_REPEATS:
        shape = [size if k == axis else extent for k, extent in enumerate(x.shape)]
        places = [index_symbol(k) // int(scale) if k == axis else index_symbol(k) for k in range(x.type.rank)]
        return b.indexed(x, shape, places)
    place = _places(b, x.shape[axis], size, scale, rule)
    nearest = rule.nearest
    if nearest == "simple":
        if scale is None:
            b.fail("the scale must be a number")
        nearest = "floor" if scale >= 1 else "ceil"
    if nearest == "round_prefer_floor":
        place = b.b("ceil", b.b("sub", place, 0.5))
    elif nearest == "round_prefer_ceil":
        place = b.b("floor", b.b("add", place, 0.5))
    else:
        place = b.b(nearest, place)
    return b.take(x, _inside(b, place, x.shape[axis]), axis)


def _inside(b: NodeBuilder, place: Value, extent: Dim) -> Value:
    """Return whole places as indices, brought inside the axis."""
    return b.b("min", b.b("max", b.cast(place, int64), 0), b.dim_value(extent - 1))


def _places(b: NodeBuilder, extent: Dim, size: Dim, scale: float | None, rule: Rule) -> Value:
    """Return the place in the operand that each output element is taken from, in float32."""
    at = b.cast(b.iota((size,), index_symbol(0)), float32)
    length, old = (b.cast(b.dim_value(dim), float32) for dim in (size, extent))
    ratio = b.b("div", length, old) if scale is None else b.scalar(np.float32(scale), float32)
    half_pixel = b.b("sub", b.b("div", b.b("add", at, 0.5), ratio), 0.5)
    if rule.coordinates == "half_pixel":
        return half_pixel
    if rule.coordinates == "pytorch_half_pixel":
        return b.b("where", b.b("greater", length, 1), half_pixel, 0)
    if rule.coordinates == "half_pixel_symmetric":
        adjustment = b.b("div", length, b.b("mul", ratio, old))
        offset = b.b("mul", b.b("mul", old, 0.5), b.b("sub", 1, adjustment))
        return b.b("add", offset, half_pixel)
    if rule.coordinates == "align_corners":
        steps = b.b("max", b.b("sub", length, 1), 1)
        return b.b("div", b.b("mul", at, b.b("sub", old, 1)), steps)
    if rule.coordinates == "tf_half_pixel_for_nn":
        return b.b("div", b.b("add", at, 0.5), ratio)
    return b.b("div", at, ratio)


def _weighted(b: NodeBuilder, x: Value, axis: int, size: Dim, scale: float | None, rule: Rule) -> Value:
    place = _places(b, x.shape[axis], size, scale, rule)
    last = b.cast(b.dim_value(x.shape[axis] - 1), float32)
    if rule.mode == "linear":
        place = b.b("min", b.b("max", place, 0), last)
    first = b.b("floor", place)
    beyond = b.b("sub", place, first)
    taps = linear_taps(b, beyond) if rule.mode == "linear" else cubic_taps(b, beyond, rule.cubic_a)
    if rule.exclude_outside:
        taps = _renormalized(b, first, taps, last)
    column = [size if k == axis else 1 for k in range(x.type.rank)]
    total = None
    for offset, weight in taps:
        row = b.take(x, _inside(b, b.b("add", first, offset), x.shape[axis]), axis)
        term = b.b("mul", row, b.reshape(b.cast(weight, x.dtype), column))
        total = term if total is None else b.b("add", total, term)
    return total


def linear_taps(b: NodeBuilder, beyond: Value) -> list[tuple[int, Value]]:
    """Return (offset, weight) of the two neighbours of a place that lies `beyond` the first."""
    return [(0, b.b("sub", 1, beyond)), (1, beyond)]


def cubic_taps(b: NodeBuilder, t: Value, a: float) -> list[tuple[int, Value]]:
    """Return (offset, weight) of the four neighbours, by the cubic of parameter a."""

    def near(u: Value) -> Value:  # ((a + 2) u - (a + 3)) u u + 1, for u up to 1
        return b.b("add", b.b("mul", b.b("mul", b.b("sub", b.b("mul", u, a + 2), a + 3), u), u), 1)

    def far(u: Value) -> Value:  # ((a u - 5 a) u + 8 a) u - 4 a, for u from 1 to 2
        inner = b.b("add", b.b("mul", b.b("sub", b.b("mul", u, a), 5 * a), u), 8 * a)
        return b.b("sub", b.b("mul", inner, u), 4 * a)

    rest = b.b("sub", 1, t)
    return [(-1, far(b.b("add", t, 1))), (0, near(t)), (1, near(rest)), (2, far(b.b("add", rest, 1)))]


def _renormalized(
    b: NodeBuilder, first: Value, taps: Sequence[tuple[int, Value]], last: Value
) -> list[tuple[int, Value]]:
    """Give neighbours outside the operand the weight 0, and the others the sum 1."""
    kept = []
    for offset, weight in taps:
        place = b.b("add", first, offset)
        inside = b.b("and", b.b("greater_equal", place, 0), b.b("less_equal", place, last))
        kept.append((offset, b.b("where", inside, weight, 0)))
    total = kept[0][1]
    for _, weight in kept[1:]:
        total = b.b("add", total, weight)
    return [(offset, b.b("div", weight, total)) for offset, weight in kept]
