"""ResNet with bottleneck blocks, as PyTorch exports torchvision's ``resnet50`` without folding BatchNormalization."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from .batch_norm import Traced, classifier, conv_bn, image_input, pooled
from .calibration import max_pool2d, relu
from .config import BaseConfig, flag, require
from .graph import GraphWriter
from .inputs import sample_inputs

__all__ = ["FULL", "Config", "build", "sample_inputs"]

FULL = {"blocks": (3, 4, 6, 3), "width": 64, "image": 224, "classes": 1000}

_EXPANSION = 4


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the network: ``blocks=(3, 4, 6, 3), width=64, image=224, classes=1000`` is ResNet-50."""

    blocks: tuple[int, ...] = flag((1, 1, 1, 1), "bottleneck blocks per stage")
    width: int = flag(8, "channels of the stem and of the first stage")
    image: int = flag(32, "height and width of the images")
    channels: int = flag(3, "colour channels")
    classes: int = flag(10, "classes")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            bool(self.blocks) and all(count >= 1 for count in self.blocks),
            f"blocks is {self.blocks}: expected 1 or more",
        )
        smallest = 2 ** (len(self.blocks) + 1)
        require(self.image >= smallest, f"image is {self.image}: {len(self.blocks)} stages need at least {smallest}")


def build(**flags: object) -> onnx.ModelProto:
    """The network with ``Config(**flags)``: ``pixel_values`` [batch, channels, image, image] to ``logits`` [batch, classes].

    Running statistics are those of a calibration batch, somewhat perturbed: activations stay near one at any depth and differ from
    image to image, as in a trained network.
    """
    return _ResNet(Config(**flags)).build()


class _ResNet:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.g = GraphWriter("resnet50", dtype=config.dtype, opset=config.opset, seed=config.seed)

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        batch = "batch" if c.dynamic else c.batch
        x = image_input(g, batch, c.channels, c.image, c.image, c.image)
        x = self.relu(conv_bn(g, x, c.width, kernel=7, stride=2, conv="conv1", bn="bn1"))
        largest = g.op("MaxPool", x.name, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=0)
        x = Traced(largest, max_pool2d(x.value, kernel=3, stride=2, pad=1))
        for stage, count in enumerate(c.blocks):
            for block in range(count):
                with g.scope(f"layer{stage + 1}/layer{stage + 1}.{block}"):
                    stride = 2 if stage and not block else 1
                    x = self.bottleneck(x, c.width << stage, stride)
        features = pooled(g, "avgpool", x)
        g.output("logits", classifier(g, "fc", features, c.classes), g.dtype, [batch, c.classes])
        return g.model(batch=c.batch)

    def bottleneck(self, x: Traced, width: int, stride: int) -> Traced:
        """1x1, 3x3 with the stride, 1x1 to four times the width, added to the input or to its projection."""
        g = self.g
        wide = width * _EXPANSION
        inner = self.relu(conv_bn(g, x, width, kernel=1, conv="conv1", bn="bn1"))
        inner = self.relu(conv_bn(g, inner, width, kernel=3, stride=stride, conv="conv2", bn="bn2"))
        # A smaller gain on the branch keeps the sums of long stages near one.
        inner = conv_bn(g, inner, wide, kernel=1, conv="conv3", bn="bn3", gain=0.5)
        if stride != 1 or x.value.shape[1] != wide:
            with g.scope("downsample"):
                x = conv_bn(g, x, wide, kernel=1, stride=stride, conv="downsample.0", bn="downsample.1")
        return self.relu(Traced(g.op("Add", inner.name, x.name), inner.value + x.value))

    def relu(self, x: Traced) -> Traced:
        return Traced(self.g.op("Relu", x.name), relu(x.value))
