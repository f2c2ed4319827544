"""Attention, rotary embeddings, and the shapes that they come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.graph import Value
from ...plan.dims import Dim, index_symbol
from ...plan.dtypes import bool_, int64
from ..context import NodeBuilder, onnx_dtype
from ..registry import onnx_op
from .precision import widened

MICROSOFT = "com.microsoft"
MINUS_INFINITY = float("-inf")


@dataclass
class Scores:
    """The scores [batch, heads, queries, keys] at each stage, as the operators can be asked to return them."""

    raw: Value
    capped: Value
    biased: Value
    weights: Value


def in_heads(b: NodeBuilder, x: Value, heads: int) -> Value:
    """Turn [batch, steps, heads * size] into [batch, heads, steps, size]; four axes are left alone."""
    if x.type.rank == 4:
        return x
    batch, steps, hidden = x.shape
    return b.transpose(b.reshape(x, (batch, steps, heads, b.simplify(hidden // heads))), (0, 2, 1, 3))


def out_of_heads(b: NodeBuilder, x: Value) -> Value:
    """Turn [batch, heads, steps, size] into [batch, steps, heads * size]."""
    batch, heads, steps, size = x.shape
    return b.reshape(b.transpose(x, (0, 2, 1, 3)), (batch, steps, heads * size))


def attend(
    b: NodeBuilder,
    q: Value,
    k: Value,
    v: Value,
    *,
    scale: float | None,
    allowed: Sequence[Value] = (),
    added: Sequence[Value] = (),
    softcap: float = 0.0,
    filtered: float = MINUS_INFINITY,
) -> tuple[Value, Scores]:
    """Return softmax(q kᵀ * scale) v, and the scores, computed in float32 at least.

    Fewer heads of k and v serve several of q each. `allowed` are bool masks, `added` numbers, both broadcast to the
    scores; what is not allowed scores `filtered`. Where nothing is allowed at all the result is 0.
    """
    wide = q.dtype.compute
    batch, heads, queries, size = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    group = heads // kv_heads
    factor = 1 / np.sqrt(size) if not scale else scale
    grouped = b.reshape(b.cast(q, wide), (batch, kv_heads, group, queries, size))
    products = b.contract(grouped, "nhgqd", b.cast(k, wide), "nhkd", "nhgqk")
    raw = b.b("mul", b.reshape(products, (batch, heads, queries, keys)), float(factor))
    capped = b.b("mul", b.b("tanh", b.b("div", raw, softcap)), softcap) if softcap else raw
    biased = capped
    for bias in added:
        biased = b.b("add", biased, b.cast(bias, wide))
    for mask in allowed:
        biased = b.b("where", mask, biased, filtered)
    if (allowed and filtered == MINUS_INFINITY) or added:
        weights = _guarded_softmax(b, biased)
    else:
        weights = b.softmax(biased, 3)
    split = b.reshape(weights, (batch, kv_heads, group, queries, keys))
    result = b.contract(split, "nhgqk", b.cast(v, wide), "nhkd", "nhgqd")
    result = b.reshape(result, (batch, heads, queries, v.shape[3]))
    return b.cast(result, q.dtype), Scores(raw, capped, biased, weights)


def _guarded_softmax(b: NodeBuilder, x: Value) -> Value:
    """Softmax over the last axis that is 0, not NaN, in rows of -inf only."""
    peak = b.reduce("max", x, [3], True)
    powers = b.b("exp", b.b("sub", x, b.b("where", b.b("equal", peak, MINUS_INFINITY), 0, peak)))
    total = b.reduce("sum", powers, [3], True)
    return b.b("div", powers, b.b("where", b.b("equal", total, 0), 1, total))


def _places(b: NodeBuilder, queries: Dim, keys: Dim, offset: Dim | Value) -> Value:
    """Return, as [.., 1, queries, keys], how far each key lies behind its query, which itself lies at `offset` + i."""
    if not isinstance(offset, Value):
        return b.iota((1, 1, queries, keys), index_symbol(2) + offset - index_symbol(3))
    apart = b.iota((1, 1, queries, keys), index_symbol(2) - index_symbol(3))
    return b.b("add", apart, b.reshape(b.cast(offset, int64), (offset.shape[0], 1, 1, 1)))


def _padded_mask(b: NodeBuilder, mask: Value, keys: Dim) -> Value:
    """A mask may cover fewer keys than there are; the rest is masked. Axes are added in front up to four."""
    missing = b.simplify(keys - mask.shape[-1])
    one_for_all = type(mask.shape[-1]) is int and mask.shape[-1] == 1
    if not (type(missing) is int and missing == 0) and not one_for_all:
        fill = False if mask.dtype is bool_ else MINUS_INFINITY
        mask = b.pad(mask, [0] * mask.type.rank, [0] * (mask.type.rank - 1) + [missing], fill)
    return b.reshape(mask, (*[1] * (4 - mask.type.rank), *mask.shape))


@onnx_op("Attention", 23, 24, 25, only={"qk_matmul_output_mode": (0, 1, 2, 3)})
def attention(
    b: NodeBuilder,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    lengths: Value | None = None,
    *,
    is_causal: int,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int,
    scale: float | None = None,
    softcap: float,
    softmax_precision: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> tuple[Value | None, ...]:
    """Everything is computed in float32 at least, whatever `softmax_precision` asks for."""
    if softmax_precision is not None:
        onnx_dtype(b, softmax_precision, "softmax_precision")
    flat = q.type.rank == 3
    q, k, v = in_heads(b, q, q_num_heads), in_heads(b, k, kv_num_heads), in_heads(b, v, kv_num_heads)
    offset: Dim | Value = 0
    if past_key is not None:
        offset = past_key.shape[2]
        k, v = b.concat([past_key, k], 2), b.concat([past_value, v], 2)
    queries, keys = q.shape[2], k.shape[2]
    allowed, added = [], []
    if lengths is not None:
        valid = b.reshape(b.cast(lengths, int64), (lengths.shape[0], 1, 1, 1))
        allowed.append(b.b("less", b.iota((1, 1, 1, keys), index_symbol(3)), valid))
        offset = b.b("sub", b.cast(lengths, int64), b.dim_value(queries))
    if mask is not None:
        (allowed if mask.dtype is bool_ else added).append(_padded_mask(b, mask, keys))
    behind = _places(b, queries, keys, offset)
    if is_causal:
        allowed.append(b.b("greater_equal", behind, 0))
    if left_window_size >= 0:
        allowed.append(b.b("less_equal", behind, left_window_size))
    if right_window_size >= 0:
        allowed.append(b.b("greater_equal", behind, -right_window_size))
    result, scores = attend(b, q, k, v, scale=scale, allowed=allowed, added=added, softcap=softcap)
    stage = (scores.raw, scores.capped, scores.biased, scores.weights)[qk_matmul_output_mode]
    return out_of_heads(b, result) if flat else result, k, v, b.cast(stage, q.dtype)


@onnx_op("RotaryEmbedding", 23)
def rotary_embedding_23(
    b: NodeBuilder,
    x: Value,
    cos: Value,
    sin: Value,
    positions: Value | None = None,
    *,
    interleaved: int,
    num_heads: int | None = None,
    rotary_embedding_dim: int,
) -> Value:
    heads = in_heads(b, x, num_heads or 0) if x.type.rank == 4 or num_heads else b.invalid("needs num_heads")
    if positions is not None:
        cos, sin = b.take(cos, positions, 0), b.take(sin, positions, 0)
    turned = rotated(b, heads, cos, sin, bool(interleaved), rotary_embedding_dim)
    return turned if x.type.rank == 4 else out_of_heads(b, turned)


def rotated(b: NodeBuilder, x: Value, cos: Value, sin: Value, interleaved: bool, width: int = 0) -> Value:
    """Turn pairs of the first `width` numbers (0: all) of each [batch, heads, steps, size] row by an angle each.

    `cos` and `sin` are [batch, steps, width / 2]. A pair is two neighbours, or one number from each half.
    """
    size = x.shape[3]
    width = width or size
    half = width // 2
    wide = widened(b, x)
    cos, sin = (b.unsqueeze(b.slice_axis(b.cast(table, wide.dtype), 2, 0, half), [1]) for table in (cos, sin))
    if interleaved:
        first, second = b.slice_axis(wide, 3, 0, half, 2), b.slice_axis(wide, 3, 1, half, 2)
    else:
        first, second = b.slice_axis(wide, 3, 0, half), b.slice_axis(wide, 3, half, half)
    real = b.b("sub", b.b("mul", first, cos), b.b("mul", second, sin))
    imaginary = b.b("add", b.b("mul", first, sin), b.b("mul", second, cos))
    if interleaved:
        pair = b.concat([b.unsqueeze(real, [4]), b.unsqueeze(imaginary, [4])], 4)
        turned = b.reshape(pair, (*x.shape[:3], width))
    else:
        turned = b.concat([real, imaginary], 3)
    if width != size:
        turned = b.concat([turned, b.slice_axis(wide, 3, width, size - width)], 3)
    return b.cast(turned, x.dtype)


@onnx_op("RotaryEmbedding", 1, domain=MICROSOFT, ignored=("is_packed_batching",))
def rotary_embedding(
    b: NodeBuilder,
    x: Value,
    positions: Value,
    cos: Value,
    sin: Value,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Value:
    """A single position is that of the first step; the others follow."""
    size = rotary_embedding_dim or cos.shape[1] * 2
    heads = x
    if x.type.rank == 3:
        heads = in_heads(b, x, num_heads or x.shape[2] // size)
    batch, _, steps, _ = heads.shape
    if positions.type.rank == 1:
        start = b.reshape(b.cast(positions, int64), (1, 1))
        positions = b.b("add", start, b.iota((batch, steps), index_symbol(1)))
    cos, sin = b.take(cos, positions, 0), b.take(sin, positions, 0)
    turned = rotated(b, heads, cos, sin, bool(interleaved), rotary_embedding_dim)
    return turned if x.type.rank == 4 else out_of_heads(b, turned)


def _key_masks(b: NodeBuilder, mask: Value | None, keys: Dim) -> list[Value]:
    """Return what a mask of ONNX Runtime's operators allows: lengths [n], or 1 where a key is seen, of 2 to 4 axes."""
    if mask is None:
        return []
    if mask.type.rank == 1:
        lengths = b.reshape(b.cast(mask, int64), (mask.shape[0], 1, 1, 1))
        return [b.b("less", b.iota((1, 1, 1, keys), index_symbol(3)), lengths)]
    seen = b.b("not_equal", mask, 0) if mask.dtype is not bool_ else mask
    if mask.type.rank == 2:
        return [b.unsqueeze(seen, [1, 2])]
    return [b.unsqueeze(seen, [1]) if mask.type.rank == 3 else seen]


