"""Views against NumPy: constructors, random chains composed step by step, canonical form, printing."""

import itertools
import math
import random

import numpy as np
import pytest
from luminal_onnx.plan.dims import Range, evaluate, exact_div, index_symbol, symbol
from luminal_onnx.plan.errors import InvalidInput, LuminalError
from luminal_onnx.plan.view import (
    Bound,
    View,
    compose,
    drop_axes,
    expand,
    identity,
    insert_axes,
    pad,
    parse_view,
    reshape,
    select,
    slice_,
    transpose,
    windows,
)

batch, seq, heads = symbol("batch"), symbol("seq"), symbol("heads")
i0, i1, i2, i3 = (index_symbol(axis) for axis in range(4))


def numbered(shape) -> np.ndarray:
    """An array whose elements all differ, none of them a fill value."""
    return np.arange(1, math.prod(shape) + 1, dtype=np.float64).reshape(shape)


def brute_force(view: View, array: np.ndarray, env) -> np.ndarray:
    """Read point by point, as the definition of a view says; fails on an index outside the operand."""
    out = np.empty([evaluate(extent, env) for extent in view.out_shape], array.dtype)
    for point in itertools.product(*map(range, out.shape)):
        if all(holds(bound, env, point) for bound in view.valid):
            place = tuple(evaluate(expr, env, point) for expr in view.index)
            assert all(0 <= at < n for at, n in zip(place, array.shape, strict=True)), (str(view), point, place)
            out[point] = array[place]
        else:
            out[point] = view.fill
    return out


def holds(bound: Bound, env, point) -> bool:
    try:
        return evaluate(bound.low, env) <= evaluate(bound.expr, env, point) < evaluate(bound.high, env)
    except ZeroDivisionError:  # the view passes through an empty shape
        return False


def check(view: View, array: np.ndarray, expected: np.ndarray, env=None, ranges=None) -> None:
    env = env or {}
    got = view.apply(array, env)
    assert got.shape == expected.shape and got.dtype == expected.dtype, str(view)
    np.testing.assert_array_equal(got, expected, err_msg=str(view))
    if expected.size <= 3000:
        np.testing.assert_array_equal(brute_force(view, array, env), expected, err_msg=str(view))
    again = parse_view(str(view), ranges)
    assert again == view and hash(again) == hash(view), str(view)


def split_number(rng: random.Random, number: int) -> list[int]:
    """A random shape of that many elements."""
    shape = []
    while number > 1 and len(shape) < 3:
        factor = rng.choice([k for k in range(1, number + 1) if number % k == 0])
        shape.append(factor)
        number //= factor
    return shape + [number] + [1] * (rng.random() < 0.2)


def random_step(rng: random.Random, array: np.ndarray):
    """A random view of array's shape, and what NumPy makes of it."""
    shape = array.shape
    kind = rng.choice(["reshape", "transpose", "slice", "expand", "pad", "insert", "drop", "crop"])
    if kind == "reshape":
        target = split_number(rng, array.size) if array.size else list(shape)
        return reshape(shape, target), array.reshape(target)
    if kind == "transpose":
        perm = rng.sample(range(len(shape)), len(shape))
        return transpose(shape, perm), array.transpose(perm)
    if kind == "slice":
        cuts = []
        for extent in shape:
            step = rng.choice([1, 1, 2, -1, -2])
            first, last = sorted((rng.randint(0, extent), rng.randint(0, extent)))
            cuts.append(range(first, last, step) if step > 0 else range(last - 1, first - 1, step))
        view = slice_(shape, [c.start for c in cuts], [c.step for c in cuts], [len(c) for c in cuts])
        return view, array[np.ix_(*map(list, cuts))] if shape else array
    if kind == "expand":
        target = [rng.randint(1, 3) if extent == 1 else extent for extent in shape]
        target = [rng.randint(1, 2)] * rng.randint(0, 1) + target
        return expand(shape, target), np.broadcast_to(array, target)
    if kind == "insert":
        axis = rng.randint(0, len(shape))
        return insert_axes(shape, [axis]), np.expand_dims(array, axis)
    if kind == "drop":
        ones = [axis for axis, extent in enumerate(shape) if extent == 1]
        return drop_axes(shape, ones), array.squeeze(tuple(ones))
    if not shape:
        return identity(shape), array
    least = -1 if kind == "crop" else 0
    before = [rng.randint(least, 1) if extent else 0 for extent in shape]
    after = [max(rng.randint(least, 2), -extent - first) for extent, first in zip(shape, before, strict=True)]
    padded = np.pad(array, [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)])
    keep = tuple(slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(before, after, padded.shape, strict=True))
    return pad(shape, before, after, 0.0), padded[keep]


