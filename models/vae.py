"""The variational autoencoder of Stable Diffusion, decoder or encoder, as PyTorch exports diffusers' ``AutoencoderKL``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx

from .config import BaseConfig, flag, require
from .diffusion_blocks import Image, normalised, resnet, upsampled
from .graph import GraphWriter
from .inputs import sample_inputs
from .layers import conv, group_norm, linear, merge_heads, scaled_dot_product_attention, silu, split_heads

__all__ = ["FULL", "Config", "build", "sample_inputs"]

FULL = {"widths": (128, 256, 512, 512), "blocks": 2, "groups": 32, "image": 512}

_EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the autoencoder."""

    part: str = flag("decoder", "which half", ("decoder", "encoder"))
    widths: tuple[int, ...] = flag((8, 16), "channels of each resolution, the finest first")
    blocks: int = flag(1, "ResNet blocks of a resolution in the encoder; the decoder has one more")
    groups: int = flag(4, "groups of GroupNorm")
    latent: int = flag(4, "channels of the latent image")
    image: int = flag(8, "height and width of the image (defaults for sample inputs when --dynamic)")
    channels: int = flag(3, "colour channels")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.part in ("decoder", "encoder"), f"part is {self.part!r}: expected decoder or encoder")
        require(
            bool(self.widths) and all(width % self.groups == 0 for width in self.widths),
            f"widths are {self.widths}: expected multiples of {self.groups} groups",
        )
        require(self.image % self.factor == 0, f"image {self.image} does not divide by {self.factor}")

    @property
    def factor(self) -> int:
        """How much smaller the latent image is."""
        return 2 ** (len(self.widths) - 1)


def build(**flags: object) -> onnx.ModelProto:
    """One half with ``Config(**flags)``.

    The decoder maps ``latent_sample`` [batch, latent, latent_height, latent_width] to ``sample`` [batch, channels, height, width], the
    encoder ``sample`` to ``latent_parameters`` (mean and log variance, [batch, 2 * latent, latent_height, latent_width]). With ``dynamic``
    all these dims but the channels are named.
    """
    return _Autoencoder(Config(**flags)).build()


class _Autoencoder:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.g = GraphWriter("vae", dtype=config.dtype, opset=config.opset, seed=config.seed)

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        small = c.image // c.factor
        if c.dynamic:
            whole, latent = ("batch", "height", "width"), ("batch", "latent_height", "latent_width")
        else:
            whole, latent = (c.batch, c.image, c.image), (c.batch, small, small)
        decoding = c.part == "decoder"
        inside, outside = (latent, whole) if decoding else (whole, latent)
        channels, outputs = (c.latent, c.channels) if decoding else (c.channels, 2 * c.latent)
        source, result = ("latent_sample", "sample") if decoding else ("sample", "latent_parameters")
        name = g.input(source, g.dtype, [inside[0], channels, *inside[1:]])
        x = Image(name, channels, *inside)
        x = self.decoder(x) if decoding else self.encoder(x)
        g.output(result, x.name, g.dtype, [outside[0], outputs, *outside[1:]])
        return g.model(batch=c.batch, height=c.image, width=c.image, latent_height=small, latent_width=small)

    def decoder(self, x: Image) -> Image:
        g, c = self.g, self.config
        x = self.conv("post_quant_conv", x, c.latent, kernel=1)
        with g.scope("decoder"):
            x = self.middle(self.conv("conv_in", x, c.widths[-1]))
            for level, width in enumerate(reversed(c.widths)):
                with g.scope(f"up_blocks.{level}"):
                    x = self.resnets(x, width, c.blocks + 1)
                    if level < len(c.widths) - 1:
                        x = upsampled(g, "upsamplers.0", x)
            return self.last(x, c.channels)

    def encoder(self, x: Image) -> Image:
        g, c = self.g, self.config
        with g.scope("encoder"):
            x = self.conv("conv_in", x, c.widths[0])
            for level, width in enumerate(c.widths):
                with g.scope(f"down_blocks.{level}"):
                    x = self.resnets(x, width, c.blocks)
                    if level < len(c.widths) - 1:
                        x = self.downsampled(x)
            x = self.last(self.middle(x), 2 * c.latent)
        return self.conv("quant_conv", x, 2 * c.latent, kernel=1)

    def resnets(self, x: Image, width: int, count: int) -> Image:
        for block in range(count):
            x = resnet(self.g, f"resnets.{block}", x, width, groups=self.config.groups, epsilon=_EPSILON)
        return x

    def middle(self, x: Image) -> Image:
        groups = self.config.groups
        with self.g.scope("mid_block"):
            x = resnet(self.g, "resnets.0", x, x.channels, groups=groups, epsilon=_EPSILON)
            with self.g.scope("attentions.0"):
                x = self.attention(x)
            return resnet(self.g, "resnets.1", x, x.channels, groups=groups, epsilon=_EPSILON)

    def attention(self, x: Image) -> Image:
        """One head over all pixels, added to x."""
        g = self.g
        batch, height, width = (g.size(x.name, axis, x.shape[axis]) for axis in (0, 2, 3))
        pixels = height * width if x.static else g.op("Mul", height, width)
        rows = g.reshape(x.name, batch, x.channels, pixels)
        shape = (x.batch, x.channels, pixels)
        rows = group_norm(g, "group_norm", rows, x.channels, self.config.groups, _EPSILON, shape)
        rows = g.op("Transpose", rows, perm=[0, 2, 1])
        lengths = (batch, -1)
        query, key, value = (
            split_heads(g, linear(g, name, rows, x.channels, x.channels, gain=gain), lengths, 1, x.channels)
            for name, gain in (("to_q", 1.5), ("to_k", 1.0), ("to_v", 1.0))
        )
        mixed = scaled_dot_product_attention(g, query, key, value, x.channels, static=x.static)
        mixed = linear(g, "to_out.0", merge_heads(g, mixed, lengths, x.channels), x.channels, x.channels)
        back = g.reshape(g.op("Transpose", mixed, perm=[0, 2, 1]), batch, x.channels, height, width)
        return replace(x, name=g.op("Add", back, x.name))

    def downsampled(self, x: Image) -> Image:
        """``Downsample2D`` of the encoder: a row below and a column to the right, then 3x3 with stride 2."""
        g = self.g
        with g.scope("downsamplers.0"):
            padded = g.op("Pad", x.name, g.constant([0, 0, 0, 0, 0, 0, 1, 1]), g.constant(0.0), mode="constant")
            smaller = conv(g, "conv", padded, x.channels, x.channels, kernel=(3, 3), stride=2)
        return x.resized(smaller, 1, 2)

    def last(self, x: Image, outputs: int) -> Image:
        activated = silu(self.g, normalised(self.g, "conv_norm_out", x, self.config.groups, _EPSILON))
        return self.conv("conv_out", replace(x, name=activated), outputs, gain=1.5)

    def conv(self, name: str, x: Image, outputs: int, kernel: int = 3, gain: float = 1.0) -> Image:
        shape = {"kernel": (kernel, kernel), "pad": kernel // 2, "gain": gain}
        return replace(x, name=conv(self.g, name, x.name, x.channels, outputs, **shape), channels=outputs)
