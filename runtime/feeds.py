"""Check what a caller feeds against a model's signature, in the words that ONNX Runtime's users know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..plan.dtypes import from_numpy
from ..plan.errors import InvalidInput
from ..plan.signature import InputPort


def check_feeds(ports: Sequence[InputPort], feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """Return one C-contiguous array of native byte order for each port; shapes are checked for their rank only.

    Anything that `np.asarray` or DLPack turns into an array is taken. Raises InvalidInput for unknown or missing names,
    wrong element types and wrong ranks.
    """
    if not isinstance(feeds, Mapping):
        raise InvalidInput(f"feeds must map input names to arrays, got {type(feeds).__name__}")
    names = [port.name for port in ports]
    for name in feeds:
        if name not in names:
            raise InvalidInput(f"Invalid input name: {name}; the model's inputs are {', '.join(names) or 'none'}")
    missing = [name for name in names if name not in feeds]
    if missing:
        raise InvalidInput(f"Required inputs ({missing}) are missing from input feed ({list(feeds)}).")
    return [_check_feed(port, feeds[port.name]) for port in ports]


def _check_feed(port: InputPort, value: Any) -> np.ndarray:
    array = _as_array(port.name, value)
    expected = f"tensor({port.dtype.onnx_name})"
    native = array.dtype.newbyteorder("=")
    try:
        actual = from_numpy(native)
    except KeyError:
        raise InvalidInput(
            f"Unexpected input data type for input: {port.name}. Actual: ({array.dtype}) , expected: ({expected})"
        ) from None
    if actual is not port.dtype:
        raise InvalidInput(
            f"Unexpected input data type for input: {port.name}. Actual: (tensor({actual.onnx_name})) , "
            f"expected: ({expected})"
        )
    if array.ndim != len(port.shape):
        raise InvalidInput(
            f"Invalid rank for input: {port.name} Got: {array.ndim} Expected: {len(port.shape)} "
            f"Please fix either the inputs/outputs or the model."
        )
    contiguous = np.require(array, native, "C")
    return contiguous if contiguous.ndim == array.ndim else contiguous.reshape(array.shape)


def _as_array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if value is None:
        raise InvalidInput(f"input {name!r} is None; feed an array")
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise InvalidInput(
            f"input {name!r} of type {type(value).__name__} cannot be read as an array ({error}); "
            "feed a NumPy array or a tensor in host memory"
        ) from error
