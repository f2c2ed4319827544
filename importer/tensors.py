"""Turning stored tensors into NumPy arrays: raw bytes, typed fields, sparse tensors and external files."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto

from ..plan.errors import InvalidModel, UnsupportedModel

# ONNX element type -> (NumPy dtype, the field that holds it when there are no raw bytes)
STORAGE: dict[int, tuple[np.dtype, str]] = {
    TensorProto.FLOAT: (np.dtype(np.float32), "float_data"),
    TensorProto.DOUBLE: (np.dtype(np.float64), "double_data"),
    TensorProto.FLOAT16: (np.dtype(np.float16), "int32_data"),
    TensorProto.BFLOAT16: (np.dtype(ml_dtypes.bfloat16), "int32_data"),
    TensorProto.INT64: (np.dtype(np.int64), "int64_data"),
    TensorProto.INT32: (np.dtype(np.int32), "int32_data"),
    TensorProto.INT16: (np.dtype(np.int16), "int32_data"),
    TensorProto.INT8: (np.dtype(np.int8), "int32_data"),
    TensorProto.UINT64: (np.dtype(np.uint64), "uint64_data"),
    TensorProto.UINT32: (np.dtype(np.uint32), "uint64_data"),
    TensorProto.UINT16: (np.dtype(np.uint16), "int32_data"),
    TensorProto.UINT8: (np.dtype(np.uint8), "int32_data"),
    TensorProto.BOOL: (np.dtype(np.bool_), "int32_data"),
    TensorProto.INT4: (np.dtype(ml_dtypes.int4), "int32_data"),
    TensorProto.UINT4: (np.dtype(ml_dtypes.uint4), "int32_data"),
}
NARROW = {np.dtype(ml_dtypes.int4): np.dtype(np.int8), np.dtype(ml_dtypes.uint4): np.dtype(np.uint8)}


def element_type_name(code: int) -> str:
    """Return ONNX's name of an element type, such as FLOAT16."""
    return TensorProto.DataType.Name(code) if code in TensorProto.DataType.values() else f"number {code}"


def numpy_dtype(code: int, what: str) -> np.dtype:
    """Return the NumPy dtype of an ONNX element type; UnsupportedModel, naming `what`, if kernels cannot hold it."""
    if code not in STORAGE:
        raise UnsupportedModel(
            f"{what} has element type {element_type_name(code)}; supported: "
            f"{', '.join(element_type_name(known) for known in STORAGE)}"
        )
    return STORAGE[code][0]


