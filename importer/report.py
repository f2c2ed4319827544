"""Everything in a model that cannot be imported, found in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import onnx

from ..plan.errors import UnsupportedModel
from . import registry
from .attributes import value as attribute_value
from .order import needed_in_order, node_name
from .protobuf import domain as canonical_domain
from .tensors import STORAGE, TensorReader, element_type_name

_SHOWN_NAMES = 5


@dataclass
class Finding:
    """One kind of unsupported use, with the nodes or tensors where it occurs. `opset` is 0 for tensors."""

    domain: str
    op: str
    opset: int
    reason: str
    names: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shown = ", ".join(self.names[:_SHOWN_NAMES])
        more = f" and {len(self.names) - _SHOWN_NAMES} more" if len(self.names) > _SHOWN_NAMES else ""
        place = f"{self.domain or 'ai.onnx'}.{self.op}, opset {self.opset}" if self.opset else self.op
        return f"{place}: {self.reason} ({len(self.names)}×: {shown}{more})"


@dataclass
class Report:
    """What `check` found. `ok` says that nothing stands against importing the model."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    def add(self, domain: str, op: str, opset: int, reason: str, name: str) -> None:
        """Count one use; equal ones are put together."""
        for finding in self.findings:
            if (finding.domain, finding.op, finding.opset, finding.reason) == (domain, op, opset, reason):
                finding.names.append(name)
                return
        self.findings.append(Finding(domain, op, opset, reason, [name]))

    def raise_if_any(self) -> None:
        """Raise UnsupportedModel with the whole list if there is anything in it."""
        if self.findings:
            raise UnsupportedModel(str(self))

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {"ok": self.ok, "unsupported": [asdict(finding) for finding in self.findings]}

    def __str__(self) -> str:
        if self.ok:
            return "everything in this model is supported"
        lines = "\n".join(f"  {finding}" for finding in self.findings)
        return f"this model uses what is not supported:\n{lines}\nrewrite or re-export these nodes"


def examine(model: onnx.ModelProto) -> Report:
    """Look at every needed node and every tensor without importing anything.

    Nodes inside the branches of If are left out, since a constant condition may drop a branch.
    """
    report = Report()
    graph = model.graph
    functions = {(canonical_domain(f.domain), f.name, f.overload): f for f in model.functions}
    opsets = {canonical_domain(entry.domain): entry.version for entry in model.opset_import}
    constants = [t for t in graph.initializer] + [sparse.values for sparse in graph.sparse_initializer]
    available = {info.name for info in graph.input} | {tensor.name for tensor in constants}
    outputs = [info.name for info in graph.output]
    nodes = needed_in_order(graph.node, available, outputs, f"graph {graph.name!r}")
    _examine_nodes(report, nodes, opsets, functions, "", ())
    used = {name for _, node in nodes for name in node.input} | set(outputs)
    for tensor in constants:
        if tensor.name in used and tensor.data_type not in STORAGE:
            report.add("", "initializer", 0, f"element type {element_type_name(tensor.data_type)}", tensor.name)
    for info in graph.input:
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            report.add("", "input", 0, f"a {kind or 'value of unknown type'}, not a tensor", info.name)
        elif info.type.tensor_type.elem_type not in STORAGE:
            report.add("", "input", 0, f"element type {element_type_name(info.type.tensor_type.elem_type)}", info.name)
    return report


def _examine_nodes(
    report: Report,
    nodes: list[tuple[int, onnx.NodeProto]],
    opsets: Mapping[str, int],
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto],
    prefix: str,
    calls: tuple[tuple[str, str, str], ...],
) -> None:
    for number, node in nodes:
        name = prefix + node_name(node, number)
        domain = canonical_domain(node.domain)
        key = (domain, node.op_type, node.overload)
        function = functions.get(key)
        if function is None:
            _examine_operator(report, node, domain, opsets.get(domain, 0 if domain == "" else 1), name)
        elif key not in calls:
            inner = {**opsets, **{canonical_domain(entry.domain): entry.version for entry in function.opset_import}}
            _examine_nodes(report, list(enumerate(function.node)), inner, functions, f"{name}/", (*calls, key))


def _examine_operator(report: Report, node: onnx.NodeProto, domain: str, opset: int, name: str) -> None:
    try:
        operator = registry.find(domain, node.op_type, opset)
    except registry.Unknown as unknown:
        report.add(domain, node.op_type, opset, str(unknown), name)
        return
    _, _, allowed = registry.defaults(operator)
    for attribute in node.attribute:
        known = attribute.name in operator.attributes | operator.ignored
        if not known or (allowed is not None and attribute.name not in allowed):
            report.add(domain, node.op_type, opset, f"attribute {attribute.name!r}", name)
        elif attribute.name in operator.only and not attribute.ref_attr_name:
            found = attribute_value(attribute, TensorReader(None), name)
            if found not in operator.only[attribute.name]:
                report.add(domain, node.op_type, opset, f"attribute {attribute.name}={found!r}", name)