@onnx_op("MultiHeadAttention", 1, domain=MICROSOFT)
def multi_head_attention(
    b: NodeBuilder,
    q: Value,
    k: Value | None = None,
    v: Value | None = None,
    bias: Value | None = None,
    mask: Value | None = None,
    added: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, ...]:
    if k is None or v is None or q.type.rank != 3:
        b.fail("packed queries, keys and values are not supported; give three tensors")
    if bias is not None:
        if k.type.rank != 3:
            b.fail("a bias together with keys in heads is not supported")
        hidden, values = q.shape[2], v.shape[2]
        parts = b.split(bias, [hidden, hidden, values], 0)
        q, k, v = (b.b("add", x, part) for x, part in zip((q, k, v), parts, strict=True))
    q, k, v = (in_heads(b, x, num_heads) for x in (q, k, v))
    past: Dim = 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = b.concat([past_key, k], 2), b.concat([past_value, v], 2)
    keys = k.shape[2]
    allowed = _key_masks(b, mask, keys)
    if unidirectional:
        allowed.append(b.b("greater_equal", _places(b, q.shape[2], keys, past), 0))
    extra = [] if added is None else [added]
    result, scores = attend(b, q, k, v, scale=scale, allowed=allowed, added=extra, filtered=mask_filter_value)
    return out_of_heads(b, result), k, v, b.cast(scores.biased, q.dtype)


