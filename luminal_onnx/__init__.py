"""luminal-onnx: compile an ONNX model into one file of CUDA kernels, and run that file.

    import luminal_onnx
    luminal_onnx.compile("model.onnx", dims={"batch": (1, 8, 32)}).save("model.luminal")
    session = luminal_onnx.InferenceSession("model.luminal")
    outputs = session.run(None, {"x": x})

Names are loaded when first used, so that running an artifact imports nothing of the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from luminal_onnx.extras import needs_compile_extra

__version__ = "0.1.0"
__all__ = ["Artifact", "InferenceSession", "check", "compile", "verify"]

if TYPE_CHECKING:
    from luminal_onnx.importer import check
    from luminal_onnx.pipeline import compile
    from luminal_onnx.runtime.artifact import Artifact
    from luminal_onnx.runtime.session import InferenceSession
    from luminal_onnx.verification import verify

_HOME = {
    "Artifact": "luminal_onnx.runtime.artifact",
    "InferenceSession": "luminal_onnx.runtime.session",
    "check": "luminal_onnx.importer",
    "compile": "luminal_onnx.pipeline",
    "verify": "luminal_onnx.verification",
}


def __getattr__(name: str):
    if name in _HOME:
        with needs_compile_extra(f"luminal_onnx.{name}"):
            return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'luminal_onnx' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
