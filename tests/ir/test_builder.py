"""Every builder method against plain NumPy, with static shapes and with symbolic ones bound several ways."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.graph import Value
from luminal_onnx.ir.interpreter import run
from luminal_onnx.ir.legality import check
from luminal_onnx.plan import dtypes
from luminal_onnx.plan.dims import Range, index_symbol, symbol
from luminal_onnx.plan.dtypes import bool_, float16, float32, float64, int8, int32, int64, uint8
from luminal_onnx.plan.errors import LuminalError
from tolerances import ELEMENTWISE, REDUCTION, assert_close

RANGES = {"n": Range(0, 3, 64), "m": Range(0, 5, 64)}
BINDINGS = [{"n": 1, "m": 1}, {"n": 3, "m": 5}, {"n": 0, "m": 7}, {"n": 4, "m": 2}]


def values(shape, dtype=float32, seed=0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype is bool_:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        return rng.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype.numpy)
    return rng.uniform(-2, 2, shape).astype(dtype.numpy)


def extent(dim, binding) -> int:
    return binding[dim] if isinstance(dim, str) else dim


def compare(build, reference, *shapes, dtype=float32, classes=ELEMENTWISE, bindings=BINDINGS, feeds=None) -> None:
    """Run `build(b, *inputs)` against `reference(*arrays)`, with every named extent once static, once symbolic.

    `build` also gets `dim`, which turns an extent of `shapes` into what the graph calls it.
    """
    symbolic = any(isinstance(extent, str) for shape in shapes for extent in shape)
    for binding in bindings if symbolic else bindings[:1]:
        arrays = feeds or [
            values([extent(dim, binding) for dim in shape], dtype, seed) for seed, shape in enumerate(shapes)
        ]
        expected = reference(*arrays)
        for named in (False, True) if symbolic else (False,):
            b = Builder("test", RANGES)

            def dim(extent_, named=named, binding=binding):
                return symbol(extent_) if named and isinstance(extent_, str) else extent(extent_, binding)

            inputs = [
                b.input(f"x{k}", dtypes.from_numpy(array.dtype), [dim(e) for e in shape])
                for k, (shape, array) in enumerate(zip(shapes, arrays, strict=True))
            ]
            result = build(b, *inputs, dim=dim)
            b.output("y", result)
            check(b.graph)
            (actual,) = run(b.graph, arrays, binding if named else None)
            assert actual.dtype == expected.dtype
            assert_close(actual, expected, classes, vacuous_ok=True)


def test_broadcasting_follows_numpy():
    compare(lambda b, x, y, dim: b("add", x, y), np.add, ("n", 1, 5), (3, 1))
    compare(lambda b, x, y, dim: b("mul", x, y), np.multiply, ("n", "m"), ("m",))
    compare(lambda b, x, y, dim: b("sub", y, x), lambda x, y: y - x, (2, "n", 3), ("n", 1))
    compare(lambda b, x, dim: b("add", b("mul", x, 2), 1), lambda x: x * 2 + 1, ("n", 3))
    compare(lambda b, x, dim: b("where", b("less", x, 0), 0, x), lambda x: np.where(x < 0, np.float32(0), x), ("n",))


@pytest.mark.parametrize("fn", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 2], [1, 0], [0, 1, 2], [-1], []])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reduce_over_any_axes(fn, axes, keepdims):
    oracle = {"sum": np.sum, "prod": np.prod}

    def reference(x):
        if fn in oracle:
            return oracle[fn](x, axis=tuple(axes), keepdims=keepdims)
        edge = -np.inf if fn == "max" else np.inf
        return getattr(np, fn)(x, axis=tuple(axes), keepdims=keepdims, initial=edge)

    compare(lambda b, x, dim: b.reduce(fn, x, axes, keepdims), reference, ("n", 3, "m"), classes=REDUCTION)


@pytest.mark.parametrize("dtype", [int8, uint8, int32, int64], ids=str)
def test_integer_reductions_wrap_in_their_own_dtype(dtype):
    for fn, oracle in (("sum", np.sum), ("prod", np.prod)):
        compare(
            lambda b, x, dim: b.reduce(fn, x, [1]), lambda x: oracle(x, axis=1, dtype=x.dtype), (3, 40), dtype=dtype
        )
    info = np.iinfo(dtype.numpy)
    empty = np.zeros((2, 0), dtype.numpy)
    for fn, edge in (("max", info.min), ("min", info.max)):
        compare(lambda b, x, dim: b.reduce(fn, x, [1]), lambda x: np.full(2, edge, x.dtype), (2, 0), feeds=[empty])


@pytest.mark.parametrize("dtype", [float16, float32, float64], ids=str)
def test_mean_divides_by_the_count(dtype):
    def reference(x):
        with np.errstate(invalid="ignore"):
            return (x.astype(dtype.compute.numpy).sum(axis=(0, 2)) / (x.shape[0] * x.shape[2])).astype(x.dtype)

    compare(
        lambda b, x, dim: b.mean(x, [0, 2]), reference, ("n", 3, "m"), dtype=dtype, classes=REDUCTION,
        bindings=BINDINGS[:2],
    )


def test_mean_of_many_float16_values_does_not_overflow():
    x = np.full((70_000,), 2.0, np.float16)
    compare(lambda b, x, dim: b.mean(x, [0]), lambda x: np.array(2.0, np.float16), (70_000,), feeds=[x])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [float32, int32], ids=str)
def test_argmax_and_argmin(axis, dtype):
    bindings = [binding for binding in BINDINGS if binding["n"]]
    for keepdims in (False, True):
        for name in ("argmax", "argmin"):
            oracle = getattr(np, name)
            compare(
                lambda b, x, dim: getattr(b, name)(x, axis, keepdims),
                lambda x: oracle(x, axis=axis, keepdims=keepdims),
                ("n", "m", 3), dtype=dtype, bindings=bindings,
            )
            compare(
                lambda b, x, dim: getattr(b, name)(x, axis, keepdims, select_last=True),
                lambda x: x.shape[axis] - 1 - oracle(np.flip(x, axis), axis=axis, keepdims=keepdims),
                ("n", "m", 3), dtype=dtype, bindings=bindings,
            )


def test_argmax_sees_nan_as_numpy_does():
    x = np.array([[1, np.nan, 3, np.nan], [-np.inf, -np.inf, -np.inf, -np.inf], [0, 5, 5, 1]], np.float32)
    compare(lambda b, x, dim: b.argmax(x, 1), lambda x: np.argmax(x, 1), x.shape, feeds=[x])
    compare(lambda b, x, dim: b.argmin(x, 1), lambda x: np.argmin(x, 1), x.shape, feeds=[x])


def test_iota_and_dim_values():
    b = Builder("test", RANGES)
    n = symbol("n")
    x = b.input("x", float32, (n, 3))
    b.output("grid", b.iota((n, 3), 3 * index_symbol(0) + index_symbol(1)))
    b.output("along", b.iota_along((2, n), 1))
    b.output("n", b.dim_value(n * 3 + 1))
    b.output("four", b.dim_value(4))
    b.output("half", b("mul", b.size_value(n, float32), 0.5))
    b.output("x", x)
    grid, along, total, four, half, _ = run(b.graph, [np.zeros((4, 3), np.float32)])
    np.testing.assert_array_equal(grid, np.arange(12).reshape(4, 3))
    np.testing.assert_array_equal(along, [[0, 1, 2, 3]] * 2)
    assert (total, four, half) == (13, 4, 2.0)
    assert total.dtype == np.int64 and total.shape == () and half.dtype == np.float32


def test_reshape_transpose_expand():
    compare(lambda b, x, dim: b.reshape(x, (dim("n") * 2, 3)), lambda x: x.reshape(len(x) * 2, 3), ("n", 6))
    compare(lambda b, x, dim: b.reshape(x, (3, dim("n"), 2)), lambda x: x.reshape(3, len(x), 2), ("n", 6))
    compare(lambda b, x, dim: b.transpose(x, [2, 0, 1]), lambda x: x.transpose(2, 0, 1), ("n", 3, "m"))
    compare(lambda b, x, dim: b.expand(x, (2, dim("n"), 4)), lambda x: np.broadcast_to(x, (2, x.shape[0], 4)), ("n", 1))
    compare(lambda b, x, dim: b.unsqueeze(x, [0, 3]), lambda x: x[None, :, :, None], ("n", 3))
    compare(lambda b, x, dim: b.squeeze(x, [0, -1]), lambda x: x[0, :, 0], (1, "n", 1))


def test_slice_pad_split():
    compare(lambda b, x, dim: b.slice(x, [0, 5], [1, -2], [dim("n"), 3]), lambda x: x[:, 5:0:-2], ("n", 7))
    compare(lambda b, x, dim: b.slice_axis(x, 0, dim("n") - 1, dim("n"), -1), lambda x: x[::-1], ("n", 2))
    compare(
        lambda b, x, dim: b.pad(x, [1, 0], [2, -1], 1.5),
        lambda x: np.pad(x, [(1, 2), (0, 0)], constant_values=1.5)[:, :-1], ("n", 3),
    )
    compare(lambda b, x, dim: b.pad(x, [1], [1], True), lambda x: np.pad(x, 1, constant_values=True), (3,), dtype=bool_)
    for piece in range(3):
        compare(
            lambda b, x, y, dim: b.split(b.concat([x, y, x], 0), [dim("n"), dim("m"), dim("n")], 0)[piece],
            lambda x, y: (x, y, x)[piece], ("n", 2), ("m", 2),
        )
    compare(lambda b, x, dim: b.split(x, [2, 0, 5], 1)[2], lambda x: x[:, 2:], ("n", 7))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [float32, bool_, int64], ids=str)
def test_concat(axis, dtype):
    shapes = [("n", 3), ("m", 3), (2, 3), (0, 3), ("n", 3)]
    shapes = shapes if axis == 0 else [shape[::-1] for shape in shapes]
    compare(lambda b, *xs, dim: b.concat(xs, axis), lambda *xs: np.concatenate(xs, axis), *shapes, dtype=dtype)


def test_concat_is_exact_for_nan_and_negative_zero():
    a, c = np.array([np.nan, -0.0], np.float32), np.array([np.inf, 0.0, -0.0], np.float32)
    b = Builder()
    b.output("y", b.concat([b.constant(a), b.constant(c)], 0))
    (y,) = run(b.graph, {})
    assert y.tobytes() == a.tobytes() + c.tobytes()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("index_shape", [(), (4,), (2, 3), (1,), (0,)])
def test_take_with_negative_indices(axis, index_shape):
    index = np.random.default_rng(1).integers(-3, 3, index_shape)
    compare(
        lambda b, x, dim: b.take(x, b.constant(index), axis), lambda x: np.take(x, index, axis), ("n", 3, "m"),
        bindings=[{"n": 3, "m": 3}, {"n": 5, "m": 4}],
    )
    fed = index.astype(np.int32)
    compare(
        lambda b, x, i, dim: b.take(x, i, axis), lambda x, i: np.take(x, i, axis), (5, 3, 4), index_shape,
        feeds=[values((5, 3, 4)), fed],
    )


STRIDED = {
    "transposed": (lambda b, x: b.transpose(x, [2, 0, 1]), lambda x: x.transpose(2, 0, 1)),
    "sliced": (lambda b, x: b.slice_axis(x, 1, 2, 3), lambda x: x[:, 2:5]),
    "repeated": (lambda b, x: b.expand(b.slice_axis(x, 1, 3, 1), (5, 4, 4)), lambda x: x[:, 3:4].repeat(4, 1)),
}


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", STRIDED)
def test_what_a_view_with_strides_shows_is_gathered_where_it_lies(name, axis):
    view, shown = STRIDED[name]
    index = np.random.default_rng(3).integers(-3, 3, (2, 3))

    def taken(b: Builder, x: Value, i: Value, dim) -> Value:
        result = b.take(view(b, x), i, axis)
        assert result.node.inputs[0] is x
        return result

    compare(taken, lambda x, i: np.take(shown(x), i, axis), (5, 7, 4), (2, 3), feeds=[values((5, 7, 4)), index])
    picked = np.random.default_rng(4).integers(-3, 3, shown(values((5, 7, 4))).shape)
    compare(
        lambda b, x, i, dim: b.gather_elements(view(b, x), i, axis),
        lambda x, i: np.take_along_axis(shown(x), i, axis), (5, 7, 4), picked.shape, feeds=[values((5, 7, 4)), picked],
    )


def test_what_a_view_fills_in_is_gathered_from_a_copy():
    index = np.array([-1, 0, 3])
    compare(
        lambda b, x, i, dim: b.take(b.pad(x, [1], [2], 0.5), i, 0),
        lambda x, i: np.pad(x, (1, 2), constant_values=0.5)[i], (4,), (3,), feeds=[values((4,)), index],
    )


def test_gather_and_scatter():
    data, index = values((4, 5)), np.random.default_rng(2).integers(-4, 4, (3, 5))
    compare(
        lambda b, x, i, dim: b.gather_elements(x, i, 0), lambda x, i: np.take_along_axis(x, i, 0), (4, 5), (3, 5),
        feeds=[data, index],
    )
    compare(
        lambda b, x, i, dim: b.gather_elements(x, i, 1), lambda x, i: np.take_along_axis(x, i, 1), (4, 5), (4, 2),
        feeds=[data, index[:1].repeat(4, 0)[:, :2]],
    )
    clamped = np.array([[-7, 0], [19, 400]])
    compare(
        lambda b, x, i, dim: b.gather_flat(x, i), lambda x, i: x.reshape(-1)[np.clip(i, 0, 19)], (4, 5), (2, 2),
        feeds=[data, clamped],
    )


@pytest.mark.parametrize("fn", ["none", "add", "mul", "max", "min"])
def test_scatter_goes_in_order_and_drops_what_is_outside(fn):
    dest, index = values((2, 3)), np.array([1, 1, 5, -1, 6, 1, 0])
    src = values((7,), seed=9)

    def reference(dest, index, src):
        result = dest.copy().reshape(-1)
        combine = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[fn]
        for place, value in zip(index, src):
            if 0 <= place < result.size:
                result[place] = combine(result[place], value)
        return result.reshape(dest.shape)

    compare(
        lambda b, d, i, s, dim: b.scatter_flat(d, i, s, fn), reference, (2, 3), (7,), (7,), feeds=[dest, index, src]
    )


MATMULS = [
    ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), (("n", 7), (7, "m")), (("n", 2, 7), (7, 5)), ((2, 7), ("n", 7, 5)),
    (("n", 1, 3, 4), (2, 4, 5)), ((2, "n", 4), (4,)), ((4,), ("n", 4, 3)), ((3, 0), (0, 2)), ((1, 1), (1, 1)),
    (("n", "m"), ("m", "n")),
]


@pytest.mark.parametrize(("left", "right"), MATMULS)
def test_matmul(left, right):
    for dtype in (float32, int32):
        compare(lambda b, x, y, dim: b.matmul(x, y), np.matmul, left, right, dtype=dtype, classes=REDUCTION)


EINSUMS = ["ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "bhid,bhjd->bhij", "ij,ij->", "ij,i->j", "i,j->ij", "iij,j->i",
           "ab,cd->abcd", "abc,bd->ad", "ab,ab->ab"]


@pytest.mark.parametrize("text", EINSUMS)
def test_contract_as_einsum(text):
    (left, right), out = text.split("->")[0].split(","), text.split("->")[1]
    sizes = dict(zip("abcdhijk", (2, 3, 5, 4, 1, 3, 4, 2)))
    shapes = [tuple(sizes[label] for label in labels) for labels in (left, right)]
    compare(
        lambda b, x, y, dim: b.contract(x, left, y, right, out),
        lambda x, y: np.asarray(np.einsum(text, x, y)), *shapes,
        classes=REDUCTION, dtype=float64,
    )


def naive_conv(x, w, strides, before, after, dilations, groups):
    n, channels, *spatial = x.shape
    maps, depth, *kernel = w.shape
    padded = np.pad(x, [(0, 0), (0, 0), *zip(before, after)])
    out = [
        (padded.shape[2 + k] - dilations[k] * (kernel[k] - 1) - 1) // strides[k] + 1 for k in range(len(spatial))
    ]
    y = np.zeros((n, maps, *out))
    for image, m in itertools.product(range(n), range(maps)):
        first = m // (maps // groups) * depth
        for at in np.ndindex(*out):
            where = tuple(
                slice(p * s, p * s + d * (k - 1) + 1, d) for p, s, d, k in zip(at, strides, dilations, kernel)
            )
            y[(image, m, *at)] = (padded[(image, slice(first, first + depth), *where)].astype(float) * w[m]).sum()
    return y.astype(x.dtype)


CONVS = [  # x, w, strides, before, after, dilations, groups
    (("n", 3, 7), (4, 3, 3), [1], [1], [1], [1], 1),
    (("n", 4, 7, 5), (6, 2, 3, 2), [2, 1], [1, 0], [0, 1], [1, 2], 2),
    ((2, 3, 6, 6), (3, 1, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1], 3),
    ((1, 2, 4, 3, 5), (2, 2, 2, 1, 3), [1, 1, 2], [0, 0, 1], [1, 0, 1], [1, 1, 1], 1),
    ((1, 2, 5, 5), (3, 2, 1, 1), [1, 1], [0, 0], [0, 0], [1, 1], 1),
    ((1, 4, 6), (2, 4, 3), [1], [0], [0], [1], 1),
]


@pytest.mark.parametrize("case", CONVS, ids=lambda case: f"{case[0]}x{case[1]}")
def test_conv(case):
    x, w, *options = case
    compare(
        lambda b, x, w, dim: b.conv(x, w, *options), lambda x, w: naive_conv(x, w, *options), x, w, classes=REDUCTION,
        dtype=float32,
    )


def test_conv_over_symbolic_spatial_extents():
    for size in (3, 8, 11):
        b = Builder("test", {"h": Range(3, 8, 64)})
        x = b.input("x", float32, (1, 2, symbol("h"), 6))
        weights = values((3, 2, 3, 3), seed=4)
        b.output("y", b.conv(x, b.constant(weights), [2, 2], [1, 1], [1, 1], [1, 1]))
        check(b.graph)
        feed = values((1, 2, size, 6))
        (y,) = run(b.graph, [feed])
        assert_close(y, naive_conv(feed, weights, [2, 2], [1, 1], [1, 1], [1, 1], 1), REDUCTION)


def test_pools():
    def windows(x, fill):
        padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 1)], constant_values=fill)
        return np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))[:, :, ::2, ::1]

    options = ([3, 2], [2, 1], [1, 0], [1, 1], [1, 1])
    compare(
        lambda b, x, dim: b.pool_max(x, *options),
        lambda x: windows(x, -np.inf).max((-1, -2), initial=-np.inf), ("n", 2, 7, 5),
    )
    compare(
        lambda b, x, dim: b.pool_sum(x, *options),
        lambda x: windows(x, 0).sum((-1, -2)), ("n", 2, 7, 5), classes=REDUCTION,
    )
    compare(
        lambda b, x, dim: b.pool_max(x, [2], [2], [0], [0], [1], out_sizes=[3]),
        lambda x: np.stack([x[:, 0:2].max(1), x[:, 2:4].max(1), x[:, 4]], 1), (2, 5), dtype=int8,
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [float16, float32], ids=str)
def test_softmax_is_stable(axis, dtype):
    def reference(x):
        wide = x.astype(float)
        powers = np.exp(wide - wide.max(axis=axis, keepdims=True, initial=-np.inf))
        return (powers / powers.sum(axis=axis, keepdims=True)).astype(x.dtype)

    compare(lambda b, x, dim: b.softmax(x, axis), reference, ("n", 3, "m"), dtype=dtype, classes=REDUCTION)
    big = (values((2, 3, 4)) * 400).astype(dtype.numpy)
    compare(lambda b, x, dim: b.softmax(x, axis), reference, (2, 3, 4), feeds=[big], classes=REDUCTION)


def test_casts_collapse_only_when_nothing_is_lost():
    b = Builder()
    x, i = b.input("x", float16, (3,)), b.input("i", int64, (3,))
    assert b.cast(b.cast(x, float32), float16) == x
    assert b.cast(x, float16) == x
    rounded = b.cast(b.cast(i, float32), int64)
    assert rounded != i and rounded.node.inputs[0].node.op == "elementwise"
    assert b.cast(b.cast(i, int32), int64) != i


def test_equal_nodes_are_one_node():
    b = Builder()
    x = b.input("x", float32, (3, 4))
    assert b("add", x, 1) == b("add", x, 1.0)
    assert b("add", x, 1) != b("add", x, 2)
    assert b.constant(np.float32([0.0])) != b.constant(np.float32([-0.0]))
    assert b.reduce("sum", x, [1]) == b.reduce("sum", x, [-1])
    large = np.zeros(5000, np.float32)
    assert b.constant(large) == b.constant(large)


def test_views_compose_and_identities_vanish():
    b = Builder()
    x = b.input("x", float32, (2, 3, 4))
    assert b.transpose(b.transpose(x, [1, 2, 0]), [2, 0, 1]) == x
    assert b.reshape(b.reshape(x, (6, 4)), (2, 3, 4)) == x
    assert b.reshape(b.transpose(x, [2, 0, 1]), (4, 6)).node.inputs[0] == x


def test_origin_is_attached_to_new_nodes():
    b = Builder()
    x = b.input("x", float32, (2,))
    b.origin = ("Relu_3",)
    assert b("max", x, 0).node.origin == ("Relu_3",)


WRONG = {
    "do not broadcast": lambda b, x, i: b("add", x, b.input("y", float32, (3,))),
    "operands of one dtype": lambda b, x, i: b("add", x, b.reshape(i, (2, 1))),
    "takes 2 operands": lambda b, x, i: b("add", x),
    "does not fit a shape|permutation": lambda b, x, i: b.transpose(x, [0, 0]),
    "cannot reshape": lambda b, x, i: b.reshape(x, (3, 3)),
    "cannot squeeze axis 0": lambda b, x, i: b.squeeze(x, [0]),
    "cannot concatenate": lambda b, x, i: b.concat([x, i], 0),
    "cannot split": lambda b, x, i: b.split(x, [1, 2], 0),
    "inner extents": lambda b, x, i: b.matmul(x, x),
    "channels or ranks": lambda b, x, i: b.conv(x, x, [], [], [], [], 2),
    "no reduction": lambda b, x, i: b.reduce("median", x, [0]),
    "do not fit a tensor of 2 axes": lambda b, x, i: b.reduce("sum", x, [2]),
    "cannot hold the number 0.5": lambda b, x, i: b("add", i, 0.5),
    "cannot hold the number nan": lambda b, x, i: b("add", i, float("nan")),
    "cannot hold the number 300": lambda b, x, i: b.scalar(300, int8),
    "two inputs named": lambda b, x, i: b.input("x", float32, ()),
    "integer index": lambda b, x, i: b.gather_flat(x, x),
    "index and source of one shape": lambda b, x, i: b.scatter_flat(x, i, x),
    "mean needs floats": lambda b, x, i: b.mean(i, [0]),
    "Python numbers only": lambda b, x, i: b("add", 1, 2),
}


@pytest.mark.parametrize("message", WRONG)
def test_mistakes_are_named(message):
    b = Builder()
    x, i = b.input("x", float32, (2, 5)), b.input("i", int64, (2,))
    with pytest.raises(LuminalError, match=message):
        WRONG[message](b, x, i)


def test_unknown_equality_of_dims_is_named():
    b = Builder()
    with pytest.raises(LuminalError, match="name symbolic dims that are always equal alike"):
        b("add", b.input("x", float32, (symbol("n"),)), b.input("y", float32, (symbol("m"),)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_chains_of_views_mean_what_numpy_means(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    array = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    b = Builder()
    value = b.input("x", int64, shape)
    fed = array
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["transpose", "flip", "flatten", "pad", "crop", "expand"]))
        if kind == "transpose":
            perm = data.draw(st.permutations(range(array.ndim)))
            value, array = b.transpose(value, perm), array.transpose(perm)
        elif kind == "flip" and array.shape[0]:
            value = b.slice_axis(value, 0, array.shape[0] - 1, array.shape[0], -1)
            array = array[::-1]
        elif kind == "flatten":
            value, array = b.reshape(value, (array.size, 1)), array.reshape(-1, 1)
        elif kind == "pad":
            fill = data.draw(st.integers(-1, 0))
            ones = [1] * array.ndim
            value, array = b.pad(value, ones, ones, fill), np.pad(array, 1, constant_values=fill)
        elif kind == "crop" and array.shape[-1] > 1:
            value, array = b.slice_axis(value, -1, 1, array.shape[-1] - 1), array[..., 1:]
        elif array.ndim < 4:
            value, array = b.expand(value, (2, *array.shape)), np.broadcast_to(array, (2, *array.shape))
    b.output("y", value)
    check(b.graph)
    (actual,) = run(b.graph, [fed])
    np.testing.assert_array_equal(actual, array)
