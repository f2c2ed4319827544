"""Input sets for the real models: data of the kind each was trained on, seeded.

Noise would leave most of these networks in one corner (a speech model says "no speech" to it), so images are smooth, audio is voiced
and text is text.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Shapes = dict[str, tuple[str, list[int]]]
Feeds = dict[str, np.ndarray]

_SENTENCE = "the quick brown fox jumps over lazy dogs"
# Ids of [CLS], the sentence above and [SEP] in BERT's uncased English vocabulary.
_SENTENCE_IDS = (101, 1996, 4248, 2829, 4419, 14523, 2058, 13971, 6077, 1012, 102)
# What OpenNSFW subtracts from pixels in the order blue, green, red.
_BGR_MEAN = np.array([104.0, 117.0, 123.0])


def waves(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Smooth images [batch, height, width, channels] of unit scale: six random waves each."""
    batch, height, width, channels = shape
    y, x = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[None, :, None]
    images = np.zeros(shape)
    for _ in range(6):
        fx, fy, phase = rng.uniform(-3, 3, (3, batch, 1, 1, channels))
        images += 0.6 * rng.normal(size=(batch, 1, 1, channels)) * np.sin(2 * np.pi * (fx * x + fy * y + phase))
    return images


def voice(rng: np.random.Generator, batch: int, samples: int, rate: int) -> np.ndarray:
    """Audio [batch, samples] like a voice: harmonics of a gliding pitch, swelling as syllables do, over a little noise."""
    time = np.arange(samples) / rate
    audio = 0.01 * rng.standard_normal((batch, samples))
    for row in audio:
        pitch = rng.uniform(90, 240) * (1 + 0.2 * np.sin(2 * np.pi * rng.uniform(1, 3) * time))
        phase = 2 * np.pi * np.cumsum(pitch) / rate
        syllables = np.clip(np.sin(2 * np.pi * rng.uniform(2, 5) * time + rng.uniform(0, 6)), 0, None)
        formant = rng.uniform(2, 8)
        for harmonic in range(1, 20):
            row += 0.2 * syllables * np.exp(-0.2 * abs(harmonic - formant)) * np.sin(harmonic * phase)
    return audio.astype(np.float32)