@onnx_op("Attention", 1, domain=MICROSOFT, only={"do_rotary": (0,), "past_present_share_buffer": (0,)})
def fused_attention(
    b: NodeBuilder,
    x: Value,
    weights: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    past: Value | None = None,
    added: Value | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, Value]:
    """Queries, keys and values come from one product with joined weights."""
    sizes = list(qkv_hidden_sizes or [weights.shape[1] // 3] * 3)
    joined = b.matmul(x, weights)
    if bias is not None:
        joined = b.b("add", joined, bias)
    q, k, v = (in_heads(b, part, num_heads) for part in b.split(joined, sizes, 2))
    before: Dim = 0
    if past is not None:
        before = past.shape[3]
        old_k, old_v = (b.squeeze(part, [0]) for part in b.split(past, [1, 1], 0))
        k, v = b.concat([old_k, k], 2), b.concat([old_v, v], 2)
    keys = k.shape[2]
    allowed = _key_masks(b, mask, keys)
    if unidirectional:
        allowed.append(b.b("greater_equal", _places(b, q.shape[2], keys, before), 0))
    extra = [] if added is None else [added]
    result, _ = attend(b, q, k, v, scale=scale, allowed=allowed, added=extra, filtered=mask_filter_value)
    return out_of_heads(b, result), b.concat([b.unsqueeze(k, [0]), b.unsqueeze(v, [0])], 0)


@onnx_op(
    "GroupQueryAttention",
    1,
    domain=MICROSOFT,
    only={"smooth_softmax": (0,), "k_quant_type": ("NONE",), "v_quant_type": ("NONE",), "qk_output": (0,)},
)
def group_query_attention(
    b: NodeBuilder,
    q: Value,
    k: Value | None,
    v: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    last_places: Value,
    total: Value,
    cos: Value | None = None,
    sin: Value | None = None,
    positions: Value | None = None,
    added: Value | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    local_window_size: int = -1,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Value, ...]:
    """Causal attention over a cache. `last_places` has the number of keys minus one of each row of the batch.

    The new keys follow each row's old ones directly, so a row with a shorter past has unused places at the end. The
    cache that is returned is as long as the past and the new steps together.
    """
    if k is None:
        size = q.shape[2] // (num_heads + 2 * kv_num_heads)
        q, k, v = b.split(q, [num_heads * size, kv_num_heads * size, kv_num_heads * size], 2)
    q, k, v = in_heads(b, q, num_heads), in_heads(b, k, kv_num_heads), in_heads(b, v, kv_num_heads)
    batch, _, steps, _ = q.shape
    count = b.b("add", b.reshape(b.cast(last_places, int64), (batch,)), 1)
    before = b.b("max", b.b("sub", count, b.dim_value(steps)), 0)
    if do_rotary:
        if positions is None:
            start = b.reshape(before, (batch, 1))
            positions = b.b("add", start, b.iota((batch, steps), index_symbol(1)))
        angles = b.take(cos, positions, 0), b.take(sin, positions, 0)
        q, k = (rotated(b, x, *angles, bool(rotary_interleaved)) for x in (q, k))
    if past_key is not None:
        k, v = _appended(b, past_key, k, before), _appended(b, past_value, v, before)
    keys = k.shape[2]
    behind = _places(b, steps, keys, before)
    allowed = [b.b("greater_equal", behind, 0)]
    if local_window_size >= 0:
        allowed.append(b.b("less", behind, local_window_size))
    extra = [] if added is None else [added]
    result, _ = attend(b, q, k, v, scale=scale, allowed=allowed, added=extra, softcap=softcap)
    return out_of_heads(b, result), k, v


def _appended(b: NodeBuilder, past: Value, new: Value, before: Value) -> Value:
    """Return, for each row of the batch, its first `before` old steps and then the new ones."""
    batch, heads, old, size = past.shape
    steps = new.shape[2]
    shape = (batch, heads, old + steps, size)
    place = b.b("sub", b.iota_along(shape, 2), b.reshape(before, (batch, 1, 1, 1)))
    late = b.gather_elements(new, b.b("max", b.b("min", place, b.dim_value(steps - 1)), 0), 2)
    early = b.pad(past, [0] * 4, [0, 0, steps, 0], 0)
    return b.b("where", b.b("less", place, 0), early, late)