@pytest.mark.parametrize("seed", range(20))
def test_random_chains_equal_numpy_step_by_step(seed):
    rng = random.Random(seed)
    lengths = []
    for _ in range(12):
        shape = rng.choice([(6, 4), (2, 3, 4), (1, 8), (12,), (3, 1, 2, 2), (0, 3), ()])
        original = expected = numbered(shape)
        view = identity(shape)
        for step in range(5):
            outer, result = random_step(rng, expected)
            check(outer, expected, result)
            if result.size > 500 or result.ndim > 6:
                break
            view, expected = compose(outer, view), result
            check(view, original, expected)
            lengths.append(step)
    assert len(lengths) > 30


def symbolic_step(rng: random.Random, shape, ranges):
    """A random view of a symbolic shape, and the function of (array, env) that NumPy has for it."""
    kind = rng.choice(["transpose", "flip", "pad", "expand", "reshape", "reshape"])
    if kind == "transpose":
        perm = rng.sample(range(len(shape)), len(shape))
        return transpose(shape, perm, ranges), lambda x, env: x.transpose(perm)
    if kind == "flip":
        return slice_(shape, [d - 1 for d in shape], [-1] * len(shape), shape, ranges), lambda x, env: np.flip(x)
    if kind == "pad":
        ones = [rng.randint(0, 1) for _ in shape]
        before = [(one, 0) for one in ones]
        return pad(shape, ones, [0] * len(shape), 0.0, ranges), lambda x, env: np.pad(x, before)
    if kind == "expand":
        return expand(shape, (3, *shape), ranges), lambda x, env: np.broadcast_to(x, (3, *x.shape))
    target = refactored(rng, shape)
    return reshape(shape, target, ranges), lambda x, env: x.reshape([evaluate(d, env) for d in target])


def refactored(rng: random.Random, shape) -> list:
    """The shape with one axis split, two merged, or all of them in another order."""
    target = list(shape)
    place = rng.randrange(len(target))
    if rng.random() < 0.2:
        target.reverse()
    elif rng.random() < 0.5 and place + 1 < len(target):
        target[place : place + 2] = [target[place] * target[place + 1]]
    else:
        for factor in (seq, batch, 2, 3):
            other = exact_div(target[place], factor)
            if other is not None and other != 1:
                target[place : place + 1] = rng.sample([factor, other], 2)
                break
    return target


@pytest.mark.parametrize("seed", range(8))
def test_random_symbolic_chains_hold_for_every_size(seed):
    rng = random.Random(seed)
    ranges = {"batch": Range(1, 2, 8), "seq": Range(0, 4, 8)}
    sizes = [{"batch": b, "seq": s} for b, s in ((1, 1), (2, 3), (3, 2), (1, 4), (2, 0))]
    for _ in range(8):
        shape = (batch, seq, 4)
        view = identity(shape, ranges)
        steps = []
        while len(steps) < 5 and len(view.out_shape) < 6:
            outer, step = symbolic_step(rng, view.out_shape, ranges)
            view = compose(outer, view, ranges)
            assert view is not None
            steps.append(step)
        for env in sizes:
            original = expected = numbered([evaluate(d, env) for d in shape])
            for step in steps:
                expected = step(expected, env)
            if expected.size < 3000:
                check(view, original, expected, env, ranges)


