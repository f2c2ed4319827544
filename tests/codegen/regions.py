"""Regions that tests of several parts share: a small builder, and the usual suspects written with it."""

from __future__ import annotations

import numpy as np
from luminal_onnx.ir.graph import TensorType
from luminal_onnx.ir.region import Broadcast, Constant, Elementwise, Gather, Iota, Load, Reduce, Region
from luminal_onnx.ir.scalars import result_dtype
from luminal_onnx.plan.dims import Dim, Ranges, index_symbol
from luminal_onnx.plan.dtypes import DType, float16, float32, int64
from luminal_onnx.plan.view import View, compose, expand, identity, select, windows

Shape = tuple[Dim, ...]
I = index_symbol


class RegionBuilder:
    """Collects nodes; every method returns the new node's position."""

    def __init__(self, ranges: Ranges | None = None) -> None:
        self.ranges = ranges
        self.nodes: list = []
        self.operands: list[TensorType] = []

    def operand(self, dtype: DType, shape: Shape) -> int:
        self.operands.append(TensorType(dtype, tuple(shape)))
        return len(self.operands) - 1

    def _add(self, node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def load(self, dtype: DType, view: View, slot: int | None = None) -> int:
        slot = self.operand(dtype, view.in_shape) if slot is None else slot
        return self._add(Load(slot, view, dtype, view.out_shape))

    def input(self, dtype: DType, shape: Shape) -> int:
        """Load a whole operand as it lies."""
        return self.load(dtype, identity(shape, self.ranges))

    def expanded(self, dtype: DType, shape: Shape, space: Shape) -> int:
        """Load an operand broadcast to a space as NumPy does."""
        return self.load(dtype, expand(shape, space, self.ranges))

    def selected(self, dtype: DType, shape: Shape, space: Shape, index: list[Dim]) -> int:
        """Load an operand at these index expressions."""
        return self.load(dtype, select(shape, space, index, self.ranges))

    def constant(self, value, dtype: DType, space: Shape) -> int:
        return self._add(Constant(np.array(value, dtype.numpy).tobytes(), dtype, tuple(space)))

    def iota(self, expr: Dim, space: Shape) -> int:
        return self._add(Iota(expr, int64, tuple(space)))

    def op(self, fn: str, *args: int, dtype: DType | None = None) -> int:
        operands = [self.nodes[arg].dtype for arg in args]
        return self._add(Elementwise(fn, args, result_dtype(fn, operands, dtype), self.nodes[args[0]].space))

    def cast(self, arg: int, dtype: DType) -> int:
        return self.op("cast", arg, dtype=dtype)

    def gather(self, dtype: DType, shape: Shape, index: int) -> int:
        return self._add(Gather(self.operand(dtype, shape), (index,), dtype, self.nodes[index].space))

    def reduce(self, fn: str, arg: int, count: int) -> int:
        node = self.nodes[arg]
        cut = len(node.space) - count
        return self._add(Reduce(fn, (arg,), node.space[cut:], node.dtype, node.space[:cut]))

    def broadcast(self, arg: int, extents: Shape) -> int:
        node = self.nodes[arg]
        return self._add(Broadcast((arg,), tuple(extents), node.dtype, node.space + tuple(extents)))

    def region(self, *stores: int) -> Region:
        return Region(tuple(self.nodes), stores, tuple(self.operands))


def bias_gelu(shape: Shape, dtype: DType = float32, ranges: Ranges | None = None) -> Region:
    """`gelu(x + bias)` with the error function; bias runs along the last axis."""
    b = RegionBuilder(ranges)
    x = b.op("add", b.input(dtype, shape), b.expanded(dtype, shape[-1:], shape))
    root = b.constant(0.7071067811865476, dtype, shape)
    one, half = b.constant(1.0, dtype, shape), b.constant(0.5, dtype, shape)
    scale = b.op("add", b.op("erf", b.op("mul", x, root)), one)
    return b.region(b.op("mul", b.op("mul", x, scale), half))


def softmax(rows: Shape, columns: Shape, dtype: DType = float32, ranges: Ranges | None = None) -> Region:
    """Softmax over the axes `columns`."""
    b = RegionBuilder(ranges)
    x = b.input(dtype, rows + columns)
    top = b.broadcast(b.reduce("max", x, len(columns)), columns)
    e = b.op("exp", b.op("sub", x, top))
    total = b.broadcast(b.reduce("sum", e, len(columns)), columns)
    return b.region(b.op("div", e, total))


def layer_norm(rows: Shape, n: int, dtype: DType = float32, ranges: Ranges | None = None, stats: bool = False) -> Region:
    """Layer norm over the last axis with gain and bias; with `stats` the mean and 1/deviation are stored too."""
    b = RegionBuilder(ranges)
    space = (*rows, n)
    x = b.input(dtype, space)
    size = b.constant(float(n), dtype, rows)
    mean = b.op("div", b.reduce("sum", x, 1), size)
    centred = b.op("sub", x, b.broadcast(mean, (n,)))
    variance = b.op("div", b.reduce("sum", b.op("mul", centred, centred), 1), size)
    inverse = b.op("recip", b.op("sqrt", b.op("add", variance, b.constant(1e-3, dtype, rows))))
    normed = b.op("mul", centred, b.broadcast(inverse, (n,)))
    gain, bias = b.expanded(dtype, (n,), space), b.expanded(dtype, (n,), space)
    y = b.op("add", b.op("mul", normed, gain), bias)
    return b.region(y, mean, inverse) if stats else b.region(y)


def reduction(fn: str, rows: Shape, columns: Shape, dtype: DType = float32, ranges: Ranges | None = None) -> Region:
    """A plain reduction over trailing axes."""
    b = RegionBuilder(ranges)
    return b.region(b.reduce(fn, b.input(dtype, rows + columns), len(columns)))


def matmul(
    m: Dim, n: Dim, k: Dim, dtype: DType = float32, ranges: Ranges | None = None, *, batch: Shape = (),
    transpose_a: bool = False, transpose_b: bool = False, bias_relu: bool = False,
) -> Region:
    """`a @ b`, stored transposed or not, and perhaps `relu(a @ b + bias)`."""
    b = RegionBuilder(ranges)
    space, rank = (*batch, m, n, k), len(batch)
    outer = [I(axis) for axis in range(rank)]
    row, column, term = I(rank), I(rank + 1), I(rank + 2)
    a_shape, a_index = ((k, m), [term, row]) if transpose_a else ((m, k), [row, term])
    b_shape, b_index = ((n, k), [column, term]) if transpose_b else ((k, n), [term, column])
    left = b.selected(dtype, (*batch, *a_shape), space, [*outer, *a_index])
    right = b.selected(dtype, (*batch, *b_shape), space, [*outer, *b_index])
    y = b.reduce("sum", b.op("mul", left, right), 1)
    if bias_relu:
        rows = (*batch, m, n)
        y = b.op("add", y, b.expanded(dtype, (n,), rows))
        y = b.op("max", y, b.constant(0.0, dtype, rows))
    return b.region(y)


def conv2d(
    n: Dim, channels: int, size: tuple[int, int], features: int, kernel: tuple[int, int], dtype: DType = float32,
    ranges: Ranges | None = None, *, stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1,
    residual: bool = False,
) -> Region:
    """A grouped convolution with bias, and perhaps `relu(conv + residual)`. Output space [n, group, feature, y, x]."""
    b = RegionBuilder(ranges)
    inside, outside = channels // groups, features // groups
    out = tuple((s + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(size, kernel, strict=True))
    shape = (n, groups, inside, *size)
    patches = windows(shape, (3, 4), kernel, (stride,) * 2, (dilation,) * 2, (pad,) * 2, out, 0.0, ranges)
    rows = (n, groups, outside, *out)
    space = (*rows, inside, *kernel)
    # patches: n, group, channel, y, x, kernel y, kernel x
    order = select(patches.out_shape, space, [I(0), I(1), I(5), I(3), I(4), I(6), I(7)], ranges)
    x = b.load(dtype, compose(order, patches, ranges))
    w = b.selected(dtype, (groups, outside, inside, *kernel), space, [I(1), I(2), I(5), I(6), I(7)])
    y = b.reduce("sum", b.op("mul", x, w), 3)
    y = b.op("add", y, b.selected(dtype, (groups, outside), rows, [I(1), I(2)]))
    if residual:
        y = b.op("add", y, b.input(dtype, rows))
        y = b.op("max", y, b.constant(0.0, dtype, rows))
    return b.region(y)


def pool2d(
    fn: str, n: Dim, channels: int, size: tuple[int, int], kernel: tuple[int, int], stride: int, pad: int,
    dtype: DType = float32, ranges: Ranges | None = None,
) -> Region:
    """Max or sum pooling; the padding reads the reduction's identity."""
    b = RegionBuilder(ranges)
    out = tuple((s + 2 * pad - k) // stride + 1 for s, k in zip(size, kernel, strict=True))
    fill = -np.inf if fn == "max" else 0.0
    view = windows((n, channels, *size), (2, 3), kernel, (stride,) * 2, (1, 1), (pad,) * 2, out, fill, ranges)
    return b.region(b.reduce(fn, b.load(dtype, view), 2))


def attention_scores(
    batch: Dim, heads: int, kv_heads: int, length: Dim, width: int, dtype: DType = float32, ranges: Ranges | None = None
) -> Region:
    """Scaled, masked `q @ k^T` from [batch, length, heads * width] operands; several heads share one of k's."""
    b = RegionBuilder(ranges)
    rows = (batch, heads, length, length)
    space = (*rows, width)
    shared = heads // kv_heads
    q = b.selected(dtype, (batch, length, heads * width), space, [I(0), I(2), I(1) * width + I(4)])
    k = b.selected(dtype, (batch, length, kv_heads * width), space, [I(0), I(3), I(1) // shared * width + I(4)])
    scores = b.reduce("sum", b.op("mul", q, k), 1)
    scaled = b.op("mul", scores, b.constant(width**-0.5, dtype, rows))
    seen = b.op("less_equal", b.iota(I(3), rows), b.iota(I(2), rows))
    return b.region(b.op("where", seen, scaled, b.constant(-1e4, dtype, rows)))


def attention_values(
    batch: Dim, heads: int, length: Dim, width: int, dtype: DType = float32, ranges: Ranges | None = None
) -> Region:
    """`p @ v`, stored as [batch, length, heads, width]; v is [batch, length, heads * width]."""
    b = RegionBuilder(ranges)
    space = (batch, length, heads, width, length)
    p = b.selected(dtype, (batch, heads, length, length), space, [I(0), I(2), I(1), I(4)])
    v = b.selected(dtype, (batch, length, heads * width), space, [I(0), I(4), I(2) * width + I(3)])
    return b.region(b.reduce("sum", b.op("mul", p, v), 1))


def embedding(
    tokens: Shape, vocabulary: int, width: int, dtype: DType = float32, ranges: Ranges | None = None
) -> Region:
    """Rows of a table picked by int64 token numbers."""
    b = RegionBuilder(ranges)
    space = (*tokens, width)
    ids = b.selected(int64, tokens, space, [I(axis) for axis in range(len(tokens))])
    place = b.op("add", b.op("mul", ids, b.constant(width, int64, space)), b.iota(I(len(tokens)), space))
    return b.region(b.gather(dtype, (vocabulary, width), place))


def attention(
    batch: Dim, heads: int, queries: Dim, keys: Dim, width: int, dtype: DType = float16, ranges: Ranges | None = None, *,
    kv_heads: int | None = None, mask: Shape | None = None, causal: bool = False, heads_last: bool = True,
    scaled_queries: bool = False, wide_softmax: bool = False, v_width: int | None = None, transposed: bool = False,
) -> Region:
    """`softmax(q k^T / sqrt(width) + mask) v` of [batch, length, heads * width] operands.

    `mask` is the shape of an additive mask, broadcast to [batch, heads, queries, keys]. The result is [batch, queries,
    heads, width] if `heads_last`, else [batch, heads, queries, width]. With `transposed` keys and values come as
    [batch, heads, width, keys].
    """
    b = RegionBuilder(ranges)
    kv_heads, v_width = kv_heads or heads, v_width or width
    rows = (batch, queries, heads, v_width) if heads_last else (batch, heads, queries, v_width)
    h, m, n, k = I(2 if heads_last else 1), I(1 if heads_last else 2), I(4), I(5)
    full, factors = (*rows, keys), (*rows, keys, width)
    shared = h // (heads // kv_heads)
    q = b.selected(dtype, (batch, queries, heads * width), factors, [I(0), m, h * width + k])
    if scaled_queries:
        q = b.op("mul", q, b.constant(width**-0.5, dtype, factors))
    if transposed:
        key = b.selected(dtype, (batch, kv_heads, width, keys), factors, [I(0), shared, k, n])
    else:
        key = b.selected(dtype, (batch, keys, kv_heads * width), factors, [I(0), n, shared * width + k])
    x = b.reduce("sum", b.op("mul", q, key), 1)
    if not scaled_queries:
        x = b.op("mul", x, b.constant(width**-0.5, dtype, full))
    if mask is not None:
        index = [0 if extent == 1 else at for extent, at in zip(mask, (I(0), h, m, n), strict=True)]
        x = b.op("add", x, b.selected(dtype, mask, full, index))
    if causal:
        seen = b.op("less_equal", b.iota(n, full), b.iota(m + (keys - queries), full))
        x = b.op("where", seen, x, b.constant(-np.inf, dtype, full))
    if wide_softmax:
        x = b.cast(x, float32)
    e = b.op("exp", b.op("sub", x, b.broadcast(b.reduce("max", x, 1), (keys,))))
    p = b.op("div", e, b.broadcast(b.reduce("sum", e, 1), (keys,)))
    if wide_softmax:
        p = b.cast(p, dtype)
    if transposed:
        v = b.selected(dtype, (batch, kv_heads, v_width, keys), full, [I(0), shared, I(3), n])
    else:
        v = b.selected(dtype, (batch, keys, kv_heads * v_width), full, [I(0), n, shared * v_width + I(3)])
    return b.region(b.reduce("sum", b.op("mul", p, v), 1))
