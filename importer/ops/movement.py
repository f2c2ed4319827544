"""Operators that move elements without changing them: reshape, transpose, slice, join and their relatives."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Value
from ...plan.dims import Dim, exact_div, index_symbol, product
from ...plan.dtypes import int64
from ..context import NodeBuilder
from ..data_sizes import Element
from ..registry import onnx_op
from ..shape_values import Unknown

FAR = 2**31 - 1  # exporters write the greatest 32- or 64-bit integer for "to the end"


@onnx_op("Reshape", 5, 13)
def reshape_5(b: NodeBuilder, x: Value, shape: Value) -> Value:
    return reshape(b, x, shape, allowzero=0)


@onnx_op("Reshape", 14, 19, 21, 23, 24, 25)
def reshape(b: NodeBuilder, x: Value, shape: Value, *, allowzero: int) -> Value:
    wanted = b.shape_elements(shape, "the new shape")
    for axis, dim in enumerate(wanted):
        if _is(dim, 0) and not allowzero:
            if axis >= x.type.rank:
                b.invalid(f"the new shape copies axis {axis}, which {x.type} does not have")
            wanted[axis] = x.shape[axis]
    open_axes = [axis for axis, dim in enumerate(wanted) if isinstance(dim, Unknown)]
    if len(open_axes) == 1 and not any(_is(dim, -1) or _is(dim, 0) for dim in wanted):
        rest = product(dim for dim in wanted if not isinstance(dim, Unknown))
        quotient = exact_div(product(x.shape), rest)
        if quotient is not None and b.is_nonnegative(rest - 1):  # the number of elements leaves no choice
            wanted[open_axes.pop()] = quotient
    if open_axes:
        return _reshape_by_data(b, x, wanted, bool(allowzero))
    unknown = [axis for axis, dim in enumerate(wanted) if _is(dim, -1)]
    if len(unknown) > 1:
        b.invalid(f"the new shape {_text(wanted)} has more than one -1")
    if unknown:
        wanted[unknown[0]] = _remaining(b, x.shape, wanted, unknown[0])
    _check_count(b, x, wanted)
    return b.reshape(x, wanted)


def _reshape_by_data(b: NodeBuilder, x: Value, wanted: list[Element], allowzero: bool) -> Value:
    """Reshape to a shape of which data decides some extents: no more than there are elements.

    Where the number of elements is not the same, the sizes are -1, which is an error of the run.
    """
    total = product(x.shape)
    extents = [b.scalar_of(element) for element in wanted]
    for axis, element in enumerate(wanted):
        if isinstance(element, Unknown) and not allowzero and axis < x.type.rank:
            copied = b.dim_value(x.shape[axis])
            extents[axis] = b.b("where", b.b("equal", extents[axis], 0), copied, extents[axis])
    given = b.scalar(1, int64)
    for extent in extents:
        given = b.b("mul", given, b.b("where", b.b("equal", extent, -1), 1, extent))
    rest = b.b("div", b.dim_value(total), b.b("max", given, 1))
    extents = [b.b("where", b.b("equal", extent, -1), rest, extent) for extent in extents]
    count = extents[0]
    for extent in extents[1:]:
        count = b.b("mul", count, extent)
    fits = b.b("equal", count, b.dim_value(total))
    sizes = [
        b.data_size(b.b("where", fits, extent, -1), "an extent of the new shape", total)
        if isinstance(element, Unknown) or _is(element, -1)
        else element
        for element, extent in zip(wanted, extents, strict=True)
    ]
    place: Dim = 0
    for axis, size in enumerate(sizes):
        place = place * size + index_symbol(axis)
    return b.indexed(b.reshape(x, (total,)), sizes, [place])


def _check_count(b: NodeBuilder, x: Value, wanted: Sequence[Dim]) -> None:
    total, count = product(x.shape), product(wanted)
    if b.agree(total, count):
        return
    if type(total) is int and type(count) is int:
        b.invalid(f"cannot reshape {x.type} ({total} elements) to {_text(wanted)} ({count})")
    b.fail(
        f"it is not known whether {x.type} has as many elements as {_text(wanted)} asks for; fix its dims, or give one "
        "as a multiple, with dims= (such as '8*n')"
    )


def _remaining(b: NodeBuilder, shape: Sequence[Dim], wanted: Sequence[Dim], unknown: int) -> Dim:
    """Return the extent that makes the element counts equal."""
    rest = list(wanted[:unknown]) + list(wanted[unknown + 1 :])
    total, divisor = product(shape), product(rest)
    if _is(total, 0) and _is(divisor, 0):  # both shapes are empty; equal extents cancel
        left = list(shape)
        for dim in rest:
            if dim in left:
                left.remove(dim)
        return product(left)
    if _is(divisor, 0):
        b.invalid(f"cannot tell what -1 stands for in {_text(wanted)}: the other extents have product 0")
    quotient = exact_div(total, divisor)
    if quotient is None:
        if type(total) is int and type(divisor) is int:
            b.invalid(
                f"cannot reshape [{', '.join(map(str, shape))}] to {_text(wanted)}: {total} is no multiple of {divisor}"
            )
        quotient = b.simplify(total // divisor)
    return quotient


@onnx_op("Flatten", 1, 9, 11, 13, 21, 23, 24, 25)
def flatten(b: NodeBuilder, x: Value, *, axis: int) -> Value:
    split = axis if axis == x.type.rank else b.axis(axis, x.type.rank)
    return b.reshape(x, (product(x.shape[:split]), product(x.shape[split:])))


@onnx_op("Transpose", 1, 13, 21, 23, 24, 25)
def transpose(b: NodeBuilder, x: Value, *, perm: Sequence[int] | None = None) -> Value:
    order = list(range(x.type.rank))[::-1] if perm is None else list(perm)
    if sorted(order) != list(range(x.type.rank)):
        b.invalid(f"perm {order} is no order of the {x.type.rank} axes of {x.type}")
    return b.transpose(x, order)


@onnx_op("Squeeze", 1, 11)
def squeeze_1(b: NodeBuilder, x: Value, *, axes: Sequence[int] | None = None) -> Value:
    return _squeeze(b, x, axes)


@onnx_op("Squeeze", 13, 21, 23, 24, 25)
def squeeze(b: NodeBuilder, x: Value, axes: Value | None = None) -> Value:
    return _squeeze(b, x, None if axes is None else b.ints(axes, "the axes"))


def _squeeze(b: NodeBuilder, x: Value, axes: Sequence[int] | None) -> Value:
    if axes is None:
        ones = [b.is_one(dim, f"without axes, the rank of the result depends on whether {dim} is 1") for dim in x.shape]
        if None in ones:
            unsure = x.shape[ones.index(None)]
            b.fail(f"without axes, the rank of the result depends on whether {unsure} is 1; state the axes")
        axes = [axis for axis, one in enumerate(ones) if one]
    dropped = b.axes(axes, x.type.rank)
    for axis in dropped:
        if not _is(b.simplify(x.shape[axis]), 1):
            if type(x.shape[axis]) is int:
                b.invalid(f"axis {axis} of {x.type} cannot be squeezed: it is not of extent 1")
            if b.assume_equal(x.shape[axis], 1):
                continue
            b.fail(f"axis {axis} of {x.type} is squeezed; fix {x.shape[axis]} to 1 with dims=")
    return b.squeeze(x, dropped)


@onnx_op("Unsqueeze", 1, 11)
def unsqueeze_1(b: NodeBuilder, x: Value, *, axes: Sequence[int]) -> Value:
    return b.unsqueeze(x, b.axes(axes, x.type.rank + len(axes)))


@onnx_op("Unsqueeze", 13, 21, 23, 24, 25)
def unsqueeze(b: NodeBuilder, x: Value, axes: Value) -> Value:
    return unsqueeze_1(b, x, axes=b.ints(axes, "the axes"))


@onnx_op("Expand", 8, 13)
def expand(b: NodeBuilder, x: Value, shape: Value) -> Value:
    """Both sides broadcast: an extent of 1 in the wanted shape keeps that of the tensor."""
    wanted = b.shape_elements(shape, "the shape")
    rank = max(len(wanted), x.type.rank)
    wanted = [1] * (rank - len(wanted)) + wanted
    have = [1] * (rank - x.type.rank) + list(x.shape)
    result = [_broadcast(b, mine, other) for mine, other in zip(have, wanted, strict=True)]
    if not b.has_data_sizes(*result):
        return b.expand(x, result)
    lead = rank - x.type.rank
    index = [
        0 if _is(mine, 1) else index_symbol(axis) if mine == whole else index_symbol(axis) % mine
        for axis, (mine, whole) in enumerate(zip(have, result, strict=True))
    ]
    return b.indexed(x, result, index[lead:])


def _broadcast(b: NodeBuilder, have: Dim, wanted: Element) -> Dim:
    if isinstance(wanted, Unknown):
        return _broadcast_to_data(b, b.simplify(have), b.scalar_of(wanted))
    have, wanted = b.simplify(have), b.simplify(wanted)
    if _is(have, 1):
        return wanted
    if _is(wanted, 1) or have == wanted:
        return have
    if type(have) is int and type(wanted) is int:
        b.invalid(f"an axis of extent {have} cannot be expanded to {wanted}")
    if b.has_data_sizes(have, wanted):
        return _broadcast_to_data(b, have, b.dim_value(wanted))
    if b.assume_equal(have, wanted):
        return have
    b.told_apart(have, wanted)
    b.fail(
        f"an axis of extent {have} is expanded to {wanted}, and it is not known whether they are equal or one is 1; "
        "give the dims one name, or fix them, with dims="
    )


def _broadcast_to_data(b: NodeBuilder, have: Dim, wanted: Value) -> Dim:
    """Return the extent that an axis of extent `have` gets, expanded to one that data decides."""
    if _is(have, 1):
        return b.data_size(wanted, "an extent of the shape")
    if type(have) is int:
        return have  # what data decides can only be the same, or 1
    mine = b.dim_value(have)
    repeats = b.b("equal", mine, 1)
    fits = b.b("or", repeats, b.b("or", b.b("equal", wanted, 1), b.b("equal", wanted, mine)))
    extent = b.b("where", fits, b.b("where", repeats, wanted, mine), -1)
    return b.data_size(extent, "an extent of the shape")


@onnx_op("Tile", 6, 13)
def tile(b: NodeBuilder, x: Value, repeats: Value) -> Value:
    counts = b.extents(repeats, "the repeats")
    if len(counts) != x.type.rank:
        b.invalid(f"{len(counts)} repeats for {x.type}, which has {x.type.rank} axes")
    shape = [dim * count for dim, count in zip(x.shape, counts, strict=True)]
    index = [0 if _is(dim, 1) else index_symbol(axis) % dim for axis, dim in enumerate(x.shape)]
    return b.indexed(x, shape, index)


@onnx_op("Concat", 4, 11, 13)
def concat(b: NodeBuilder, *inputs: Value, axis: int) -> Value:
    return b.concat(list(inputs), b.axis(axis, inputs[0].type.rank))


@onnx_op("Split", 2, 11)
def split_2(b: NodeBuilder, x: Value, *, axis: int, split: Sequence[int] | None = None) -> tuple[Value, ...]:
    return _split(b, x, axis, split, len(b.node.outputs))


@onnx_op("Split", 13)
def split_13(b: NodeBuilder, x: Value, sizes: Value | None = None, *, axis: int) -> tuple[Value, ...]:
    return _split(b, x, axis, None if sizes is None else b.ints(sizes, "the sizes"), len(b.node.outputs))


@onnx_op("Split", 18)
def split(
    b: NodeBuilder, x: Value, sizes: Value | None = None, *, axis: int, num_outputs: int | None = None
) -> tuple[Value, ...]:
    return _split(b, x, axis, None if sizes is None else b.ints(sizes, "the sizes"), num_outputs or len(b.node.outputs))


def _split(b: NodeBuilder, x: Value, axis: int, sizes: Sequence[Dim] | None, count: int) -> tuple[Value, ...]:
    axis = b.axis(axis, x.type.rank)
    extent = x.shape[axis]
    if sizes is None:  # equal parts; the last is smaller when they do not fit
        part = b.ceil_div(extent, count)
        sizes = [part] * (count - 1) + [b.simplify(extent - part * (count - 1))]
    return tuple(b.split(x, sizes, axis))


@onnx_op("Slice", 1)
def slice_1(
    b: NodeBuilder, x: Value, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Value:
    return _slice(b, x, starts, ends, axes, None)


@onnx_op("Slice", 10, 11, 13)
def slice_(
    b: NodeBuilder, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Value:
    return _slice(
        b,
        x,
        b.shape_elements(starts, "the starts"),
        b.shape_elements(ends, "the ends"),
        None if axes is None else b.ints(axes, "the axes"),
        None if steps is None else b.ints(steps, "the steps"),
    )


def _slice(
    b: NodeBuilder,
    x: Value,
    starts: Sequence[Element],
    ends: Sequence[Element],
    axes: Sequence[int] | None,
    steps: Sequence[Dim] | None,
) -> Value:
    axes = list(range(len(starts))) if axes is None else b.axes(axes, x.type.rank)
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        b.invalid(
            f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps do not fit together"
        )
    first, stride, size = [0] * x.type.rank, [1] * x.type.rank, list(x.shape)
    by_data = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if type(step) is not int or step == 0:
            b.fail(f"the step along axis {axis} must be a number other than 0, not {step}")
        if isinstance(start, Unknown) or isinstance(end, Unknown):
            by_data.append((axis, start, end, step))
            continue
        first[axis], size[axis] = _bounds(b, x.shape[axis], start, end, step)
        stride[axis] = step
    x = b.slice(x, first, stride, size)
    for axis, start, end, step in by_data:
        x = _slice_by_data(b, x, axis, start, end, step)
    return x


def _slice_by_data(b: NodeBuilder, x: Value, axis: int, start: Element, end: Element, step: int) -> Value:
    """Slice one axis from or to places that data decides, clamped as NumPy does: how much is left is a size.

    Where it begins needs not be known on the host: the elements are gathered.
    """
    extent = x.shape[axis]
    whole = b.dim_value(extent)

    def clamped(place: Element, low: int, high: Value) -> Value:
        if type(place) is int and abs(place) >= FAR:
            return high if place > 0 else b.scalar(low, int64)
        number = b.scalar_of(place)
        if not b.is_nonnegative(b.limits(place).low if b.limits(place).low is not None else -1):
            number = b.b("where", b.b("less", number, 0), b.b("add", number, whole), number)
        return b.b("min", b.b("max", number, low), high)

    if step > 0:
        first, last = clamped(start, 0, whole), clamped(end, 0, whole)
        span = b.b("sub", last, first)
    else:
        beyond = b.b("sub", whole, 1)
        first, last = clamped(start, 0, beyond), clamped(end, -1, beyond)
        span = b.b("sub", first, last)
    count = b.b("div", b.b("add", b.b("max", span, 0), abs(step) - 1), abs(step))
    most = b.ceil_div(extent, abs(step))
    apart = b.distance(start, end)
    if apart is not None and b.is_nonnegative(apart * step):
        most = b.smaller(most, b.ceil_div(apart * step, step * step))
    size = b.data_size(count, f"the length of the slice along axis {axis}", most)
    if not isinstance(start, Unknown) and step > 0 and b.known(first) is not None:
        return b.slice_axis(x, axis, b.known(first).reshape(-1)[0], size, step)
    places = b.b("add", b.iota((size,), index_symbol(0) * step), first)
    return b.take(x, places, axis)


def _bounds(b: NodeBuilder, extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Return where a slice begins and how many elements it has, as NumPy clamps them."""
    if step > 0:
        first = _clamped(b, extent, start, 0, extent)
        last = _clamped(b, extent, end, 0, extent)
        return first, b.larger(b.ceil_div(last - first, step), 0)
    first = _clamped(b, extent, start, 0, extent - 1)
    last = _clamped(b, extent, end, -1, extent - 1)
    return first, b.larger(b.ceil_div(first - last, -step), 0)


