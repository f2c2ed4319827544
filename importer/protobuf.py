"""Reading the ONNX protobuf: from a path, from bytes, or a `ModelProto` that the caller holds."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from ..plan.errors import InvalidInput, InvalidModel
from .raw_data import without_large_weights

ModelLike = str | PathLike | bytes | onnx.ModelProto


@dataclass(frozen=True)
class Source:
    """A parsed model and where it came from.

    `folder` is where external data lies (None: the model did not come from a file). `weights` are the raw bytes of large
    initializers of the main graph, which `model` leaves empty.
    """

    model: onnx.ModelProto
    folder: Path | None
    name: str
    digest: Future[str]
    weights: Mapping[str, memoryview] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Identify the model file; of a `ModelProto` it covers the nodes and each initializer, not one serialised file.

        It is computed beside the import, and waited for here.
        """
        return self.digest.result()


def read(model: ModelLike) -> Source:
    """Parse `model` without loading external data. InvalidModel if it cannot be read or is no ONNX model.

    InvalidInput if `model` is none of the three kinds.
    A file is mapped, not copied: it must not be changed while its weights are in use.
    """
    if isinstance(model, onnx.ModelProto):
        source = Source(model, None, model.graph.name or "model", _beside(lambda: _digest(model)))
    elif not isinstance(model, (str, PathLike, bytes)):
        raise InvalidInput(f"a model is a path, the bytes of a file or an onnx.ModelProto, not {type(model).__name__}")
    elif isinstance(model, bytes):
        source = _parsed(memoryview(model), "the given bytes", None, "")
    else:
        path = Path(model)
        try:
            with path.open("rb") as file:
                empty = os.fstat(file.fileno()).st_size == 0
                data = memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as error:
            raise InvalidModel(f"cannot read the model file {path}: {error.strerror or error}") from error
        source = _parsed(data, str(path), path.parent, path.stem)
    _check_header(source)
    return source


def _parsed(data: memoryview, where: str, folder: Path | None, name: str) -> Source:
    digest = _beside(lambda: hashlib.sha256(data).hexdigest())
    light, weights = without_large_weights(data)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(light)
    except DecodeError as error:
        raise InvalidModel(
            f"{where} is not an ONNX model: the protobuf is damaged or of another kind ({error}); re-export it"
        ) from error
    return Source(model, folder, name or model.graph.name or "model", digest, weights)


def _beside(work: Callable[[], str]) -> Future[str]:
    """Start some work on a thread of its own."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future


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
