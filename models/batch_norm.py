"""Convolution and BatchNormalization whose running statistics come from calibration images that are carried through the network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .calibration import conv2d
from .graph import Dim, GraphWriter
from .inputs import smooth_images

EPSILON = 1e-5

_IMAGES = 8
_LARGEST = 96  # a corner of each image: the whole adds seconds and changes the statistics little


@dataclass
class Traced:
    """A tensor of the graph together with its value on the calibration images."""

    name: str
    value: np.ndarray


def image_input(g: GraphWriter, batch: Dim, channels: int, height: Dim, width: Dim, image: int) -> Traced:
    """Declare ``pixel_values`` [batch, channels, height, width]; the calibration images come from images of side ``image``."""
    name = g.input("pixel_values", g.dtype, [batch, channels, height, width])
    images = smooth_images(g.rng, (_IMAGES, channels, image, image))
    return Traced(name, images[:, :, :_LARGEST, :_LARGEST])


def conv_bn(
    g: GraphWriter, x: Traced, outputs: int, *,
    kernel: int, stride: int = 1, depthwise: bool = False, conv: str, bn: str, gain: float = 1.0,
) -> Traced:  # fmt: skip
    """Convolution without bias and BatchNormalization with somewhat perturbed statistics of the calibration images.

    So activations stay near one (times ``gain``) at any depth and differ from image to image, as in a trained network.
    ``depthwise`` gives each channel a filter of its own.
    """
    channels, pad = x.value.shape[1], kernel // 2
    group, inputs = (channels, 1) if depthwise else (1, channels)
    weight = g.normal(outputs, inputs, kernel, kernel, std=(2 / (inputs * kernel * kernel)) ** 0.5)
    value = conv2d(x.value, weight, stride=stride, pad=pad, depthwise=depthwise)
    with g.scope(conv):
        name = g.op(
            "Conv", x.name, g.weight("weight", weight),
            dilations=[1, 1], group=group, kernel_shape=[kernel, kernel], pads=[pad] * 4, strides=[stride, stride],
        )  # fmt: skip
    deviation = value.std(axis=(0, 2, 3)) + 1e-2
    scale = gain * g.normal(outputs, std=0.1, mean=1.0)
    shift = g.normal(outputs, std=0.2)
    mean = value.mean(axis=(0, 2, 3)) + 0.1 * deviation * g.normal(outputs)
    variance = (deviation * np.exp(g.normal(outputs, std=0.1))) ** 2
    fields = {"weight": scale, "bias": shift, "running_mean": mean, "running_var": variance}
    with g.scope(bn):
        parameters = [g.weight(field, numbers) for field, numbers in fields.items()]
        name = g.op("BatchNormalization", name, *parameters, epsilon=EPSILON, momentum=0.9)
    factor = scale / np.sqrt(variance + EPSILON)
    return Traced(name, value * _per_channel(factor) + _per_channel(shift - mean * factor))


def classifier(g: GraphWriter, name: str, features: Traced, classes: int) -> str:
    """A linear layer on [batch, features] whose outputs differ by about one from image to image."""
    inputs = features.value.shape[1]
    weight = g.normal(classes, inputs, std=inputs**-0.5)
    logits = features.value @ weight.T
    weight /= logits.std(axis=0).mean() + 1e-3
    logits = features.value @ weight.T
    bias = g.normal(classes, std=0.3) - logits.mean(axis=0)
    with g.scope(name):
        return g.op(
            "Gemm", features.name, g.weight("weight", weight), g.weight("bias", bias), alpha=1.0, beta=1.0, transB=1
        )


def pooled(g: GraphWriter, name: str, x: Traced) -> Traced:
    """The mean over height and width, [batch, channels]."""
    with g.scope(name):
        means = g.op("GlobalAveragePool", x.name)
    return Traced(g.op("Flatten", means, axis=1), x.value.mean(axis=(2, 3)))


def _per_channel(numbers: np.ndarray) -> np.ndarray:
    return numbers[None, :, None, None]
