"""Train the digits network: ``python models/digits_train.py`` rewrites ``digits.onnx`` and ``digits_samples.npz``.

Training needs NumPy and scikit-learn (for the data); the last step, writing the model, needs the package itself.
One run takes some 15 seconds on one core and is the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 0
HELD_OUT = 0.2
EPOCHS = 100
BATCH = 32
LEARNING_RATE = 2e-3
STATISTICS_DECAY = 0.95
EPSILON = 1e-5
SAMPLES = 32

Weights = dict[str, np.ndarray]


def main() -> None:
    """Train, report the accuracy on the held-out images, write both files."""
    from luminal_onnx.models import digits, save

    data = load_digits()
    images = data.images[:, None].astype(np.float32)
    labels = data.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    rng = np.random.default_rng(SEED)
    weights = train(digits.random_weights(rng), train_x / 16, train_y, rng)
    accuracy = float((predict(weights, test_x / 16).argmax(axis=1) == test_y).mean())
    print(f"held-out accuracy {accuracy:.4f} over {len(test_y)} images")

    model = digits.build(
        weights={name: array.astype(np.float32) for name, array in weights.items()},
        metadata={
            "dataset": "scikit-learn digits (UCI optical recognition of handwritten digits, test set)",
            "accuracy": f"{accuracy:.4f}",
            "split": f"stratified, {len(train_y)} trained on, {len(test_y)} held out",
            "seed": SEED,
            "epochs": EPOCHS,
        },
    )
    here = Path(__file__).parent
    save(model, here / "digits.onnx")
    np.savez_compressed(here / "digits_samples.npz", images=test_x[:SAMPLES], labels=test_y[:SAMPLES])


def train(weights: Weights, images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> Weights:
    """Adam on the cross entropy, the learning rate falling to zero as a cosine; images are shifted by up to one pixel."""
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    trained = [name for name in weights if "running" not in name]
    first = {name: np.zeros_like(weights[name]) for name in trained}
    second = {name: np.zeros_like(weights[name]) for name in trained}
    steps = EPOCHS * (len(images) // BATCH)
    for step, (x, y) in enumerate(batches(images, labels, rng), start=1):
        gradients = backward(weights, x, y)
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
        for name in trained:
            first[name] += 0.1 * (gradients[name] - first[name])
            second[name] += 0.001 * (gradients[name] ** 2 - second[name])
            moment = first[name] / (1 - 0.9**step)
            weights[name] -= rate * moment / (np.sqrt(second[name] / (1 - 0.999**step)) + 1e-8)
    return weights


def batches(
    images: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Shuffled batches over all epochs, each image moved by -1, 0 or 1 pixels along both axes."""
    for _ in range(EPOCHS):
        order = rng.permutation(len(images))[: len(images) // BATCH * BATCH]
        for chosen in order.reshape(-1, BATCH):
            padded = np.pad(images[chosen], ((0, 0), (0, 0), (1, 1), (1, 1)))
            moves = rng.integers(0, 3, (BATCH, 2))
            moved = [image[:, down : down + 8, right : right + 8] for image, (down, right) in zip(padded, moves)]
            yield np.stack(moved), labels[chosen]


def predict(weights: Weights, images: np.ndarray) -> np.ndarray:
    """Logits with the running statistics, as the exported model computes them."""
    scale = weights["bn1.weight"] / np.sqrt(weights["bn1.running_var"] + EPSILON)
    shift = weights["bn1.bias"] - weights["bn1.running_mean"] * scale
    conv1 = columns(images) @ flat(weights["conv1.weight"]).T
    pool1, _ = max_pool(np.maximum(conv1 * scale + shift, 0))
    conv2 = columns(channels_first(pool1)) @ flat(weights["conv2.weight"]).T + weights["conv2.bias"]
    pool2, _ = max_pool(np.maximum(conv2, 0))
    hidden = np.maximum(flat(channels_first(pool2)) @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    return hidden @ weights["fc2.weight"].T + weights["fc2.bias"]


def backward(weights: Weights, images: np.ndarray, labels: np.ndarray) -> Weights:
    """Gradients of the mean cross entropy; moves the running statistics of ``weights`` towards those of the batch."""
    count = len(images)
    patches1 = columns(images)
    conv1 = patches1 @ flat(weights["conv1.weight"]).T
    mean, variance = conv1.mean(axis=(0, 1, 2)), conv1.var(axis=(0, 1, 2))
    for name, value in (("running_mean", mean), ("running_var", variance)):
        weights[f"bn1.{name}"] += (1 - STATISTICS_DECAY) * (value - weights[f"bn1.{name}"])
    deviation = np.sqrt(variance + EPSILON)
    normed = (conv1 - mean) / deviation
    bn1 = normed * weights["bn1.weight"] + weights["bn1.bias"]
    pool1, winners1 = max_pool(np.maximum(bn1, 0))
    patches2 = columns(channels_first(pool1))
    conv2 = patches2 @ flat(weights["conv2.weight"]).T + weights["conv2.bias"]
    pool2, winners2 = max_pool(np.maximum(conv2, 0))
    features = flat(channels_first(pool2))
    hidden = np.maximum(features @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    logits = hidden @ weights["fc2.weight"].T + weights["fc2.bias"]

    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    d_logits = (probabilities - np.eye(10, dtype=np.float32)[labels]) / count
    gradients = {"fc2.weight": d_logits.T @ hidden, "fc2.bias": d_logits.sum(axis=0)}
    d_hidden = (d_logits @ weights["fc2.weight"]) * (hidden > 0)
    gradients |= {"fc1.weight": d_hidden.T @ features, "fc1.bias": d_hidden.sum(axis=0)}
    d_pool2 = (d_hidden @ weights["fc1.weight"]).reshape(channels_first(pool2).shape).transpose(0, 2, 3, 1)
    d_conv2 = unpool(d_pool2, winners2) * (conv2 > 0)
    gradients["conv2.weight"] = np.tensordot(d_conv2, patches2, axes=((0, 1, 2), (0, 1, 2))).reshape(
        weights["conv2.weight"].shape
    )
    gradients["conv2.bias"] = d_conv2.sum(axis=(0, 1, 2))
    d_pool1 = transposed_conv(d_conv2, weights["conv2.weight"])
    d_bn1 = unpool(d_pool1, winners1) * (bn1 > 0)
    gradients |= {"bn1.weight": (d_bn1 * normed).sum(axis=(0, 1, 2)), "bn1.bias": d_bn1.sum(axis=(0, 1, 2))}
    d_normed = d_bn1 * weights["bn1.weight"]
    d_conv1 = d_normed - d_normed.mean(axis=(0, 1, 2)) - normed * (d_normed * normed).mean(axis=(0, 1, 2))
    d_conv1 /= deviation
    gradients["conv1.weight"] = np.tensordot(d_conv1, patches1, axes=((0, 1, 2), (0, 1, 2))).reshape(
        weights["conv1.weight"].shape
    )
    return gradients


# Activations are [batch, height, width, channels] here, so that a convolution is one matrix product of 3x3 patches.


def columns(images: np.ndarray) -> np.ndarray:
    """3x3 patches of [batch, channels, height, width] with a border of zeros: [batch, height, width, channels * 9]."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    batch, channels, height, width = images.shape
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(batch, height, width, channels * 9)


def transposed_conv(gradient: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Gradient of a padded 3x3 convolution by its input: the same convolution with the kernel turned around."""
    turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    return columns(channels_first(gradient)) @ flat(turned).T


def max_pool(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """2x2 pooling and, for the way back, which of the four won."""
    batch, height, width, channels = x.shape
    blocks = x.reshape(batch, height // 2, 2, width // 2, 2, channels).transpose(0, 1, 3, 5, 2, 4)
    blocks = blocks.reshape(batch, height // 2, width // 2, channels, 4)
    return blocks.max(axis=-1), blocks.argmax(axis=-1)


def unpool(gradient: np.ndarray, winners: np.ndarray) -> np.ndarray:
    """Gradient of ``max_pool`` by its input."""
    batch, height, width, channels = gradient.shape
    blocks = gradient[..., None] * (winners[..., None] == np.arange(4))
    blocks = blocks.reshape(batch, height, width, channels, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(batch, 2 * height, 2 * width, channels)


def channels_first(x: np.ndarray) -> np.ndarray:
    """[batch, height, width, channels] to [batch, channels, height, width]."""
    return x.transpose(0, 3, 1, 2)


def flat(x: np.ndarray) -> np.ndarray:
    """All axes but the first in one."""
    return x.reshape(len(x), -1)


if __name__ == "__main__":
    main()
