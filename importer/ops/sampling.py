"""Reading images at computed places, and putting patches back: GridSample, AffineGrid, Col2Im, MaxUnpool."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations

import numpy as np

from ...ir.graph import Value
from ...plan.dims import Dim, index_symbol, product
from ...plan.dtypes import int64
from ..context import NodeBuilder
from ..registry import onnx_op
from .precision import computed_wide
from .resizing import cubic_taps, linear_taps

_PADDING = ("zeros", "border", "reflection")


@onnx_op("GridSample", 16, only={"mode": ("bilinear", "nearest", "bicubic"), "padding_mode": _PADDING})
def grid_sample_16(b: NodeBuilder, x: Value, grid: Value, *, align_corners: int, mode: str, padding_mode: str) -> Value:
    name = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}[mode]
    return grid_sample(b, x, grid, align_corners=align_corners, mode=name, padding_mode=padding_mode)


@onnx_op("GridSample", 20, 22, only={"mode": ("linear", "nearest", "cubic"), "padding_mode": _PADDING})
@computed_wide
def grid_sample(b: NodeBuilder, x: Value, grid: Value, *, align_corners: int, mode: str, padding_mode: str) -> Value:
    """Read x [n, c, *spatial] at the places of the grid [n, *out, axes], whose last axis counts spatial axes backward.

    -1 and 1 mean the first and the last element, or with `align_corners` off the outer edges of those.
    """
    rank = x.type.rank - 2
    sizes = x.shape[2:]
    out = grid.shape[1:-1]
    places = []
    for axis, size in enumerate(sizes):
        coordinate = b.squeeze(b.slice_axis(grid, -1, rank - 1 - axis, 1), [-1])
        places.append(_pixel(b, coordinate, size, bool(align_corners)))
    if mode != "cubic":
        places = [_folded(b, p, s, padding_mode, bool(align_corners)) for p, s in zip(places, sizes, strict=True)]
    if mode == "nearest":
        return _read(b, x, [b.b("round_even", place) for place in places], out, padding_mode, bool(align_corners))
    firsts = [b.b("floor", place) for place in places]
    make = linear_taps if mode == "linear" else lambda b, beyond: cubic_taps(b, beyond, -0.75)
    taps = [make(b, b.b("sub", place, first)) for place, first in zip(places, firsts, strict=True)]
    total = None
    for corner in combinations(*taps):
        at = [b.b("add", first, offset) for first, (offset, _) in zip(firsts, corner, strict=True)]
        if mode == "cubic":
            at = [_folded(b, p, s, padding_mode, bool(align_corners)) for p, s in zip(at, sizes, strict=True)]
        weight = corner[0][1]
        for _, other in corner[1:]:
            weight = b.b("mul", weight, other)
        term = b.b("mul", _read(b, x, at, out, padding_mode, bool(align_corners)), b.unsqueeze(weight, [1]))
        total = term if total is None else b.b("add", total, term)
    return total


def _pixel(b: NodeBuilder, coordinate: Value, size: Dim, align_corners: bool) -> Value:
    last = b.size_value(size - 1, coordinate.dtype)
    if align_corners:
        return b.b("mul", b.b("mul", b.b("add", coordinate, 1), 0.5), last)
    whole = b.size_value(size, coordinate.dtype)
    return b.b("mul", b.b("sub", b.b("mul", b.b("add", coordinate, 1), whole), 1), 0.5)


def _folded(b: NodeBuilder, place: Value, size: Dim, padding_mode: str, align_corners: bool) -> Value:
    """Bring places outside back inside, by clamping or by mirroring at the edges."""
    if padding_mode == "zeros":
        return place
    last = b.size_value(size - 1, place.dtype)
    if padding_mode == "reflection":
        low = 0.0 if align_corners else -0.5
        span = last if align_corners else b.size_value(size, place.dtype)
        span = b.b("max", span, 1e-6)
        around = b.b("floor_mod", b.b("sub", place, low), b.b("mul", span, 2))
        place = b.b("add", b.b("min", around, b.b("sub", b.b("mul", span, 2), around)), low)
    return b.b("min", b.b("max", place, 0), last)


def _read(
    b: NodeBuilder, x: Value, places: Sequence[Value], out: Sequence[Dim], padding_mode: str, align_corners: bool
) -> Value:
    """Return x at whole places, [n, c, *out]; with zeros around it."""
    sizes = x.shape[2:]
    flat = b.iota((x.shape[0], *out), 0)
    inside = None
    for axis, (place, size) in enumerate(zip(places, sizes, strict=True)):
        index = b.cast(place, int64)
        if padding_mode == "zeros":
            within = b.b("and", b.b("greater_equal", place, 0), b.b("less", index, b.dim_value(size)))
            inside = within if inside is None else b.b("and", inside, within)
        index = b.b("min", b.b("max", index, 0), b.dim_value(size - 1))
        flat = b.b("add", flat, b.b("mul", index, b.dim_value(product(sizes[axis + 1 :]))))
    shape = (x.shape[0], x.shape[1], *out)
    channel = b.iota(shape, (index_symbol(0) * x.shape[1] + index_symbol(1)) * product(sizes))
    values = b.gather_flat(x, b.b("add", channel, b.unsqueeze(flat, [1])))
    return values if inside is None else b.b("where", b.unsqueeze(inside, [1]), values, 0)


@onnx_op("AffineGrid", 20)
def affine_grid(b: NodeBuilder, theta: Value, size: Value, *, align_corners: int) -> Value:
    """Return the places [n, *out, axes] that the matrices theta [n, axes, axes + 1] map an even grid to."""
    sizes = b.ints(size, "the size")
    out = sizes[2:]
    axes = len(out)
    columns = []
    for axis in reversed(range(axes)):
        extent = out[axis]
        at = b.cast(b.iota((*out,), index_symbol(axis)), theta.dtype)
        if align_corners:
            steps = b.size_value(b.larger(extent - 1, 1), theta.dtype)
            columns.append(b.b("sub", b.b("div", b.b("mul", at, 2), steps), 1))
        else:
            whole = b.size_value(extent, theta.dtype)
            columns.append(b.b("sub", b.b("div", b.b("add", b.b("mul", at, 2), 1), whole), 1))
    columns.append(b.expand(b.scalar(1, theta.dtype), out))
    grid = b.concat([b.reshape(column, (product(out), 1)) for column in columns], 1)
    places = b.contract(grid, "pk", theta, "nik", "npi")
    return b.reshape(places, (sizes[0], *out, axes))


@onnx_op("Col2Im", 18)
def col2im(
    b: NodeBuilder,
    x: Value,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """Add the columns [n, c * block, blocks] into an image: what overlaps is summed."""
    image, block = b.ints(image_shape, "the image's shape"), b.ints(block_shape, "the block's shape")
    axes = len(image)
    dilations, strides = list(dilations or [1] * axes), list(strides or [1] * axes)
    pads = list(pads or [0] * 2 * axes)
    counts = [
        b.simplify((image[k] + pads[k] + pads[k + axes] - dilations[k] * (block[k] - 1) - 1) // strides[k]) + 1
        for k in range(axes)
    ]
    channels = b.simplify(x.shape[1] // product(block))
    shape = (x.shape[0], channels, *block, *counts)
    flat = b.iota(shape, (index_symbol(0) * channels + index_symbol(1)) * product(image))
    inside = b.expand(b.constant(np.array(True)), shape)
    for k in range(axes):
        place = b.iota(shape, index_symbol(2 + axes + k) * strides[k] + index_symbol(2 + k) * dilations[k] - pads[k])
        within = b.b("and", b.b("greater_equal", place, 0), b.b("less", place, b.dim_value(image[k])))
        inside = b.b("and", inside, within)
        flat = b.b("add", flat, b.b("mul", place, b.dim_value(product(image[k + 1 :]))))
    result = (x.shape[0], channels, *image)
    target = b.b("where", inside, flat, b.dim_value(product(result)))  # out of range is dropped
    return b.scatter_flat(b.expand(b.scalar(0, x.dtype), result), target, b.reshape(x, shape), "add")


@onnx_op("MaxUnpool", 9, 11, 22)
def max_unpool(
    b: NodeBuilder,
    x: Value,
    places: Value,
    output_shape: Value | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """Put each element where MaxPool found it, in zeros. The places are numbers in the tensor that was pooled."""
    axes = len(kernel_shape)
    strides, pads = list(strides or [1] * axes), list(pads or [0] * 2 * axes)
    pooled = [(x.shape[2 + k] - 1) * strides[k] + kernel_shape[k] - pads[k] - pads[k + axes] for k in range(axes)]
    shape = (*x.shape[:2], *pooled)
    whole = shape if output_shape is None else b.ints(output_shape, "the output shape")
    zeros = b.expand(b.scalar(0, x.dtype), shape)
    result = b.scatter_flat(zeros, b.cast(places, int64), x, "none")
    return b.pad(result, [0] * len(whole), [b.simplify(w - s) for w, s in zip(whole, shape, strict=True)], 0)
