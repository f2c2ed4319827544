"""Feeds that make sense for a builder's model: ids in the vocabulary, masks with zeros, images rather than noise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

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
    sizes = {name: int(value) for name, value in metadata.items() if value.isdigit()}
    sizes.update(dims or {})
    sampler = _Sampler(np.random.default_rng(seed), {v.name: _Spec(v, sizes) for v in model.graph.input}, metadata)
    for name, spec in sampler.specs.items():
        sampler.feeds[name] = sampler.rule(name)(spec)
    return sampler.feeds


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


class _Sampler:
    """Makes one input after another; a rule may look at those before."""

    def __init__(self, rng: np.random.Generator, specs: dict[str, _Spec], metadata: Mapping[str, str]) -> None:
        self.rng = rng
        self.specs = specs
        self.metadata = metadata
        self.feeds: dict[str, np.ndarray] = {}

    def rule(self, name: str) -> Callable[[_Spec], np.ndarray]:
        """How the input of this name is made."""
        rules = {
            "input_ids": self.below("vocab_size"),
            "token_type_ids": lambda spec: _token_types(self.rng, spec.shape),
            "attention_mask": self.attention_mask,
            "position_ids": self.position_ids,
            "image": lambda spec: np.clip(8 + 6 * smooth_images(self.rng, spec.shape), 0, 16).astype(spec.dtype),
            "pixel_values": self.images,
            "sample": self.images,
            "latent_sample": self.images,
            "input_features": self.spectrogram,
            "timestep": self.below("timesteps"),
            "indices": self.below("table_rows"),
            "dense": self.normal,
            "encoder_hidden_states": self.normal,
        }
        if name.startswith("past_key_values."):
            return self.normal
        if name not in rules:
            raise ValueError(
                f"no rule for input {name!r} of shape {self.specs[name].shape}: is the model from luminal_onnx.models?"
            )
        return rules[name]

    def below(self, key: str) -> Callable[[_Spec], np.ndarray]:
        """Integers from 0 up to the model's metadata ``key``."""
        return lambda spec: self.rng.integers(0, int(self.metadata[key]), spec.shape, dtype=np.int64)

    def normal(self, spec: _Spec) -> np.ndarray:
        return self.rng.standard_normal(spec.shape).astype(spec.dtype)

    def images(self, spec: _Spec) -> np.ndarray:
        return smooth_images(self.rng, spec.shape).astype(spec.dtype)

    def spectrogram(self, spec: _Spec) -> np.ndarray:
        batch, bands, frames = spec.shape
        return smooth_images(self.rng, (batch, 1, bands, frames))[:, 0].astype(spec.dtype)

    def attention_mask(self, spec: _Spec) -> np.ndarray:
        if "past_sequence" in self.metadata:
            return _left_padded(self.rng, spec.shape, self.specs["input_ids"].shape[1])
        return _right_padded(self.rng, spec.shape)

    def position_ids(self, spec: _Spec) -> np.ndarray:
        """A token's position counts the visible tokens before it; the mask precedes the positions among the inputs."""
        return (np.cumsum(self.feeds["attention_mask"], axis=1) - 1)[:, -spec.shape[1] :]


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
