"""Feeds that make sense for a builder's model: ids in the vocabulary, masks with zeros, images rather than noise."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper


def sample_inputs(
    model: onnx.ModelProto, seed: int = 0, dims: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Seeded feeds for every input of a model written by this package.

    ``dims`` gives the sizes of named dims (``{"batch": 2, "sequence": 7}``); a dim left out takes the size the model was built with.
    """
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    sizes = {name: int(metadata[name]) for name in ("batch", "sequence", "past_sequence") if name in metadata}
    sizes.update(dims or {})
    specs = {value.name: _Spec(value, sizes) for value in model.graph.input}
    rng = np.random.default_rng(seed)

    feeds: dict[str, np.ndarray] = {}
    for name, spec in specs.items():
        if name == "input_ids":
            feeds[name] = rng.integers(0, int(metadata["vocab_size"]), spec.shape, dtype=np.int64)
        elif name == "token_type_ids":
            feeds[name] = _token_types(rng, spec.shape)
        elif name == "attention_mask":
            current = specs["input_ids"].shape[1]
            left = "past_sequence" in metadata
            feeds[name] = _left_padded(rng, spec.shape, current) if left else _right_padded(rng, spec.shape)
        elif name == "position_ids":
            # A token's position counts the visible tokens before it; the mask precedes the positions among the inputs.
            feeds[name] = (np.cumsum(feeds["attention_mask"], axis=1) - 1)[:, -spec.shape[1] :]
        elif name == "image":
            feeds[name] = np.clip(8 + 6 * smooth_images(rng, spec.shape), 0, 16).astype(spec.dtype)
        elif name == "pixel_values":
            feeds[name] = smooth_images(rng, spec.shape).astype(spec.dtype)
        elif name.startswith("past_key_values."):
            feeds[name] = rng.standard_normal(spec.shape).astype(spec.dtype)
        else:
            raise ValueError(
                f"no rule for input {name!r} of shape {spec.shape}: is the model from luminal_onnx.models?"
            )
    return feeds


def smooth_images(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Float32 images [batch, channels, height, width] of unit scale: a few random waves each, and a little noise."""
    batch, channels, height, width = shape
    y, x = np.linspace(0, 1, height)[:, None], np.linspace(0, 1, width)[None, :]
    images = 0.2 * rng.standard_normal(shape)
    for _ in range(4):
        amplitude, fx, fy, phase = (
            rng.normal(size=(batch, channels, 1, 1)),
            rng.uniform(-4, 4, (batch, channels, 1, 1)),
            rng.uniform(-4, 4, (batch, channels, 1, 1)),
            rng.uniform(0, 2 * np.pi, (batch, channels, 1, 1)),
        )
        images += 0.7 * amplitude * np.sin(2 * np.pi * (fx * x + fy * y) + phase)
    return images.astype(np.float32)


class _Spec:
    """Concrete shape and dtype of one graph input."""

    def __init__(self, value: onnx.ValueInfoProto, sizes: Mapping[str, int]) -> None:
        tensor = value.type.tensor_type
        self.dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        self.shape = tuple(
            _evaluate(dim.dim_param, sizes, value.name) if dim.dim_param else dim.dim_value for dim in tensor.shape.dim
        )


def _evaluate(dim: str, sizes: Mapping[str, int], tensor: str) -> int:
    """The size of a named dim, or of a sum of them (``past_sequence + sequence``)."""
    total = 0
    for term in re.split(r"\s*\+\s*", dim):
        if term not in sizes:
            raise ValueError(
                f"input {tensor!r} has dim {term!r}, whose size is not given: pass dims={{{term!r}: size}}"
            )
        total += sizes[term]
    return total


def _token_types(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros up to a random place in each row, ones from there on: a sentence pair."""
    batch, length = shape
    return (np.arange(length) >= rng.integers(1, length + 1, (batch, 1))).astype(np.int64)


def _right_padded(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Ones, then zeros over at most the last half of each row."""
    batch, length = shape
    return (np.arange(length) < length - rng.integers(0, length // 2 + 1, (batch, 1))).astype(np.int64)


def _left_padded(rng: np.random.Generator, shape: tuple[int, ...], current: int) -> np.ndarray:
    """Zeros over at most half of the cached tokens, then ones: every new token sees at least itself."""
    batch, total = shape
    return (np.arange(total) >= rng.integers(0, (total - current) // 2 + 1, (batch, 1))).astype(np.int64)
