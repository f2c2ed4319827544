"""The UNet of Stable Diffusion, as PyTorch exports diffusers' ``UNet2DConditionModel``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import onnx

from .config import BaseConfig, flag, require
from .diffusion_blocks import Image, normalised, resnet, upsampled
from .graph import GraphWriter
from .inputs import sample_inputs
from .layers import (
    TO_END,
    conv,
    gelu,
    gemm,
    layer_norm,
    linear,
    merge_heads,
    scaled_dot_product_attention,
    silu,
    split_heads,
)

__all__ = ["FULL", "Config", "build", "sample_inputs"]

# Stable Diffusion 1.5
FULL = {
    "widths": (320, 640, 1280, 1280), "blocks": 2, "groups": 32, "heads": 8, "context": 768, "sequence": 77, "image": 64,
}  # fmt: skip

_EPSILON = 1e-5
_TRANSFORMER_EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the UNet."""

    widths: tuple[int, ...] = flag((8, 16), "channels of each level, the finest first; all but the last have attention")
    blocks: int = flag(1, "ResNet blocks of a level on the way down; one more on the way up")
    groups: int = flag(4, "groups of GroupNorm")
    heads: int = flag(2, "attention heads")
    context: int = flag(12, "width of the encoder's hidden states")
    sequence: int = flag(5, "tokens of the encoder (a default for sample inputs when --dynamic)")
    latent: int = flag(4, "channels of the latent image")
    image: int = flag(8, "height and width of the latent image (defaults for sample inputs when --dynamic)")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            bool(self.widths) and all(width % self.groups == 0 and width % self.heads == 0 for width in self.widths),
            f"widths are {self.widths}: expected multiples of {self.groups} groups and of {self.heads} heads",
        )
        require(self.widths[0] % 2 == 0, f"width {self.widths[0]} is odd: times are pairs of sine and cosine")
        factor = 2 ** (len(self.widths) - 1)
        require(self.image % factor == 0, f"image {self.image} does not divide by {factor}")


def build(**flags: object) -> onnx.ModelProto:
    """The UNet with ``Config(**flags)``.

    Inputs: ``sample`` [batch, latent, height, width], ``timestep`` (int64 [batch]) and ``encoder_hidden_states`` [batch, sequence, context];
    output: ``out_sample``, shaped like ``sample``. With ``dynamic`` the dims are named; height and width must divide by two once for each
    level but the last, since skipped tensors are joined with what was halved and doubled again.
    """
    return _Unet(Config(**flags)).build()