def strokes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Images [batch, channels, height, width] in -1..1 like a line of text: dark bars and rings on a light page."""
    batch, channels, height, width = shape
    page = np.full((batch, height, width), 0.9)
    y, x = np.mgrid[:height, :width]
    size = min(height, 48) * 0.6
    for image in page:
        for left in np.arange(6, width - size, size * 0.8):
            centre_x, centre_y = left + size / 2, height / 2
            if rng.random() < 0.5:
                radius = np.hypot((x - centre_x) * 1.4, y - centre_y)
                image[abs(radius - size * 0.4) < size * 0.09] = -0.8
            else:
                slant = centre_x + (y - centre_y) * rng.uniform(-0.4, 0.4)
                image[(abs(x - slant) < size * 0.09) & (abs(y - centre_y) < size / 2)] = -0.8
                bar = centre_y + rng.uniform(-0.4, 0.4) * size
                image[(abs(y - bar) < size * 0.08) & (abs(x - centre_x) < size * 0.35)] = -0.8
    return np.repeat(page[:, None], channels, axis=1).astype(np.float32)


def _face_crops(rng: np.random.Generator, shapes: Shapes) -> Feeds:
    # MTCNN scales pixels to (x - 127.5) / 128.
    return {name: np.clip(waves(rng, tuple(shape)), -0.996, 0.996) for name, (_, shape) in shapes.items()}


def _skin_tones(rng: np.random.Generator, shapes: Shapes) -> Feeds:
    ((name, (_, shape)),) = shapes.items()
    light = waves(rng, (*shape[:3], 1))
    pixels = np.array([125.0, 150.0, 205.0]) + 45 * light + 8 * waves(rng, tuple(shape))
    return {name: np.clip(pixels, 0, 255) - _BGR_MEAN}


def _audio(rng: np.random.Generator, shapes: Shapes) -> Feeds:
    feeds: Feeds = {}
    for name, (_, shape) in shapes.items():
        if name == "sr":
            feeds[name] = np.array(8000 if shapes["input"][1][1] == 288 else 16000)
        elif name == "waveforms_lens":
            # Every clip but the first is shorter than its row.
            samples = shapes["waveforms"][1][1]
            feeds[name] = np.array([samples - 997 * row for row in range(shape[0])])
        elif name in ("state", "h", "c"):
            feeds[name] = 0.1 * rng.standard_normal(shape)
        else:
            rows = int(np.prod(shape[:1]))
            rate = 22050 if len(shape) == 3 else 16000
            feeds[name] = voice(rng, rows, int(np.prod(shape[1:])), rate).reshape(shape)
    return feeds


def _spectrum(rng: np.random.Generator, shapes: Shapes) -> Feeds:
    feeds: Feeds = {}
    for name, (_, shape) in shapes.items():
        if name in ("h0", "rater_embed"):
            feeds[name] = 0.1 * rng.standard_normal(shape)
        else:
            field = waves(rng, (int(np.prod(shape[:-2])), *shape[-2:], 1)).reshape(shape)
            feeds[name] = field + 0.3 * rng.standard_normal(shape)
    return feeds


def _ramp(rng: np.random.Generator, shapes: Shapes) -> Feeds:
    return {
        name: (np.arange(np.prod(shape)) / np.prod(shape)).reshape(shape) * rng.uniform(0.5, 1.5)
        for name, (_, shape) in shapes.items()
    }


def _sentence(rng: np.random.Generator, shapes: Shapes) -> Feeds:
    batch, length = shapes["input_ids"][1]
    ids = np.tile(np.resize(_SENTENCE_IDS, length), (batch, 1))
    ids[:, 1:-2] = rng.permuted(ids[:, 1:-2], axis=1)
    visible = length - 3 * np.arange(batch)[:, None]
    mask = (np.arange(length) < visible).astype(np.int64)
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": np.zeros((batch, length), np.int64)}


def _text_image(rng: np.random.Generator, shapes: Shapes) -> Feeds:
    return {name: strokes(rng, tuple(shape)) for name, (_, shape) in shapes.items()}


def _file_bytes(rng: np.random.Generator, shapes: Shapes) -> Feeds:
    ((name, (_, (batch, length))),) = shapes.items()
    source = f"def function_{rng.integers(100)}(value):\n    return value * {rng.integers(100)}  # {_SENTENCE}\n\n\n"
    rows = np.tile(np.resize(np.frombuffer(source.encode(), np.uint8), length), (batch, 1))
    rows[1:] = rng.integers(0, 256, (batch - 1, length))
    return {name: rows}


# The beginning of a run's "inputs_how" says which of the makers it means.
MAKERS: dict[str, Callable[[np.random.Generator, Shapes], Feeds]] = {
    "smooth crops": _face_crops,
    "smooth image BGR": _skin_tones,
    "smooth image": _face_crops,
    "voiced": _audio,
    "random log": _spectrum,
    "random mel": _spectrum,
    "ramp": _ramp,
    "BERT wordpiece": _sentence,
    "rendered text": _text_image,
    "Python source": _file_bytes,
}


def make(inputs_how: str, shapes: Shapes, seed: int) -> Feeds:
    """Feeds of the described kind with exactly the given names, dtypes and shapes."""
    prefix = next((prefix for prefix in MAKERS if inputs_how.startswith(prefix)), None)
    if prefix is None:
        raise ValueError(f"no way to make inputs described as {inputs_how!r}")
    feeds = MAKERS[prefix](np.random.default_rng(seed), shapes)
    return {name: feeds[name].astype(dtype).reshape(shape) for name, (dtype, shape) in shapes.items()}
