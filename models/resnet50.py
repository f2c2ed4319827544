"""ResNet with bottleneck blocks, as PyTorch exports torchvision's ``resnet50`` without folding BatchNormalization."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .calibration import conv2d, max_pool2d, relu
from .config import BaseConfig, flag, require
from .graph import GraphWriter
from .inputs import sample_inputs, smooth_images

__all__ = ["FULL", "Config", "build", "sample_inputs"]

FULL = {"blocks": (3, 4, 6, 3), "width": 64, "image": 224, "classes": 1000}

_EXPANSION = 4
_EPSILON = 1e-5
_CALIBRATION_IMAGES = 8
_CALIBRATION_SIZE = 96  # a corner of each image: the whole adds seconds and changes the statistics little


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


@dataclass
class _Traced:
    """A tensor of the graph together with its value on the calibration batch."""

    name: str
    value: np.ndarray


class _ResNet:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.g = GraphWriter("resnet50", dtype=config.dtype, opset=config.opset, seed=config.seed)

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        batch = "batch" if c.dynamic else c.batch
        name = g.input("pixel_values", g.dtype, [batch, c.channels, c.image, c.image])
        images = smooth_images(g.rng, (_CALIBRATION_IMAGES, c.channels, c.image, c.image))
        x = _Traced(name, images[:, :, :_CALIBRATION_SIZE, :_CALIBRATION_SIZE])

        x = self.relu(self.conv_bn(x, c.width, kernel=7, stride=2, conv="conv1", bn="bn1"))
        pooled = g.op("MaxPool", x.name, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=0)
        x = _Traced(pooled, max_pool2d(x.value, kernel=3, stride=2, pad=1))
        for stage, count in enumerate(c.blocks):
            for block in range(count):
                with g.scope(f"layer{stage + 1}/layer{stage + 1}.{block}"):
                    stride = 2 if stage and not block else 1
                    x = self.bottleneck(x, c.width << stage, stride)
        with g.scope("avgpool"):
            features = _Traced(g.op("GlobalAveragePool", x.name), x.value.mean(axis=(2, 3)))
        features.name = g.op("Flatten", features.name, axis=1)
        g.output("logits", self.classifier(features), g.dtype, [batch, c.classes])
        return g.model(batch=c.batch)

    def bottleneck(self, x: _Traced, width: int, stride: int) -> _Traced:
        """1x1, 3x3 with the stride, 1x1 to four times the width, added to the input or to its projection."""
        g = self.g
        wide = width * _EXPANSION
        inner = self.relu(self.conv_bn(x, width, kernel=1, conv="conv1", bn="bn1"))
        inner = self.relu(self.conv_bn(inner, width, kernel=3, stride=stride, conv="conv2", bn="bn2"))
        # A smaller gain on the branch keeps the sums of long stages near one.
        inner = self.conv_bn(inner, wide, kernel=1, conv="conv3", bn="bn3", gain=0.5)
        if stride != 1 or x.value.shape[1] != wide:
            with g.scope("downsample"):
                x = self.conv_bn(x, wide, kernel=1, stride=stride, conv="downsample.0", bn="downsample.1")
        return self.relu(_Traced(g.op("Add", inner.name, x.name), inner.value + x.value))

    def conv_bn(
        self, x: _Traced, outputs: int, *, kernel: int, stride: int = 1, conv: str, bn: str, gain: float = 1.0
    ) -> _Traced:
        """Convolution without bias and BatchNormalization whose statistics are near those of the calibration batch."""
        g = self.g
        inputs, pad = x.value.shape[1], kernel // 2
        weight = g.normal(outputs, inputs, kernel, kernel, std=(2 / (inputs * kernel * kernel)) ** 0.5)
        value = conv2d(x.value, weight, stride=stride, pad=pad)
        with g.scope(conv):
            name = g.op(
                "Conv", x.name, g.weight("weight", weight),
                dilations=[1, 1], group=1, kernel_shape=[kernel, kernel], pads=[pad] * 4, strides=[stride, stride],
            )  # fmt: skip
        deviation = value.std(axis=(0, 2, 3)) + 1e-2
        scale = gain * g.normal(outputs, std=0.1, mean=1.0)
        shift = g.normal(outputs, std=0.2)
        mean = value.mean(axis=(0, 2, 3)) + 0.1 * deviation * g.normal(outputs)
        variance = (deviation * np.exp(g.normal(outputs, std=0.1))) ** 2
        with g.scope(bn):
            parameters = [
                g.weight(field, numbers)
                for field, numbers in (
                    ("weight", scale),
                    ("bias", shift),
                    ("running_mean", mean),
                    ("running_var", variance),
                )
            ]
            name = g.op("BatchNormalization", name, *parameters, epsilon=_EPSILON, momentum=0.9)
        factor = scale / np.sqrt(variance + _EPSILON)
        return _Traced(name, value * _per_channel(factor) + _per_channel(shift - mean * factor))

    def relu(self, x: _Traced) -> _Traced:
        return _Traced(self.g.op("Relu", x.name), relu(x.value))

    def classifier(self, features: _Traced) -> str:
        """A linear layer whose logits differ by about one from image to image."""
        g, c = self.g, self.config
        inputs = features.value.shape[1]
        weight = g.normal(c.classes, inputs, std=inputs**-0.5)
        logits = features.value @ weight.T
        weight /= logits.std(axis=0).mean() + 1e-3
        logits = features.value @ weight.T
        bias = g.normal(c.classes, std=0.3) - logits.mean(axis=0)
        with g.scope("fc"):
            return g.op(
                "Gemm", features.name, g.weight("weight", weight), g.weight("bias", bias), alpha=1.0, beta=1.0, transB=1
            )


def _per_channel(numbers: np.ndarray) -> np.ndarray:
    return numbers[None, :, None, None]