@pytest.mark.parametrize("seed", range(4))
def test_chains_of_reshape_and_transpose_are_linear_where_numbers_say_so(seed):
    rng = random.Random(seed)
    ranges = {"batch": Range(1, 2, 8), "seq": Range(1, 4, 8)}
    env = {"batch": 5, "seq": 7}
    linear = 0
    for _ in range(60):
        view = identity(rng.choice([(batch, seq, 12), (6, 4, seq), (2, 2, 2, 3), (batch * seq, 6)]))
        array = numbered([evaluate(d, env) for d in view.in_shape])
        for _ in range(rng.randint(2, 6)):
            if rng.random() < 0.6:
                outer = reshape(view.out_shape, refactored(rng, view.out_shape), ranges)
            else:
                perm = rng.sample(range(len(view.out_shape)), len(view.out_shape))
                outer = transpose(view.out_shape, perm, ranges)
            array, view = outer.apply(array, env), compose(outer, view, ranges)
        first = array[(0,) * array.ndim]
        rows = [np.arange(n) * (array.take(min(1, n - 1), axis).flat[0] - first) for axis, n in enumerate(array.shape)]
        numbers = first + sum(np.ix_(*rows)) if rows else first
        is_linear = np.array_equal(np.broadcast_to(numbers, array.shape), array)
        assert (view.linear(ranges) is not None) == is_linear, str(view)
        linear += is_linear
    assert linear > 25


def test_attention_heads_split_and_merge_without_quotients():
    model = (batch, seq, 768)
    split = reshape(model, (batch, seq, 12, 64))
    assert split.linear() == (0, (768 * seq, 768, 64, 1)) and split.is_contiguous()
    swapped = compose(transpose(split.out_shape, (0, 2, 1, 3)), split)
    assert swapped.linear() == (0, (768 * seq, 64, 768, 1)) and not swapped.is_contiguous()
    keys = compose(transpose(split.out_shape, (0, 2, 3, 1)), split)
    assert keys.linear() == (0, (768 * seq, 64, 1, 768))
    merged = compose(transpose(swapped.out_shape, (0, 2, 1, 3)), swapped)
    merged = compose(reshape(merged.out_shape, model), merged)
    assert merged == identity(model) and merged.is_identity()
    assert "//" not in str(swapped) and "%" not in str(swapped)

    folded = compose(reshape(swapped.out_shape, (batch * 12, seq, 64)), swapped)
    unfolded = compose(reshape(folded.out_shape, swapped.out_shape), folded)
    assert unfolded == swapped


def test_symbolic_heads_and_flattened_rows():
    view = reshape((batch, seq, heads * 64), (batch * seq, heads, 64))
    assert view.is_contiguous() and view.linear() == (0, (64 * heads, 64, 1))
    back = compose(reshape(view.out_shape, view.in_shape), view)
    assert back.is_identity()
    env = {"batch": 2, "seq": 3, "heads": 2}
    check(view, numbered((2, 3, 128)), numbered((6, 2, 64)), env)


def test_reshape_with_equal_products_in_the_middle():
    view = reshape((batch, 6, 4, seq), (batch, 3, 8, seq))
    assert view.index == (i0, 2 * i1 + i2 // 4, i2 % 4, i3)
    check(view, numbered((2, 6, 4, 3)), numbered((2, 3, 8, 3)), {"batch": 2, "seq": 3})
    assert reshape((2 * seq, 3), (seq, 2, 3)).linear() == (0, (6, 3, 1))
    assert reshape((batch, 1, seq), (1, batch * seq, 1)).index[1:] == (0, i1 % seq)


def test_convolution_windows():
    image = numbered((2, 3, 8, 9))
    view = windows((batch, 3, 8, 9), [2, 3], [3, 2], [2, 1], [1, 2], [1, 0], [4, 7], 0.0)
    assert view.out_shape == (batch, 3, 4, 7, 3, 2)
    assert str(view).endswith("where 1 <= 2*i2 + i4 < 9 else 0.0")
    padded = np.pad(image, ((0, 0), (0, 0), (1, 0), (0, 0)))
    expected = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, :, :, ::2]
    check(view, image, expected, {"batch": 2})
    assert windows((8,), [0], [3], [1], [1], [0], [6], 0.0).is_total


def test_same_padding_of_symbolic_extent():
    view = windows((batch, seq), [1], [3], [1], [1], [1], [seq], 0.0)
    padded = np.pad(numbered((2, 5)), ((0, 0), (1, 1)))
    expected = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1)
    check(view, numbered((2, 5)), expected, {"batch": 2, "seq": 5})


