"""Normalizations. Statistics are computed in float32 (or in the input's type if it is wider)."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Value
from ...plan.dims import product
from ...plan.dtypes import DType, float32
from ..context import NodeBuilder, onnx_dtype
from ..registry import onnx_op
from .precision import computed_wide


def per_channel(b: NodeBuilder, vector: Value, rank: int) -> Value:
    """Shape a vector so that it broadcasts along axis 1 of a tensor of `rank` axes."""
    return b.reshape(vector, (vector.shape[0], *[1] * (rank - 2)))


def standardized(
    b: NodeBuilder, x: Value, axes: Sequence[int], epsilon: float, stash: DType | None = None
) -> tuple[Value, Value, Value]:
    """Return ((x - mean) / sqrt(variance + epsilon), mean, 1 / sqrt(...)) over the axes, all in the stash type."""
    wide = b.cast(x, stash or x.dtype.compute)
    mean = b.mean(wide, axes, True)
    centred = b.b("sub", wide, mean)
    variance = b.mean(b.b("mul", centred, centred), axes, True)
    scale = b.b("rsqrt", b.b("add", variance, epsilon))
    return b.b("mul", centred, scale), mean, scale


@onnx_op("LayerNormalization", 17)
def layer_normalization(
    b: NodeBuilder,
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, Value, Value]:
    first = b.axis(axis, x.type.rank)
    stash = onnx_dtype(b, stash_type, "stash_type")
    normal, mean, inverse = standardized(b, x, range(first, x.type.rank), epsilon, _no_narrower(stash, x.dtype))
    result = b.b("mul", b.cast(normal, x.dtype), b.cast(scale, x.dtype))
    return result if bias is None else b.b("add", result, bias), mean, inverse


def _no_narrower(stash: DType, dtype: DType) -> DType:
    return dtype if dtype.bits > stash.bits else stash


@onnx_op("RMSNormalization", 23)
def rms_normalization(b: NodeBuilder, x: Value, scale: Value, *, axis: int, epsilon: float, stash_type: int) -> Value:
    stash = _no_narrower(onnx_dtype(b, stash_type, "stash_type"), x.dtype)
    return b.b("mul", b.cast(root_mean_square_normal(b, b.cast(x, stash), axis, epsilon)[0], scale.dtype), scale)


def root_mean_square_normal(b: NodeBuilder, x: Value, axis: int, epsilon: float) -> tuple[Value, Value]:
    """Return (x / sqrt(mean(x*x) + epsilon), 1 / sqrt(...)), the mean over the axes from `axis` on."""
    axes = range(b.axis(axis, x.type.rank), x.type.rank)
    inverse = b.b("rsqrt", b.b("add", b.mean(b.b("mul", x, x), axes, True), epsilon))
    return b.b("mul", x, inverse), inverse


@onnx_op("BatchNormalization", 7, ignored=("momentum",), only={"spatial": (1,)})
def batch_normalization_7(
    b: NodeBuilder, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, *, epsilon: float, spatial: int
) -> Value:
    return batch_normalization_9(b, x, scale, bias, mean, variance, epsilon=epsilon)


@onnx_op("BatchNormalization", 9, ignored=("momentum",))
def batch_normalization_9(
    b: NodeBuilder, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, *, epsilon: float
) -> Value:
    """Everything but x is constant as a rule, and then becomes one factor and one offset per channel."""
    wide = x.dtype.compute
    scale, bias, mean, variance = (b.cast(v, wide) for v in (scale, bias, mean, variance))
    factor = b.b("mul", scale, b.b("rsqrt", b.b("add", variance, epsilon)))
    offset = b.b("sub", bias, b.b("mul", mean, factor))
    rank = max(x.type.rank, 2)
    scaled = b.b("mul", b.cast(x, wide), per_channel(b, factor, rank))
    return b.cast(b.b("add", scaled, per_channel(b, offset, rank)), x.dtype)


@onnx_op("BatchNormalization", 14, 15, ignored=("momentum",), only={"training_mode": (0,)})
def batch_normalization(
    b: NodeBuilder,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float,
    training_mode: int,
) -> Value:
    return batch_normalization_9(b, x, scale, bias, mean, variance, epsilon=epsilon)


@onnx_op("InstanceNormalization", 6, 22)
@computed_wide
def instance_normalization(b: NodeBuilder, x: Value, scale: Value, bias: Value, *, epsilon: float) -> Value:
    normal, _, _ = standardized(b, x, range(2, x.type.rank), epsilon)
    scaled = b.b("mul", normal, per_channel(b, scale, x.type.rank))
    return b.b("add", scaled, per_channel(b, bias, x.type.rank))


@onnx_op("GroupNormalization", 18)
def group_normalization_18(
    b: NodeBuilder, x: Value, scale: Value, bias: Value, *, epsilon: float, num_groups: int
) -> Value:
    """Scale and bias are one per group."""
    normal = _in_groups(b, x, num_groups, epsilon)
    grouped = b.reshape(normal, (x.shape[0], num_groups, -(-x.shape[1] // num_groups), *x.shape[2:]))
    scale, bias = (b.reshape(b.cast(v, normal.dtype), (num_groups, 1, *[1] * (x.type.rank - 2))) for v in (scale, bias))
    return b.cast(b.reshape(b.b("add", b.b("mul", grouped, scale), bias), x.shape), x.dtype)


@onnx_op("GroupNormalization", 21)
def group_normalization(
    b: NodeBuilder, x: Value, scale: Value, bias: Value, *, epsilon: float, num_groups: int, stash_type: int
) -> Value:
    """Scale and bias are one per channel."""
    normal = b.cast(_in_groups(b, x, num_groups, epsilon), x.dtype)
    scaled = b.b("mul", normal, per_channel(b, scale, x.type.rank))
    return b.b("add", scaled, per_channel(b, bias, x.type.rank))


def _in_groups(b: NodeBuilder, x: Value, groups: int, epsilon: float) -> Value:
    """Standardize each group of channels."""
    if type(x.shape[1]) is not int or x.shape[1] % groups:
        b.invalid(f"the {x.shape[1]} channels do not divide into {groups} groups")
    rows = b.reshape(x, (x.shape[0], groups, x.shape[1] // groups * product(x.shape[2:])))
    normal, _, _ = standardized(b, rows, [2], epsilon)
    return b.reshape(normal, x.shape)


@onnx_op("LpNormalization", 1, 22)
@computed_wide
def lp_normalization(b: NodeBuilder, x: Value, *, axis: int, p: int) -> Value:
    """A row whose norm is 0 stays 0."""
    axes = [b.axis(axis, x.type.rank)]
    norm = b.reduce("sum", b.b("abs", x) if p == 1 else b.b("mul", x, x), axes, True)
    norm = norm if p == 1 else b.b("sqrt", norm)
    return b.b("where", b.b("equal", norm, 0), 0, b.b("div", x, norm))


@onnx_op("LRN", 1, 13)
@computed_wide
def lrn(b: NodeBuilder, x: Value, *, alpha: float, beta: float, bias: float, size: int) -> Value:
    """Each element over a power of the squares' sum in a window of `size` channels around it."""
    around = b.windows(b.b("mul", x, x), [1], [size], [(size - 1) // 2], [x.shape[1]])
    total = b.reduce("sum", around, [x.type.rank], False)
    return b.b("div", x, b.b("pow", b.b("add", b.b("mul", total, alpha / size), bias), beta))


@onnx_op("MeanVarianceNormalization", 9, 13)
@computed_wide
def mean_variance_normalization(b: NodeBuilder, x: Value, *, axes: Sequence[int] = (0, 2, 3)) -> Value:
    over = b.axes(axes, x.type.rank)
    centred = b.b("sub", x, b.mean(x, over, True))
    deviation = b.b("sqrt", b.mean(b.b("mul", centred, centred), over, True))
    return b.b("div", centred, b.b("add", deviation, 1e-9))


@onnx_op("SimplifiedLayerNormalization", 1)
def simplified_layer_normalization(
    b: NodeBuilder, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Value, Value]:
    """ONNX Runtime's name for RMS normalization; it writes it into the standard domain."""
    wide = b.cast(x, _no_narrower(float32, x.dtype))
    normal, inverse = root_mean_square_normal(b, wide, axis, epsilon)
    return b.b("mul", b.cast(normal, scale.dtype), scale), inverse
