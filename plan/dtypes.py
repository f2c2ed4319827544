"""Element types: one record each, with its NumPy dtype, C type and ONNX name."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type.

    `name` is NumPy's name, `kind` is one of f(loat) i(nt) u(nsigned) b(ool), `c_type` the type that kernels store,
    `onnx_name` the word inside `tensor(...)` as ONNX Runtime prints it.
    """

    name: str
    bits: int
    kind: str
    c_type: str
    onnx_name: str

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype, `ml_dtypes` ones included."""
        return _NUMPY[self.name]

    @property
    def size(self) -> int:
        """Bytes an element takes in memory."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def compute(self) -> DType:
        """The type that holds a value of this type in a register: 16-bit floats are computed in float32."""
        return float32 if self.is_float and self.bits < 32 else self

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{self.name}>"


float64 = DType("float64", 64, "f", "double", "double")
float32 = DType("float32", 32, "f", "float", "float")
float16 = DType("float16", 16, "f", "half", "float16")
bfloat16 = DType("bfloat16", 16, "f", "bf16", "bfloat16")
int64 = DType("int64", 64, "i", "int64_t", "int64")
int32 = DType("int32", 32, "i", "int32_t", "int32")
int16 = DType("int16", 16, "i", "int16_t", "int16")
int8 = DType("int8", 8, "i", "int8_t", "int8")
uint64 = DType("uint64", 64, "u", "uint64_t", "uint64")
uint32 = DType("uint32", 32, "u", "uint32_t", "uint32")
uint16 = DType("uint16", 16, "u", "uint16_t", "uint16")
uint8 = DType("uint8", 8, "u", "uint8_t", "uint8")
bool_ = DType("bool", 8, "b", "bool", "bool")

ALL = (float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool_)
BY_NAME = {dtype.name: dtype for dtype in ALL}
_NUMPY = {dtype.name: np.dtype(ml_dtypes.bfloat16 if dtype is bfloat16 else dtype.name) for dtype in ALL}
_BY_NUMPY = {numpy_dtype: BY_NAME[name] for name, numpy_dtype in _NUMPY.items()}


def from_numpy(dtype: np.dtype | type) -> DType:
    """Return the DType of a NumPy dtype; KeyError if kernels cannot hold it (complex, strings, objects)."""
    return _BY_NUMPY[np.dtype(dtype)]
