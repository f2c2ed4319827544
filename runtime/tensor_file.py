"""The weights file: safetensors, laid out so that its tensors can be used where they lie in a mapped file.

The package safetensors opens whole files only, by their path; here the tensors stand inside a zip.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..plan.dtypes import BY_NAME, DType, from_numpy
from ..plan.errors import InvalidArtifact, UnsupportedModel

ALIGNMENT = 64  # of the first tensor in the file that holds it all, and of every tensor that takes a multiple of this

_CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_DTYPES = {code: BY_NAME[name] for name, code in _CODES.items()}


def write_order(tensors: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names in the order in which they are stored.

    Tensors that keep the alignment of the next one come first, then the rest by falling element size: the format allows
    no gaps, and so each tensor lies on a multiple of its element size and all but a few small ones on 64 bytes.
    """
    return sorted(tensors, key=lambda name: (tensors[name].nbytes % ALIGNMENT != 0, -tensors[name].itemsize, name))


def header_bytes(tensors: Mapping[str, np.ndarray], position: int) -> bytes:
    """Return length and header, padded so that the tensors that follow are aligned if the header begins at `position`."""
    entries: dict[str, Any] = {}
    offset = 0
    for name in write_order(tensors):
        tensor = tensors[name]
        code = _CODES[_dtype(name, tensor).name]
        entries[name] = {
            "dtype": code,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    padding = -(position + 8 + len(text)) % ALIGNMENT
    text += b" " * padding
    return len(text).to_bytes(8, "little") + text


def tensor_bytes(tensor: np.ndarray) -> memoryview:
    """Return the elements of a tensor in C order, without a copy if they lie that way already."""
    native = np.ascontiguousarray(tensor, dtype=tensor.dtype.newbyteorder("="))
    return memoryview(native.reshape(-1).view(np.uint8))


def _dtype(name: str, tensor: np.ndarray) -> DType:
    try:
        return from_numpy(tensor.dtype.newbyteorder("="))
    except KeyError:
        raise UnsupportedModel(f"weight {name!r} has dtype {tensor.dtype}, which no kernel can hold") from None


class Weights(Mapping[str, np.ndarray]):
    """The tensors of a weights file by name, read-only views into its bytes."""

    def __init__(self, data: memoryview, where: str) -> None:
        self._where = where
        if len(data) < 8:
            raise self._damaged(f"expected a header, got {len(data)} bytes")
        length = int.from_bytes(data[:8], "little")
        if length > len(data) - 8:
            raise self._damaged(f"expected a header of {length} bytes, got {len(data) - 8}")
        try:
            entries = json.loads(bytes(data[8 : 8 + length]))
            self._entries = {name: _entry(entry) for name, entry in entries.items() if name != "__metadata__"}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(f"its header cannot be read ({error})") from error
        self._data = np.frombuffer(data, np.uint8)[8 + length :]
        self._data.flags.writeable = False
        for name, (dtype, shape, begin, end) in self._entries.items():
            size = dtype.size * int(np.prod(shape, dtype=object))
            if not 0 <= begin <= end <= self._data.size or end - begin != size:
                raise self._damaged(
                    f"tensor {name!r} of {dtype}{list(shape)} takes {size} bytes, its place is {begin}..{end} of "
                    f"{self._data.size}"
                )

    def _damaged(self, problem: str) -> InvalidArtifact:
        return InvalidArtifact(f"{self._where}: {problem}; compile the model again")

    def __getitem__(self, name: str) -> np.ndarray:
        dtype, shape, begin, end = self._entries[name]
        return self._data[begin:end].view(dtype.numpy).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(end - begin for _, _, begin, end in self._entries.values())


def _entry(entry: Mapping[str, Any]) -> tuple[DType, tuple[int, ...], int, int]:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not all(type(value) is int and value >= 0 for value in (begin, end, *shape)):
        raise ValueError(f"sizes {shape} at {begin}..{end} are not whole numbers")
    return _DTYPES[entry["dtype"]], shape, begin, end