def test_one_bound_for_two_axes():
    diagonal = View.make((2, 2), (4,), (i0 - 1, i0 - 1), [Bound(i0 - 1, 0, 2)], 0.0)
    check(diagonal, numbered((2, 2)), np.array([0.0, 1, 4, 0]))


def test_cropping_what_was_padded_is_total_again():
    padded = pad((seq, 4), (2, 0), (3, 1), -1.0)
    cropped = compose(slice_(padded.out_shape, (2, 0), (1, 1), (seq, 4)), padded)
    assert cropped == identity((seq, 4)) and cropped.is_total and cropped.fill is None


def test_two_fill_values_do_not_compose_unless_one_never_shows():
    inner = pad((seq,), (1,), (1,), 0.0)
    assert compose(pad(inner.out_shape, (1,), (1,), 0.0), inner) is not None
    assert compose(pad(inner.out_shape, (1,), (1,), -0.0), inner) is None
    assert compose(pad(inner.out_shape, (1,), (1,), 1.0), inner) is None
    crop_then_pad = compose(pad((seq,), (1,), (1,), 7.0), slice_(inner.out_shape, (1,), (1,), (seq,)))
    composed = compose(crop_then_pad, inner)
    assert composed is not None and composed.fill == 7.0
    check(composed, numbered((3,)), np.array([7.0, 1, 2, 3, 7]), {"seq": 3})


def test_fill_values_are_told_apart_exactly():
    views = [pad((4,), (1,), (0,), fill) for fill in (0.0, -0.0, 0, False, 1, 1.0, True, math.nan, math.inf, -math.inf)]
    assert len(set(views)) == len(views)
    assert pad((4,), (1,), (0,), math.nan) == pad((4,), (1,), (0,), np.float32("nan"))
    for view in views:
        again = parse_view(str(view))
        assert again == view and type(again.fill) is type(view.fill)
    assert not any(a == b for a, b in itertools.combinations(views, 2))


def test_axes_of_extent_one_are_indexed_by_zero():
    assert identity((1, seq)).index == (0, i1) and identity((1, seq)).is_identity()
    assert transpose((1, seq), (1, 0)) == reshape((1, seq), (seq, 1)) == select((1, seq), (seq, 1), (i1, i0))
    assert insert_axes((seq, 4), [0, 2]).out_shape == (1, seq, 1, 4)
    assert drop_axes((1, seq, 1, 4), [0, 2]).linear() == (0, (4, 1))


def test_spellings_of_a_linear_map_are_one_object():
    there = reshape((6, 4), (24, 1))
    around = compose(reshape((4, 6), (24, 1)), reshape((6, 4), (4, 6)))
    assert there == around and hash(there) == hash(around)
    direct = reshape((3 * seq, 2), (2 * seq, 3))
    assert compose(reshape((seq, 6), (2 * seq, 3)), reshape((3 * seq, 2), (seq, 6))) == direct


def test_equal_bounds_have_one_form():
    plain = View.make((seq,), (seq + 2,), (i0 - 1,), [Bound(i0 - 1, 0, seq)], 0.0)
    turned = View.make((seq,), (seq + 2,), (i0 - 1,), [Bound(seq - i0, 0, seq), Bound(i0, 0, seq + 2)], 0.0)
    assert plain == turned and plain.valid == (Bound(i0, 1, seq + 1),)


def test_broadcast_axes():
    view = expand((seq, 1), (batch, seq, 8))
    assert view.broadcast_axes() == (0, 2) and view.linear() == (0, (0, 1, 0))
    assert pad((4,), (1,), (0,), 0.0).broadcast_axes() == ()
    assert identity((1, 4)).broadcast_axes() == (0,)
    check(view, numbered((3, 1)), np.broadcast_to(numbered((3, 1)), (2, 3, 8)), {"batch": 2, "seq": 3})


def test_contiguity():
    assert identity((batch, seq)).is_contiguous() and reshape((batch, seq), (batch * seq,)).is_contiguous()
    assert not slice_((4,), (0,), (1,), (3,)).is_contiguous()
    assert not slice_((4,), (3,), (-1,), (4,)).is_contiguous()
    assert not expand((1, 4), (3, 4)).is_contiguous() and not pad((4,), (1,), (-1,), 0).is_contiguous()
    assert not identity((1, seq)).is_identity() or identity((1, seq)).is_contiguous()


