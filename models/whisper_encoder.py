"""Whisper's encoder, as PyTorch and Optimum export Hugging Face's ``WhisperEncoder``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .config import BaseConfig, flag, require
from .graph import GraphWriter, Size
from .inputs import sample_inputs
from .layers import conv, gelu, layer_norm
from .whisper_attention import WhisperLayers

__all__ = ["FULL", "Config", "build", "sample_inputs"]

# whisper-base
FULL = {"layers": 6, "hidden": 512, "heads": 8, "mels": 80, "frames": 3000}


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the encoder."""

    layers: int = flag(2, "encoder layers")
    hidden: int = flag(32, "width of the residual stream")
    heads: int = flag(4, "attention heads")
    intermediate: int | None = flag(None, "width of the feed-forward layer (default: 4 x hidden)")
    mels: int = flag(8, "mel bands of the spectrogram")
    frames: int = flag(24, "frames of the spectrogram (a default for sample inputs when --dynamic)")
    max_positions: int = flag(1500, "rows of the position embedding, each for two frames")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hidden % self.heads == 0, f"hidden {self.hidden} does not divide by {self.heads} heads")
        require(self.hidden % 2 == 0, f"hidden {self.hidden} is odd: the positions are pairs of sine and cosine")
        require(self.length <= self.max_positions, f"frames {self.frames} exceed {self.max_positions} positions")
        if self.intermediate is None:
            object.__setattr__(self, "intermediate", 4 * self.hidden)

    @property
    def length(self) -> int:
        """Tokens: one for two frames."""
        return (self.frames + 1) // 2


def build(**flags: object) -> onnx.ModelProto:
    """The encoder with ``Config(**flags)``: ``input_features`` [batch, mels, frames] to ``last_hidden_state`` [batch, tokens, hidden].

    With ``dynamic`` the dims are named ``batch`` and ``frames``, and positions are cut to the audio's length, as exporters for
    recordings under 30 seconds do.
    """
    return _Encoder(Config(**flags)).build()


class _Encoder:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.g = GraphWriter("whisper_encoder", dtype=config.dtype, opset=config.opset, seed=config.seed)
        self.parts = WhisperLayers(self.g, config.hidden, config.heads)
        self.dims = ("batch", "encoder_sequence") if config.dynamic else (config.batch, config.length)

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        batch, length = self.dims
        features = g.input("input_features", g.dtype, [batch, c.mels, "frames" if c.dynamic else c.frames])
        x = gelu(g, conv(g, "conv1", features, c.mels, c.hidden, kernel=(3,), pad=1, gain=1.5))
        x = gelu(g, conv(g, "conv2", x, c.hidden, c.hidden, kernel=(3,), stride=2, pad=1, gain=1.5))
        x = g.op("Transpose", x, perm=[0, 2, 1])
        x = g.op("Add", x, self.positions(x))
        for layer in range(c.layers):
            with g.scope(f"layers.{layer}"):
                x = self.layer(x)
        g.output("last_hidden_state", layer_norm(g, "layer_norm", x, c.hidden), g.dtype, [batch, length, c.hidden])
        return g.model(batch=c.batch, frames=c.frames)

    def positions(self, x: str) -> str:
        """Sines and cosines of geometric wavelengths, [tokens, hidden]."""
        g, c = self.g, self.config
        half = c.hidden // 2
        frequencies = 10000.0 ** (-np.arange(half) / max(half - 1, 1))
        angles = np.arange(c.max_positions)[:, None] * frequencies
        table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        if not c.dynamic:
            return g.weight("embed_positions.weight", table[: c.length])
        length = g.unsqueeze(g.size(x, 1, self.dims[1]), 0)
        return g.slice(g.weight("embed_positions.weight", table), g.constant([0]), length, 0)

    def layer(self, x: str) -> str:
        g, c = self.g, self.config
        normed = layer_norm(g, "self_attn_layer_norm", x, c.hidden)
        with g.scope("self_attn"):
            query = self.parts.query(normed, self.sizes(normed))
            key, value = self.parts.key_value(normed, self.sizes(normed))
            attended = self.parts.attend(query, key, value, self.sizes(normed))
        return self.parts.feed_forward(g.op("Add", x, attended), c.intermediate)

    def sizes(self, x: str) -> tuple[Size, Size]:
        batch, length = self.dims
        return self.g.size(x, 0, batch), self.g.size(x, 1, length)
