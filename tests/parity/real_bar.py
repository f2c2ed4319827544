"""The bar of the real models: that of every model, with what is known of onnxruntime's own noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from parity.comparison import Feeds, assert_parity, onnxruntime_outputs
from parity.real_cases import OPT_NOISE, TWINS, source

Outputs = list[list[np.ndarray]]


class RealBar:
    """onnxruntime's outputs for a real model, to hold others to.

    A model with a twin is held to the twin's outputs by the common bar, and to its own as closely as onnxruntime's two
    forms agree with each other.
    """

    def __init__(self, model_id: str, model: str | onnx.ModelProto, sets: Sequence[Feeds]) -> None:
        self.names, self.expected = onnxruntime_outputs(model, sets)
        self.noise = OPT_NOISE.get(model_id, 0.0)
        self.twin: Outputs | None = None
        if model_id in TWINS:
            _, self.twin = onnxruntime_outputs(source(TWINS[model_id]), sets)

    def hold(self, actual: Outputs) -> dict[str, float]:
        """Return the error of each float output as a share of its spread; AssertionError beyond the bar."""
        if self.twin is None:
            return assert_parity(self.names, actual, self.expected, self.noise)
        apart = max(map(_apart, _floats(self.expected), _floats(self.twin)))
        assert_parity(self.names, actual, self.expected, max(self.noise, apart))
        return assert_parity(self.names, actual, self.twin, self.noise)


def _floats(runs: Outputs) -> list[np.ndarray]:
    return [array.astype(np.float64) for outputs in runs for array in outputs if array.dtype.kind == "f"]


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference as a share of the peak."""
    return float(np.abs(a - b).max() / np.abs(a).max())
