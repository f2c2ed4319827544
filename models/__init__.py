"""Real architectures as ONNX files, at any size, from nothing but ``onnx.helper`` and NumPy.

Each module has ``Config`` (its size flags), ``build(**flags) -> onnx.ModelProto`` and ``sample_inputs``; weights are seeded.
The graphs are spelled as PyTorch's exporter spells them, because that is what people bring. Sizes are tiny unless asked otherwise,
and ``FULL`` holds the flags of the published size. ``save`` writes a model of any size, ``load_digits`` reads the trained one.

On the command line: ``python -m luminal_onnx.models bert -o bert.onnx --layers 12 --hidden 768 --heads 12 --seq 128``.
"""

from . import bert, digits, llama, resnet50
from .digits import load_digits, load_digits_samples
from .inputs import sample_inputs
from .saving import save

BUILDERS = {"bert": bert, "digits": digits, "llama": llama, "resnet50": resnet50}

__all__ = [
    "BUILDERS", "bert", "digits", "llama", "load_digits", "load_digits_samples", "resnet50", "sample_inputs", "save",
]  # fmt: skip