def test_empty_shapes_and_scalars():
    check(reshape((0, 3), (3, 0)), numbered((0, 3)), numbered((3, 0)))
    check(pad((0, 3), (1, 0), (1, 0), 9.0), numbered((0, 3)), np.full((2, 3), 9.0))
    check(slice_((4,), (0,), (1,), (0,)), numbered((4,)), numbered((0,)))
    check(expand((), (2, 3)), np.float64(5).reshape(()), np.full((2, 3), 5.0))
    check(reshape((), (1, 1)), np.float64(5).reshape(()), np.full((1, 1), 5.0))
    check(reshape((1,), ()), numbered((1,)), np.float64(1).reshape(()))
    check(reshape((batch, seq), (seq * batch,)), numbered((2, 0)), numbered((0,)), {"batch": 2, "seq": 0})


def test_padding_what_was_empty_gives_only_fill():
    merged = reshape((batch, seq), (batch * seq,))
    padded = compose(pad(merged.out_shape, (1,), (2,), 7.0), merged)
    check(padded, numbered((2, 0)), np.full(3, 7.0), {"batch": 2, "seq": 0})
    cut = slice_((4, 4), (0, 0), (1, 1), (batch, seq))
    check(compose(padded, cut), numbered((4, 4)), np.full(3, 7.0), {"batch": 2, "seq": 0})


def test_linear_views_share_memory_and_are_read_only():
    array = numbered((6, 4))
    result = transpose((6, 4), (1, 0)).apply(array)
    assert np.shares_memory(result, array) and not result.flags.writeable
    assert np.shares_memory(slice_((6, 4), (5, 0), (-2, 1), (3, 4)).apply(array), array)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "int64"])
def test_dtypes_are_kept(dtype):
    array = np.ones((2, 3), dtype)
    check(pad((2, 3), (1, 0), (0, 2), array.dtype.type(0).item()), array, np.pad(array, ((1, 0), (0, 2))))
    check(reshape((2, 3), (3, 2)), array, array.reshape(3, 2))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: reshape((2, 3), (4, 2)), r"cannot reshape \[2, 3\] \(6 elements\) to \[4, 2\] \(8\)"),
        (lambda: expand((2, 3), (2, 4)), r"\[2, 3\] does not broadcast to \[2, 4\]"),
        (lambda: expand((2, 3), (3,)), "does not broadcast"),
        (lambda: transpose((2, 3), (0, 0)), "does not fit a shape of 2 axes"),
        (lambda: compose(identity((3,)), identity((4,))), r"reads shape \[3\], the inner one makes \[4\]"),
        (lambda: pad((2, 3), (1,), (1, 1), 0), "before has 1 entries for a shape of 2 axes"),
        (lambda: View((2,), (2,), ()), "one index expression per axis"),
        (lambda: View((2,), (2,), (i0,), (), 0.0), "fill value exactly when"),
        (lambda: select((2,), (4,), (i0,)).apply(np.ones(2)), "reads outside its operand"),
        (lambda: select((2,), (4,), (i0 // 2 + i0 % 2,)).apply(np.ones(2)), "reads outside its operand"),
    ],
)
def test_misuse_is_named(build, message):
    with pytest.raises(LuminalError, match=message):
        build()


@pytest.mark.parametrize("text", ["", "[2] -> [2]", "[2] -> [2] : [i0] where i0 < 3 else 0", "[2 -> [2] : [i0]"])
def test_unreadable_views_say_so(text):
    with pytest.raises(InvalidInput, match="cannot read the"):
        parse_view(text)


def test_a_wrong_array_is_refused():
    with pytest.raises(InvalidInput, match=r"shape \[2, 3\] was given an array of shape \[3, 2\]"):
        identity((2, seq)).apply(np.ones((3, 2)), {"seq": 3})


def test_printed_views_read_back_with_odd_names():
    view = pad((symbol("a, b] "), symbol("i0") // 2), (1, 0), (0, symbol("max")), -0.0)
    assert parse_view(str(view)) == view
