"""The operators, one file per family. Each is a function of the builder, the inputs and the attributes.

A function returns what ONNX says of the operator that it is registered for; a docstring tells what is not obvious from
that. Inputs come in the schema's order, None where one is left out, attributes by their ONNX names.
"""

from functools import cache
from importlib import import_module

FAMILIES = (
    "attention",
    "comparison",
    "contrib",
    "control",
    "convolution",
    "creation",
    "detection",
    "elementwise",
    "fourier",
    "indexing",
    "linear_algebra",
    "movement",
    "normalization",
    "padding",
    "pooling",
    "quantization",
    "quantized_layers",
    "recurrent",
    "reduction",
    "resizing",
    "sampling",
    "softmax",
    "sorting",
    "unique",
)


@cache
def load_all() -> None:
    """Import every family, so that its operators are registered. Importing again does nothing."""
    for family in FAMILIES:
        import_module(f".{family}", __name__)
