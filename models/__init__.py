"""Real architectures as ONNX files, at any size, from nothing but ``onnx.helper`` and NumPy.

Each module has ``Config`` (its size flags), ``build(**flags) -> onnx.ModelProto`` and ``sample_inputs``; weights are seeded.
The graphs are spelled as PyTorch's exporter spells them, because that is what people bring. Sizes are tiny unless asked otherwise,
and ``FULL`` holds the flags of the published size. ``save`` writes a model of any size, ``load_digits`` reads the trained one.

On the command line: ``python -m luminal_onnx.models bert -o bert.onnx --layers 12 --hidden 768 --heads 12 --seq 128``.
"""

from . import (
    bert,
    digits,
    dlrm,
    gpt2,
    llama,
    mobilenetv2,
    qwen3_moe,
    resnet50,
    unet,
    vae,
    vit,
    whisper_decoder,
    whisper_encoder,
)
from .digits import load_digits, load_digits_samples
from .inputs import sample_inputs
from .saving import save

BUILDERS = {
    "bert": bert, "digits": digits, "dlrm": dlrm, "gpt2": gpt2, "llama": llama, "mobilenetv2": mobilenetv2,
    "qwen3_moe": qwen3_moe, "resnet50": resnet50, "unet": unet, "vae": vae, "vit": vit,
    "whisper_decoder": whisper_decoder, "whisper_encoder": whisper_encoder,
}  # fmt: skip

__all__ = [
    "BUILDERS", "bert", "digits", "dlrm", "gpt2", "llama", "load_digits", "load_digits_samples", "mobilenetv2",
    "qwen3_moe", "resnet50", "sample_inputs", "save", "unet", "vae", "vit", "whisper_decoder", "whisper_encoder",
]  # fmt: skip
