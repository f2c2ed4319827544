"""What is said about a model after reading it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import onnx

from .protobuf import Source, domain

_PRODUCER_UNKNOWN = "unknown"


@dataclass
class Summary:
    """Facts about the model file, and what became of its dims.

    `operators` counts operators by name, subgraphs and functions included. `dims` maps the symbols that are left to the
    model's spelling, `unbounded` has those whose range the caller left open, `splits` tells where the range was split.
    """

    name: str
    ir_version: int
    producer: str
    opset: int
    opsets: dict[str, int]
    nodes: int
    operators: dict[str, int]
    weight_bytes: int
    sha256: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    dims: dict[str, str] = field(default_factory=dict)
    unbounded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return asdict(self)


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of the model: those of subgraphs and local functions too."""
    waiting = [model.graph.node, *(function.node for function in model.functions)]
    while waiting:
        for node in waiting.pop():
            yield node
            for attribute in node.attribute:
                waiting.extend(graph.node for graph in attribute.graphs)
                if attribute.HasField("g"):
                    waiting.append(attribute.g.node)


def summarize(source: Source) -> Summary:
    """Return what can be said before importing; inputs, outputs, dims and the digest are filled in afterwards."""
    model = source.model
    opsets = {domain(entry.domain) or "ai.onnx": entry.version for entry in model.opset_import}
    names = Counter(_operator_name(node) for node in all_nodes(model))
    producer = " ".join(part for part in (model.producer_name, model.producer_version) if part)
    summary = Summary(
        name=source.name,
        ir_version=model.ir_version,
        producer=producer or _PRODUCER_UNKNOWN,
        opset=opsets.get("ai.onnx", 0),
        opsets=opsets,
        nodes=sum(names.values()),
        operators=dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))),
        weight_bytes=0,
    )
    if model.ir_version > onnx.IR_VERSION:
        summary.warnings.append(
            f"the model's IR version {model.ir_version} is newer than the installed onnx package knows "
            f"({onnx.IR_VERSION})"
        )
    return summary


def _operator_name(node: onnx.NodeProto) -> str:
    name = domain(node.domain)
    return f"{name}.{node.op_type}" if name else node.op_type
