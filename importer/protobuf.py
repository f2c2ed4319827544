"""Reading the ONNX protobuf: from a path, from bytes, or a `ModelProto` that the caller holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from ..plan.errors import InvalidModel

ModelLike = str | PathLike | bytes | onnx.ModelProto


@dataclass(frozen=True)
class Source:
    """A parsed model and where it came from.

    `folder` is where external data lies (None: the model did not come from a file), `sha256` identifies the model file;
    of a `ModelProto` it covers the nodes and each initializer, not one serialised file.
    """

    model: onnx.ModelProto
    folder: Path | None
    sha256: str
    name: str


def read(model: ModelLike) -> Source:
    """Parse `model` without loading external data. InvalidModel if it cannot be read or is no ONNX model."""
    if isinstance(model, onnx.ModelProto):
        source = Source(model, None, _digest(model), model.graph.name or "model")
    elif isinstance(model, bytes):
        proto, digest = _parse(model, "the given bytes")
        source = Source(proto, None, digest, proto.graph.name or "model")
    else:
        path = Path(model)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InvalidModel(f"cannot read the model file {path}: {error.strerror or error}") from error
        proto, digest = _parse(data, str(path))
        source = Source(proto, path.parent, digest, path.stem)
    _check_header(source)
    return source


def _parse(data: bytes, where: str) -> tuple[onnx.ModelProto, str]:
    """Return the model and the SHA-256 of its bytes, which is computed beside the parsing."""
    model = onnx.ModelProto()
    with ThreadPoolExecutor(1) as pool:
        digest = pool.submit(lambda: hashlib.sha256(data).hexdigest())
        try:
            model.ParseFromString(data)
        except DecodeError as error:
            raise InvalidModel(
                f"{where} is not an ONNX model: the protobuf is damaged or of another kind ({error}); re-export it"
            ) from error
        return model, digest.result()


def _check_header(source: Source) -> None:
    model = source.model
    if not model.HasField("graph"):
        raise InvalidModel(f"{source.name} is not an ONNX model: it holds no graph; re-export it")
    if not model.opset_import:
        raise InvalidModel(f"{source.name} does not say which opset it uses (opset_import is empty); re-export it")
    damaged = next((text for text in _texts(model) if not isinstance(text, str)), None)
    if damaged is not None:  # protobuf hands out bytes where the text is not UTF-8
        raise InvalidModel(f"{source.name} holds the name {damaged!r}, which is not UTF-8 text; the file is damaged")
    domains = [domain(entry.domain) for entry in model.opset_import]
    twice = sorted({name or "ai.onnx" for name in domains if domains.count(name) > 1})
    if twice:
        raise InvalidModel(f"{source.name} imports the opset of {', '.join(twice)} more than once; keep one")


def _texts(model: onnx.ModelProto) -> Iterator[str]:
    """Yield the names in a model: those of producers, opsets, functions, tensors, nodes and attributes."""
    yield from (model.producer_name, model.producer_version, *(entry.domain for entry in model.opset_import))
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output, *function.attribute)
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield graph.name
            yield from (info.name for info in (*graph.input, *graph.output, *graph.initializer))
            yield from (axis.dim_param for info in graph.input for axis in info.type.tensor_type.shape.dim)
            nodes.extend(graph.node)
            continue
        node = nodes.pop()
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
            graphs.extend(attribute.graphs)
            if attribute.HasField("g"):
                graphs.append(attribute.g)


def domain(name: str) -> str:
    """Return the domain's canonical name: the standard operators' is empty."""
    return "" if name == "ai.onnx" else name


def _digest(model: onnx.ModelProto) -> str:
    digest = hashlib.sha256()
    graph = model.graph
    for part in (*model.opset_import, *model.functions, *graph.input, *graph.output, *graph.node, *graph.initializer):
        digest.update(part.SerializeToString(deterministic=True))
    return digest.hexdigest()