def _clamped(b: NodeBuilder, extent: Dim, place: Dim, low: Dim, high: Dim) -> Dim:
    """Count a place from the end if it is negative, then bring it into low..high."""
    if type(place) is int and place >= FAR:
        return high
    if type(place) is int and place <= -FAR:
        return low
    from_front = b.holds(place, f"the bound {place} of a slice counts from the end where it is negative")
    if from_front is None:
        b.fail(f"it is not known whether the bound {place} of a slice is negative, that is counted from the end")
    if not from_front:
        place = place + extent
    if type(place) is not int:
        b.within(place, extent)
    return b.smaller(b.larger(place, low), high)


@onnx_op("DepthToSpace", 1)
def depth_to_space_1(b: NodeBuilder, x: Value, *, blocksize: int) -> Value:
    return depth_to_space(b, x, blocksize=blocksize, mode="DCR")


@onnx_op("DepthToSpace", 11, 13, 28, only={"mode": ("DCR", "CRD")})
def depth_to_space(b: NodeBuilder, x: Value, *, blocksize: int, mode: str) -> Value:
    n, c, h, w = x.shape
    depth = b.simplify(c // (blocksize * blocksize))
    if mode == "DCR":
        blocks, order = (n, blocksize, blocksize, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        blocks, order = (n, depth, blocksize, blocksize, h, w), (0, 1, 4, 2, 5, 3)
    return b.reshape(b.transpose(b.reshape(x, blocks), order), (n, depth, h * blocksize, w * blocksize))


@onnx_op("SpaceToDepth", 1, 13)
def space_to_depth_1(b: NodeBuilder, x: Value, *, blocksize: int) -> Value:
    return space_to_depth(b, x, blocksize=blocksize, mode="DCR")


@onnx_op("SpaceToDepth", 28, only={"mode": ("DCR", "CRD")})
def space_to_depth(b: NodeBuilder, x: Value, *, blocksize: int, mode: str) -> Value:
    n, c, h, w = x.shape
    high, wide = b.simplify(h // blocksize), b.simplify(w // blocksize)
    blocks = b.reshape(x, (n, c, high, blocksize, wide, blocksize))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return b.reshape(b.transpose(blocks, order), (n, c * blocksize * blocksize, high, wide))


def _is(dim: Dim, number: int) -> bool:
    return type(dim) is int and dim == number


def _text(dims: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, dims))}]"
