"""The few NumPy layers that builders use to choose statistics from data. Images are [batch, channels, height, width]."""

from __future__ import annotations

import numpy as np


def windows(x: np.ndarray, *, kernel: int, stride: int, pad: int, fill: float = 0.0) -> np.ndarray:
    """View of all windows: [batch, channels, out_height, out_width, kernel, kernel]."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]


def conv2d(x: np.ndarray, weight: np.ndarray, *, stride: int = 1, pad: int = 0, depthwise: bool = False) -> np.ndarray:
    """Convolution as ONNX means it (no kernel flip), weight [outputs, inputs, kernel, kernel].

    ``depthwise`` has one filter for each channel: weight [channels, 1, kernel, kernel].
    """
    view = windows(x, kernel=weight.shape[-1], stride=stride, pad=pad)
    if depthwise:
        return np.einsum("bchwij,cij->bchw", view, weight[:, 0])
    return np.moveaxis(np.tensordot(view, weight, axes=((1, 4, 5), (1, 2, 3))), -1, 1)


def max_pool2d(x: np.ndarray, *, kernel: int, stride: int, pad: int = 0) -> np.ndarray:
    """Largest value in each window; padding never wins."""
    return windows(x, kernel=kernel, stride=stride, pad=pad, fill=-np.inf).max(axis=(4, 5))


def relu(x: np.ndarray) -> np.ndarray:
    """max(x, 0)."""
    return np.maximum(x, 0)
