"""Writing a model to disk, with the weights beside it where one protobuf file cannot hold them."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto

# Protobuf refuses messages of 2 GiB; the margin is for the graph itself.
_PROTOBUF_LIMIT = 2**31 - 2**24
_ALIGNMENT = 4096  # lets readers map each tensor
_INLINE_LIMIT = 1024


def save(model: onnx.ModelProto, path: str | Path, *, external: bool | None = None) -> Path:
    """Write ``model`` to ``path`` and return the path.

    ``external`` puts weights above 1 kB into ``<path>.data``; None does so only when the model exceeds protobuf's 2 GiB.
    The model given is left as it is.
    """
    path = Path(path)
    if external is None:
        external = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > _PROTOBUF_LIMIT
    if external:
        model = _move_weights(model, path.with_name(path.name + ".data"))
    path.write_bytes(model.SerializeToString())
    return path


def _move_weights(model: onnx.ModelProto, data: Path) -> onnx.ModelProto:
    """A model equal to the given one, except that its large weights stand in the file ``data``."""
    light = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _assign(light, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _assign(light.graph, field.name, value)
    with data.open("wb") as file:
        for tensor in model.graph.initializer:
            if len(tensor.raw_data) <= _INLINE_LIMIT:
                light.graph.initializer.append(tensor)
                continue
            file.write(bytes(-file.tell() % _ALIGNMENT))
            entry = light.graph.initializer.add(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=TensorProto.EXTERNAL
            )
            for key, value in (("location", data.name), ("offset", file.tell()), ("length", len(tensor.raw_data))):
                entry.external_data.add(key=key, value=str(value))
            file.write(tensor.raw_data)
    return light


def _assign(message: object, name: str, value: object) -> None:
    """Copy one protobuf field, which is set differently for scalars, messages and lists."""
    if hasattr(value, "CopyFrom"):
        getattr(message, name).CopyFrom(value)
    elif isinstance(value, (str, bytes, int, float)):
        setattr(message, name, value)
    else:
        getattr(message, name).extend(value)