class _Unet:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.g = GraphWriter("unet", dtype=config.dtype, opset=config.opset, seed=config.seed)

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        batch, height, width, sequence = (
            ("batch", "height", "width", "sequence") if c.dynamic else (c.batch, c.image, c.image, c.sequence)
        )
        name = g.input("sample", g.dtype, [batch, c.latent, height, width])
        timestep = g.input("timestep", np.int64, [batch])
        self.states = g.input("encoder_hidden_states", g.dtype, [batch, sequence, c.context])
        self.sequence = sequence
        self.time = (self.time_embedding(timestep), 4 * c.widths[0])
        x = self.conv("conv_in", Image(name, c.latent, batch, height, width), c.widths[0])
        skipped = [x]
        for level, channels in enumerate(c.widths):
            with g.scope(f"down_blocks.{level}"):
                x = self.down(x, level, channels, skipped)
        with g.scope("mid_block"):
            x = self.resnet("resnets.0", x, x.channels)
            x = self.transformer("attentions.0", x)
            x = self.resnet("resnets.1", x, x.channels)
        for level, channels in reversed(list(enumerate(c.widths))):
            with g.scope(f"up_blocks.{len(c.widths) - 1 - level}"):
                x = self.up(x, level, channels, skipped)
        activated = silu(g, normalised(g, "conv_norm_out", x, c.groups, _EPSILON))
        x = self.conv("conv_out", replace(x, name=activated), c.latent, gain=1.5)
        g.output("out_sample", x.name, g.dtype, [batch, c.latent, height, width])
        return g.model(batch=c.batch, height=c.image, width=c.image, sequence=c.sequence, timesteps=1000)

    def time_embedding(self, timestep: str) -> str:
        """Cosines and sines of the time, then two linear layers: [batch, 4 * widths[0]]."""
        g, c = self.g, self.config
        half = c.widths[0] // 2
        with g.scope("time_proj"):
            frequencies = np.exp(-math.log(10000.0) * np.arange(half) / half)[None]
            angles = g.op("Mul", g.cast(g.unsqueeze(timestep, 1), np.float32), g.constant(frequencies, np.float32))
            both = g.op("Concat", g.op("Sin", angles), g.op("Cos", angles), axis=-1)
            cosines = g.slice(both, g.constant([half]), g.constant([TO_END]), 1)
            sines = g.slice(both, g.constant([0]), g.constant([half]), 1)
            wave = g.op("Concat", cosines, sines, axis=-1)
            wave = wave if g.dtype == np.float32 else g.cast(wave, g.dtype)
        with g.scope("time_embedding"):
            inner = silu(g, gemm(g, "linear_1", wave, 2 * half, 4 * c.widths[0]))
            return gemm(g, "linear_2", inner, 4 * c.widths[0], 4 * c.widths[0], gain=1.5)

    def down(self, x: Image, level: int, channels: int, skipped: list[Image]) -> Image:
        """The blocks of a level, then half the size; everything that is made on the way is kept for the way up."""
        last = level == len(self.config.widths) - 1
        for block in range(self.config.blocks):
            x = self.resnet(f"resnets.{block}", x, channels)
            if not last:
                x = self.transformer(f"attentions.{block}", x)
            skipped.append(x)
        if not last:
            with self.g.scope("downsamplers.0"):
                smaller = conv(self.g, "conv", x.name, channels, channels, kernel=(3, 3), stride=2, pad=1)
            x = x.resized(smaller, 1, 2)
            skipped.append(x)
        return x

    def up(self, x: Image, level: int, channels: int, skipped: list[Image]) -> Image:
        """The blocks of a level, each after joining what was kept, then twice the size."""
        for block in range(self.config.blocks + 1):
            kept = skipped.pop()
            joined = self.g.op("Concat", x.name, kept.name, axis=1)
            x = self.resnet(f"resnets.{block}", replace(x, name=joined, channels=x.channels + kept.channels), channels)
            if level < len(self.config.widths) - 1:
                x = self.transformer(f"attentions.{block}", x)
        return upsampled(self.g, "upsamplers.0", x) if level else x

    def resnet(self, name: str, x: Image, channels: int) -> Image:
        return resnet(self.g, name, x, channels, groups=self.config.groups, epsilon=_EPSILON, time=self.time)

    def transformer(self, name: str, x: Image) -> Image:
        """``Transformer2DModel``: pixels as tokens through one block, added to x."""
        g = self.g
        with g.scope(name):
            inner = normalised(g, "norm", x, self.config.groups, _TRANSFORMER_EPSILON)
            inner = conv(g, "proj_in", inner, x.channels, x.channels, kernel=(1, 1))
            batch, height, width = (g.size(inner, axis, x.shape[axis]) for axis in (0, 2, 3))
            pixels = height * width if x.static else g.op("Mul", height, width)
            tokens = g.reshape(g.op("Transpose", inner, perm=[0, 2, 3, 1]), batch, pixels, x.channels)
            with g.scope("transformer_blocks.0"):
                tokens = self.block(tokens, x)
            back = g.op("Transpose", g.reshape(tokens, batch, height, width, x.channels), perm=[0, 3, 1, 2])
            back = conv(g, "proj_out", back, x.channels, x.channels, kernel=(1, 1))
            return replace(x, name=g.op("Add", back, x.name))

    def block(self, tokens: str, x: Image) -> str:
        """``BasicTransformerBlock``: attention to the tokens, to the encoder's states, and a gated feed-forward layer."""
        g, width = self.g, x.channels
        normed = layer_norm(g, "norm1", tokens, width)
        tokens = g.op("Add", self.attention("attn1", normed, normed, width, x), tokens)
        normed = layer_norm(g, "norm2", tokens, width)
        tokens = g.op("Add", self.attention("attn2", normed, self.states, self.config.context, x), tokens)
        normed = layer_norm(g, "norm3", tokens, width)
        with g.scope("ff/net.0"):
            plain, gate = g.split(linear(g, "proj", normed, width, 8 * width), [4 * width] * 2, axis=-1)
            gated = g.op("Mul", plain, gelu(g, gate))
        return g.op("Add", linear(g, "ff/net.2", gated, 4 * width, width, gain=1.5), tokens)

    def attention(self, name: str, x: str, source: str, source_width: int, image: Image) -> str:
        g, width, heads = self.g, image.channels, self.config.heads
        with g.scope(name):
            query = linear(g, "to_q", x, width, width, bias=False, gain=1.5)
            key, value = (linear(g, part, source, source_width, width, bias=False) for part in ("to_k", "to_v"))
            # "What is left" for the length: diffusers asks for the batch alone.
            lengths = (g.size(x, 0, image.batch), -1)
            query, key, value = (
                split_heads(g, tensor, lengths, heads, width // heads) for tensor in (query, key, value)
            )
            mixed = scaled_dot_product_attention(g, query, key, value, width // heads, static=image.static)
            return linear(g, "to_out.0", merge_heads(g, mixed, lengths, width), width, width)

    def conv(self, name: str, x: Image, outputs: int, gain: float = 1.0) -> Image:
        made = conv(self.g, name, x.name, x.channels, outputs, kernel=(3, 3), pad=1, gain=gain)
        return replace(x, name=made, channels=outputs)
