"""DFT and STFT, as products with matrices of cosines and sines. The length of the transform must be a number."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Value
from ...plan.dims import Dim
from ..context import NodeBuilder
from ..registry import onnx_op
from .precision import widened


@onnx_op("DFT", 17)
def dft_17(b: NodeBuilder, x: Value, length: Value | None = None, *, axis: int, inverse: int, onesided: int) -> Value:
    return _dft(b, x, length, axis, bool(inverse), bool(onesided))


@onnx_op("DFT", 20)
def dft(
    b: NodeBuilder, x: Value, length: Value | None = None, axis: Value | None = None, *, inverse: int, onesided: int
) -> Value:
    which = -2 if axis is None else int(b.numbers(axis, "the axis").reshape(()))
    return _dft(b, x, length, which, bool(inverse), bool(onesided))


def _dft(b: NodeBuilder, x: Value, length: Value | None, axis: int, inverse: bool, onesided: bool) -> Value:
    """The last axis holds real numbers, or real and imaginary parts."""
    if inverse and onesided:
        b.fail("an inverse transform of one side is not supported")
    which = b.axis(axis, x.type.rank)
    count = _number(b, x.shape[which] if length is None else b.integer(length, "dft_length"), "the length")
    sized = _cut_or_padded(b, x, which, count)
    order = [k for k in range(x.type.rank - 1) if k != which] + [which]
    parts = [
        b.transpose(b.squeeze(part, [-1]), order) for part in b.split(sized, [1] * _number(b, x.shape[-1], "parts"), -1)
    ]
    result = transform(b, parts, count, count // 2 + 1 if onesided else count, inverse)
    return b.transpose(result, [*(order.index(k) for k in range(x.type.rank - 1)), x.type.rank - 1])


def transform(b: NodeBuilder, parts: list[Value], count: int, bins: int, inverse: bool = False) -> Value:
    """Return the transform along the last axis of one real tensor, or of a real and an imaginary one.

    The result has a new last axis of two: real and imaginary parts.
    """
    dtype = parts[0].dtype
    turns = np.outer(np.arange(count), np.arange(bins)) % count * (2 * np.pi / count)
    scale = 1 / count if inverse else 1.0
    cosines = b.constant((np.cos(turns) * scale).astype(dtype.compute.numpy))
    sines = b.constant((np.sin(turns) * (scale if inverse else -scale)).astype(dtype.compute.numpy))
    wide = [widened(b, part) for part in parts]
    real, imaginary = b.matmul(wide[0], cosines), b.matmul(wide[0], sines)
    if len(wide) == 2:
        real = b.b("sub", real, b.matmul(wide[1], sines))
        imaginary = b.b("add", imaginary, b.matmul(wide[1], cosines))
    rank = real.type.rank
    return b.cast(b.concat([b.unsqueeze(real, [rank]), b.unsqueeze(imaginary, [rank])], rank), dtype)


def _cut_or_padded(b: NodeBuilder, x: Value, axis: int, count: int) -> Value:
    after = [0] * x.type.rank
    after[axis] = b.simplify(count - x.shape[axis])
    return b.pad(x, [0] * x.type.rank, after, 0)


def _number(b: NodeBuilder, dim: Dim, what: str) -> int:
    if type(dim) is not int:
        b.fail(f"{what} of the transform, {dim}, must be fixed; give it a value with dims=")
    return dim


@onnx_op("STFT", 17)
def stft(
    b: NodeBuilder,
    signal: Value,
    frame_step: Value,
    window: Value | None = None,
    frame_length: Value | None = None,
    *,
    onesided: int,
) -> Value:
    """Transforms of windows that advance by a step; the signal is [batch, samples] or [batch, samples, parts]."""
    step = _number(b, b.integer(frame_step, "frame_step"), "the step")
    if frame_length is None and window is None:
        b.invalid("needs a window or a frame_length")
    size = _number(b, window.shape[0] if frame_length is None else b.integer(frame_length, "frame_length"), "the frame")
    if signal.type.rank == 3:
        parts = [b.squeeze(p, [2]) for p in b.split(signal, [1] * _number(b, signal.shape[2], "parts"), 2)]
    else:
        parts = [signal]
    count = b.simplify((signal.shape[1] - size) // step) + 1
    b.at_least(count, 0)
    frames = [b.windows(part, [1], [size], [0], [count], [step]) for part in parts]
    if window is not None:
        frames = [b.b("mul", frame, window) for frame in frames]
    return transform(b, frames, size, size // 2 + 1 if onesided else size)
