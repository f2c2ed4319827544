"""Blocks that diffusers' autoencoder and UNet share. Images are [batch, channels, height, width]."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .graph import Dim, GraphWriter
from .layers import conv, gemm, group_norm, silu


@dataclass(frozen=True)
class Image:
    """A tensor of the graph with its channels; its other dims are numbers, or names as soon as they are not all known."""

    name: str
    channels: int
    batch: Dim
    height: Dim
    width: Dim

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.batch, self.channels, self.height, self.width

    @property
    def static(self) -> bool:
        return all(isinstance(size, int) for size in self.shape)

    def resized(self, name: str, numerator: int, denominator: int) -> Image:
        """The image whose sides are those of this one, scaled and rounded up."""
        height, width = (
            -(-side * numerator // denominator) if isinstance(side, int) else f"{side}_" for side in (self.height, self.width)
        )
        return replace(self, name=name, height=height, width=width)


def normalised(g: GraphWriter, name: str, x: Image, groups: int, epsilon: float) -> str:
    """GroupNorm."""
    return group_norm(g, name, x.name, x.channels, groups, epsilon, x.shape)


def resnet(
    g: GraphWriter, name: str, x: Image, outputs: int, *, groups: int, epsilon: float, time: tuple[str, int] | None = None
) -> Image:
    """``ResnetBlock2D``: twice GroupNorm, SiLU and 3x3, added to x or to its projection; ``time`` (embedding, width) is added between."""
    with g.scope(name):
        inner = silu(g, normalised(g, "norm1", x, groups, epsilon))
        inner = conv(g, "conv1", inner, x.channels, outputs, kernel=(3, 3), pad=1, gain=1.5)
        if time is not None:
            shift = gemm(g, "time_emb_proj", silu(g, time[0]), time[1], outputs)
            inner = g.op("Add", inner, g.unsqueeze(g.unsqueeze(shift, 2), 3))
        inner = silu(g, normalised(g, "norm2", replace(x, name=inner, channels=outputs), groups, epsilon))
        inner = conv(g, "conv2", inner, outputs, outputs, kernel=(3, 3), pad=1)
        if x.channels != outputs:
            x = replace(x, name=conv(g, "conv_shortcut", x.name, x.channels, outputs, kernel=(1, 1)))
        return replace(x, name=g.op("Add", x.name, inner), channels=outputs)


def upsampled(g: GraphWriter, name: str, x: Image) -> Image:
    """``Upsample2D``: each pixel four times, as ``interpolate(scale_factor=2, mode="nearest")``, then 3x3."""
    with g.scope(name):
        larger = g.op(
            "Resize", x.name, "", g.constant([1.0, 1.0, 2.0, 2.0], np.float32),
            coordinate_transformation_mode="asymmetric", cubic_coeff_a=-0.75, mode="nearest", nearest_mode="floor",
        )  # fmt: skip
        larger = conv(g, "conv", larger, x.channels, x.channels, kernel=(3, 3), pad=1)
    return x.resized(larger, 2, 1)