class TensorReader:
    """Reads the tensors of one model. `folder` is where its external data lies, None if there is no such place."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def array(self, tensor: TensorProto, raw: memoryview | None = None) -> np.ndarray:
        """Return the tensor's values. External data is mapped, not copied; the array may be read-only and unaligned.

        `raw` are its bytes where the tensor itself was parsed without them. Four-bit types come as `ml_dtypes.int4` or `uint4`. InvalidModel if bytes are missing or too many.
        """
        what = f"tensor {tensor.name!r}"
        dtype = numpy_dtype(tensor.data_type, what)
        shape = tuple(tensor.dims)
        if any(extent < 0 for extent in shape):
            raise InvalidModel(f"{what} has the negative extent in its shape {list(shape)}")
        if tensor.HasField("segment"):
            raise UnsupportedModel(f"{what} is stored in segments; store it whole")
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor, dtype, shape, what)
        if raw is not None:
            return _from_bytes(raw, dtype, shape, what)
        if tensor.HasField("raw_data"):
            return _from_bytes(tensor.raw_data, dtype, shape, what)
        return _from_field(tensor, dtype, shape, what)

    def sparse(self, sparse: onnx.SparseTensorProto) -> np.ndarray:
        """Return a sparse tensor written out in full."""
        values, indices = self.array(sparse.values), self.array(sparse.indices)
        shape = tuple(sparse.dims)
        what = f"sparse tensor {sparse.values.name!r}"
        dense = np.zeros(shape, values.dtype)
        flat = indices if indices.ndim == 1 else np.zeros(len(indices), np.int64)
        if indices.ndim == 2:
            if indices.shape[1] != len(shape):
                raise InvalidModel(f"{what}: each index needs {len(shape)} numbers, got {indices.shape[1]}")
            for axis, extent in enumerate(shape):
                flat = flat * extent + indices[:, axis]
        if len(flat) != values.size or np.any(flat < 0) or np.any(flat >= dense.size):
            raise InvalidModel(
                f"{what}: {len(flat)} indices for {values.size} values, or an index outside {list(shape)}"
            )
        dense.reshape(-1)[flat] = values.reshape(-1)
        return dense

    def _external(self, tensor: TensorProto, dtype: np.dtype, shape: tuple[int, ...], what: str) -> np.ndarray:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        path = self._contained(entries.get("location", ""), what)
        offset = _count(entries.get("offset", "0"), "offset", what)
        needed = _stored_bytes(dtype, math.prod(shape))
        length = _count(entries["length"], "length", what) if "length" in entries else needed
        if length != needed:
            raise InvalidModel(f"{what} of shape {list(shape)} needs {needed} bytes, its external data has {length}")
        size = path.stat().st_size
        if offset + length > size:
            raise InvalidModel(
                f"{what} lies at bytes {offset}..{offset + length} of {path.name}, which has only {size}; "
                "the file is truncated or belongs to another model"
            )
        if needed == 0:
            return np.zeros(shape, dtype)
        if dtype in NARROW:
            return _unpack(np.memmap(path, np.uint8, "r", offset, (needed,)), dtype, shape)
        return np.memmap(path, dtype.newbyteorder("<"), "r", offset, shape).view(np.ndarray)

    def _contained(self, location: str, what: str) -> Path:
        if not location:
            raise InvalidModel(f"{what} is stored outside the model, but no location is given")
        if self.folder is None:
            raise InvalidModel(
                f"{what} is stored in the external file {location!r}, which is looked for beside the model file; "
                "load the model from its path instead of from bytes or a ModelProto"
            )
        folder = self.folder.resolve()
        path = (folder / location).resolve()
        if Path(location).is_absolute() or not path.is_relative_to(folder):
            raise InvalidModel(
                f"{what}: its external file {location!r} lies outside the model's folder {folder}; "
                "put the file (not a link to elsewhere) beside the model"
            )
        if not path.is_file():
            raise InvalidModel(f"{what}: its external file {path} does not exist")
        return path


def _count(text: str, key: str, what: str) -> int:
    if not text.isdecimal():
        raise InvalidModel(f"{what}: the {key} {text!r} of its external data is not a number of bytes")
    return int(text)


def _stored_bytes(dtype: np.dtype, count: int) -> int:
    return (count + 1) // 2 if dtype in NARROW else count * dtype.itemsize


def _from_bytes(data: bytes | memoryview, dtype: np.dtype, shape: tuple[int, ...], what: str) -> np.ndarray:
    needed = _stored_bytes(dtype, math.prod(shape))
    if len(data) != needed:
        raise InvalidModel(f"{what} of shape {list(shape)} needs {needed} bytes, {len(data)} are stored")
    if dtype in NARROW:
        return _unpack(np.frombuffer(data, np.uint8), dtype, shape)
    return np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)


def _from_field(tensor: TensorProto, dtype: np.dtype, shape: tuple[int, ...], what: str) -> np.ndarray:
    stored = getattr(tensor, STORAGE[tensor.data_type][1])
    count = math.prod(shape)
    expected = _stored_bytes(dtype, count) if dtype in NARROW else count
    if len(stored) != expected:
        raise InvalidModel(f"{what} of shape {list(shape)} needs {expected} stored numbers, there are {len(stored)}")
    if dtype in NARROW:
        return _unpack(np.array(stored, np.int64).astype(np.uint8), dtype, shape)
    if tensor.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16):  # the field holds the bits
        return np.array(stored, np.int64).astype(np.uint16).view(dtype).reshape(shape)
    return np.array(stored, dtype).reshape(shape)


def _unpack(packed: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Two four-bit numbers a byte, the low half first."""
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)[: math.prod(shape)]
    if dtype == np.dtype(ml_dtypes.int4):
        nibbles = (nibbles ^ 8).astype(np.int8) - 8
    return nibbles.astype(dtype).reshape(shape)
