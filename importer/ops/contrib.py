"""Operators of ONNX Runtime's own domain, as its optimizer and its quantizer write them."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Value
from ...plan.dims import index_symbol
from ...plan.dtypes import float32, int32
from ..context import NodeBuilder
from ..registry import onnx_op
from .elementwise import gelu
from .normalization import root_mean_square_normal, standardized
from .precision import computed_wide

MICROSOFT = "com.microsoft"


@onnx_op("Gelu", 1, domain=MICROSOFT)
def exact_gelu(b: NodeBuilder, x: Value) -> Value:
    return gelu(b, x, approximate="none")


@onnx_op("BiasGelu", 1, domain=MICROSOFT)
@computed_wide
def bias_gelu(b: NodeBuilder, x: Value, bias: Value) -> Value:
    return gelu(b, b.b("add", x, bias), approximate="none")


@onnx_op("FastGelu", 1, domain=MICROSOFT)
@computed_wide
def fast_gelu(b: NodeBuilder, x: Value, bias: Value | None = None) -> Value:
    return gelu(b, x if bias is None else b.b("add", x, bias), approximate="tanh")


@onnx_op("QuickGelu", 1, domain=MICROSOFT)
@computed_wide
def quick_gelu(b: NodeBuilder, x: Value, *, alpha: float = 1.702) -> Value:
    return b.b("mul", x, b.b("sigmoid", b.b("mul", x, alpha)))


@onnx_op("FusedMatMul", 1, domain=MICROSOFT)
def fused_matmul(
    b: NodeBuilder,
    x: Value,
    y: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    product = b.matmul(_turned(b, x, transA, transBatchA), _turned(b, y, transB, transBatchB))
    return product if alpha == 1 else b.b("mul", product, alpha)


def _turned(b: NodeBuilder, x: Value, swap: int, batch: int) -> Value:
    """Swap the last two axes, or move the first axis behind the other batch axes, or both."""
    axes = list(range(x.type.rank))
    if x.type.rank < 2:
        return x
    if batch:
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if swap:
        axes = [*axes[:-2], axes[-1], axes[-2]]
    return b.transpose(x, axes)


@onnx_op("SkipLayerNormalization", 1, domain=MICROSOFT)
def skip_layer_normalization(
    b: NodeBuilder,
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-5,
) -> tuple[Value | None, ...]:
    total = _skipped(b, x, skip, bias)
    normal, mean, inverse = standardized(b, total, [total.type.rank - 1], epsilon)
    scaled = b.b("mul", normal, b.cast(gamma, normal.dtype))
    if beta is not None:
        scaled = b.b("add", scaled, b.cast(beta, normal.dtype))
    return b.cast(scaled, x.dtype), mean, inverse, b.cast(total, x.dtype)


def _skipped(b: NodeBuilder, x: Value, skip: Value, bias: Value | None) -> Value:
    total = b.b("add", b.cast(x, x.dtype.compute), b.cast(skip, x.dtype.compute))
    return total if bias is None else b.b("add", total, b.cast(bias, total.dtype))


@onnx_op("SkipSimplifiedLayerNormalization", 1, domain=MICROSOFT)
def skip_simplified_layer_normalization(
    b: NodeBuilder, x: Value, skip: Value, gamma: Value, bias: Value | None = None, *, epsilon: float = 1e-5
) -> tuple[Value | None, ...]:
    total = _skipped(b, x, skip, bias)
    normal, inverse = root_mean_square_normal(b, total, -1, epsilon)
    scaled = b.b("mul", normal, b.cast(gamma, normal.dtype))
    return b.cast(scaled, x.dtype), None, inverse, b.cast(total, x.dtype)


@onnx_op("EmbedLayerNormalization", 1, domain=MICROSOFT)
def embed_layer_normalization(
    b: NodeBuilder,
    ids: Value,
    segments: Value | None,
    words: Value,
    positions: Value,
    segment_table: Value | None = None,
    gamma: Value | None = None,
    beta: Value | None = None,
    mask: Value | None = None,
    position_ids: Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Value | None, ...]:
    """Word, position and segment embeddings added and normalized. The mask index counts the mask's ones in a row."""
    if position_ids is None:
        position_ids = b.iota(ids.shape, index_symbol(1))
    total = b.b("add", b.take(words, ids, 0), b.take(positions, position_ids, 0))
    if segments is not None:
        total = b.b("add", total, b.take(segment_table, segments, 0))
    normal, _, _ = standardized(b, total, [2], epsilon)
    scaled = b.b("add", b.b("mul", normal, b.cast(gamma, normal.dtype)), b.cast(beta, normal.dtype))
    counts = b.expand(b.scalar(0, int32), (ids.shape[0],)) if mask is None else b.reduce("sum", mask, [1], False)
    return b.cast(scaled, words.dtype), counts, total


@onnx_op("MatMulNBits", 1, domain=MICROSOFT)
def matmul_nbits(
    b: NodeBuilder,
    x: Value,
    packed: Value,
    scales: Value,
    zero_points: Value | None = None,
    groups: Value | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
) -> Value:
    """x times the transpose of a matrix [N, K] of small unsigned integers, packed low bits first in blocks along K."""
    if groups is not None:
        b.fail("the input g_idx is not supported")
    if bits not in (2, 4, 8):
        b.fail(f"bits={bits} is not supported; supported: 2, 4, 8")
    blocks = -(-K // block_size)
    numbers = _unpacked(b, packed, bits, (N, blocks, block_size))
    wide = float32
    zero = _zero_points(b, zero_points, bits, N, blocks, wide)
    scale = b.cast(b.reshape(scales, (N, blocks, 1)), wide)
    weights = b.b("mul", b.b("sub", b.cast(numbers, wide), zero), scale)
    matrix = b.slice(b.reshape(weights, (N, blocks * block_size)), [0, 0], [1, 1], [N, K])
    result = b.matmul(b.cast(x, wide), b.transpose(matrix, (1, 0)))
    if bias is not None:
        result = b.b("add", result, b.cast(bias, wide))
    return b.cast(result, x.dtype)


def _unpacked(b: NodeBuilder, packed: Value, bits: int, shape: tuple[int, ...]) -> Value:
    """Return the numbers inside bytes, as int32; bytes at the end of a row that hold no number are left out."""
    per_byte = 8 // bits
    *outer, count = shape
    stored = b.cast(b.reshape(packed, (*outer, -(-count * bits // 8))), int32)
    place = index_symbol(len(outer))
    picked = b.indexed(stored, shape, [*(index_symbol(a) for a in range(len(outer))), place // per_byte])
    shift = b.iota(shape, (place % per_byte) * bits)
    return b.b("bit_and", b.b("shift_right", picked, b.cast(shift, int32)), 2**bits - 1)


def _zero_points(b: NodeBuilder, zero: Value | None, bits: int, rows: int, blocks: int, dtype: object) -> Value:
    if zero is None:
        return b.constant(np.array(2 ** (bits - 1), dtype.numpy))
    if zero.dtype.is_float:
        return b.cast(b.reshape(zero, (rows, blocks, 1)), dtype)
    return b.cast(b.reshape(_unpacked(b, zero, bits, (rows, blocks)), (rows, blocks, 1)), dtype)
