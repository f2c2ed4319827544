"""MobileNetV2, as PyTorch exports torchvision's ``mobilenet_v2`` without folding BatchNormalization."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .batch_norm import Traced, classifier, conv_bn, image_input, pooled
from .config import BaseConfig, flag, require
from .graph import GraphWriter
from .inputs import sample_inputs

__all__ = ["FULL", "Config", "build", "sample_inputs"]

FULL = {"blocks": (1, 2, 3, 4, 3, 3, 1), "width": 32, "image": 224, "classes": 1000}

# Of each stage: how much wider blocks are inside, channels when the stem has 32, stride of the first block.
_STAGES = ((1, 16, 1), (6, 24, 2), (6, 32, 2), (6, 64, 2), (6, 96, 1), (6, 160, 2), (6, 320, 1))
_STEM, _HEAD = 32, 1280
_MULTIPLE = 8  # of which all channel counts are multiples


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the network; every channel count follows from ``width``."""

    blocks: tuple[int, ...] = flag((1, 2, 1), "inverted residual blocks per stage, up to seven stages")
    width: int = flag(8, "channels of the stem")
    image: int = flag(32, "height and width of the images (defaults for sample inputs when --dynamic)")
    channels: int = flag(3, "colour channels")
    classes: int = flag(10, "classes")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            1 <= len(self.blocks) <= len(_STAGES) and all(count >= 1 for count in self.blocks),
            f"blocks is {self.blocks}: expected up to {len(_STAGES)} numbers, each 1 or more",
        )

    def scaled(self, channels: int) -> int:
        """The channel count that stands for ``channels`` of the published network, rounded as torchvision does."""
        wanted = channels * self.width / _STEM
        rounded = max(_MULTIPLE, int(wanted + _MULTIPLE / 2) // _MULTIPLE * _MULTIPLE)
        return rounded if rounded >= 0.9 * wanted else rounded + _MULTIPLE


def build(**flags: object) -> onnx.ModelProto:
    """The network with ``Config(**flags)``: ``pixel_values`` [batch, channels, height, width] to ``logits`` [batch, classes].

    Height and width are the same size unless ``dynamic``, when both are named.
    """
    return _MobileNet(Config(**flags)).build()


class _MobileNet:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.g = GraphWriter("mobilenetv2", dtype=config.dtype, opset=config.opset, seed=config.seed)

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        batch, height, width = ("batch", "height", "width") if c.dynamic else (c.batch, c.image, c.image)
        x = image_input(g, batch, c.channels, height, width, c.image)
        number = 0
        with g.scope(f"features/features.{number}"):
            x = self.conv_bn_relu6(x, c.scaled(_STEM), 0, kernel=3, stride=2)
        for (factor, channels, stride), count in zip(_STAGES, c.blocks):
            for block in range(count):
                number += 1
                with g.scope(f"features/features.{number}/conv"):
                    x = self.inverted_residual(x, factor, c.scaled(channels), 1 if block else stride)
        with g.scope(f"features/features.{number + 1}"):
            x = self.conv_bn_relu6(x, max(c.scaled(_HEAD), _MULTIPLE), 0, kernel=1)
        with g.scope("classifier"):
            logits = classifier(g, "classifier.1", pooled(g, "pool", x), c.classes)
        g.output("logits", logits, g.dtype, [batch, c.classes])
        return g.model(batch=c.batch, height=c.image, width=c.image)

    def inverted_residual(self, x: Traced, factor: int, outputs: int, stride: int) -> Traced:
        """Widened by a 1x1, filtered channel by channel, narrowed by a 1x1 without activation; added to x where shapes agree."""
        inputs, inner, step = x.value.shape[1], x, 0
        if factor != 1:
            inner, step = self.conv_bn_relu6(inner, factor * inputs, step, kernel=1), step + 1
        inner = self.conv_bn_relu6(inner, factor * inputs, step, kernel=3, stride=stride, depthwise=True)
        inner = conv_bn(self.g, inner, outputs, kernel=1, conv=f"conv.{step + 1}", bn=f"conv.{step + 2}")
        if stride != 1 or inputs != outputs:
            return inner
        return Traced(self.g.op("Add", x.name, inner.name), x.value + inner.value)

    def conv_bn_relu6(self, x: Traced, outputs: int, step: int, **shape: object) -> Traced:
        g = self.g
        with g.scope(f"conv.{step}"):
            x = conv_bn(g, x, outputs, conv="0", bn="1", **shape)
            return Traced(g.op("Clip", x.name, g.constant(0.0), g.constant(6.0)), np.clip(x.value, 0, 6))
