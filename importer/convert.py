"""From ONNX graphs to ours: walks the nodes, inlines functions and branches, and calls the operator functions."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import onnx

from ..ir.graph import Value
from ..ir.primitives import make_node
from ..plan.dims import Dim
from ..plan.dtypes import from_numpy
from ..plan.errors import InvalidModel, LuminalError, UnsupportedModel
from . import attributes, registry
from .context import NodeBuilder, NodeContext
from .order import needed_in_order, node_name
from .protobuf import domain as canonical_domain
from .tensors import NARROW, TensorReader, numpy_dtype

MOST_NESTED_CALLS = 64
NO_WEIGHTS: Mapping[str, memoryview] = {}


class Lazy(Mapping):
    """Initializers by name, each read from the model only when a node asks for it.

    `raw` are the bytes of those that were parsed without them.
    """

    def __init__(
        self, graph: onnx.GraphProto, reader: TensorReader, builder: NodeBuilder, raw: Mapping[str, memoryview]
    ) -> None:
        self._raw = raw
        self._dense = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {sparse.values.name: sparse for sparse in graph.sparse_initializer}
        self._reader = reader
        self._builder = builder
        self._read: dict[str, Value] = {}
        names = [tensor.name for tensor in graph.initializer] + list(self._sparse)
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise InvalidModel(f"graph {graph.name!r} has two initializers called {twice!r}")

    def __getitem__(self, name: str) -> Value:
        if name not in self._read:
            if name in self._dense:
                array = self._reader.array(self._dense[name], self._raw.get(name))
            else:
                array = self._reader.sparse(self._sparse[name])
            self._builder.origin = (name,)
            self._read[name] = constant(self._builder, array)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._dense or name in self._sparse

    def __iter__(self) -> Iterator[str]:
        yield from self._dense
        yield from self._sparse

    def __len__(self) -> int:
        return len(self._dense) + len(self._sparse)


def constant(b: NodeBuilder, array: np.ndarray) -> Value:
    """Return a constant; a four-bit array is held in bytes, and `narrow` remembers its range."""
    if array.dtype in NARROW:
        wide = NARROW[array.dtype]
        value = Value(make_node("constant", (), {"data": array.astype(wide)}, None, b.origin))  # not to be shared
        b.narrow[value] = (-8, 7) if wide == np.int8 else (0, 15)
        return value
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return b.constant(array)


class Converter:
    """Imports one model into one builder."""

    def __init__(self, model: onnx.ModelProto, builder: NodeBuilder, reader: TensorReader) -> None:
        self.builder = builder
        self.reader = reader
        self.functions = {(canonical_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self.opsets = _opsets(model.opset_import)
        self._depth = 0

    def graph(
        self,
        graph: onnx.GraphProto,
        given: Mapping[str, Value],
        opsets: Mapping[str, int],
        prefix: str,
        bound: Mapping,
        raw: Mapping[str, memoryview] = NO_WEIGHTS,
    ) -> list[Value]:
        """Import a graph's needed nodes and return the values of its outputs. `given` has what exists already."""
        scope: MutableMapping[str, Value] = ChainMap({}, Lazy(graph, self.reader, self.builder, raw), given)
        outputs = [info.name for info in graph.output]
        self._nodes(graph.node, scope, outputs, opsets, prefix, bound, f"graph {graph.name!r}")
        return [scope[name] for name in outputs]

    def _nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        scope: MutableMapping[str, Value],
        outputs: Sequence[str],
        opsets: Mapping[str, int],
        prefix: str,
        bound: Mapping[str, Any],
        where: str,
    ) -> None:
        for number, node in needed_in_order(nodes, scope, outputs, where):
            results = self._node(node, prefix + node_name(node, number), scope, opsets, bound)
            for name, value in zip(node.output, results, strict=False):
                if name and value is not None:
                    scope[name] = value

    def _node(
        self,
        node: onnx.NodeProto,
        name: str,
        scope: Mapping[str, Value],
        opsets: Mapping[str, int],
        bound: Mapping[str, Any],
    ) -> Sequence[Value | None]:
        domain = canonical_domain(node.domain)
        inputs = []
        for tensor in node.input:
            if tensor and tensor not in scope:
                raise UnsupportedModel(
                    f"node {name!r} reads {tensor!r}, an output that its operator does not compute when imported"
                )
            inputs.append(scope[tensor] if tensor else None)
        while inputs and inputs[-1] is None:
            inputs.pop()
        given = attributes.values(node, self.reader, bound, f"node {name!r}")
        function = self.functions.get((domain, node.op_type, node.overload))
        if function is not None:
            return self._call(function, name, inputs, given)
        context = NodeContext(name, domain, node.op_type, opset_of(domain, opsets, name), tuple(node.output))
        b = self.builder
        b.node, b.origin = context, (name,)
        b.import_subgraph = lambda graph, given: self._subgraph(graph, given, scope, opsets, f"{name}/", bound)
        results = call_operator(b, inputs, given)
        b.node, b.origin = context, (name,)
        return [value if value is None else b.settled(value) for value in results]

    def _subgraph(
        self,
        graph: onnx.GraphProto,
        given: Sequence[Value],
        scope: Mapping[str, Value],
        opsets: Mapping[str, int],
        prefix: str,
        bound: Mapping[str, Any],
    ) -> tuple[Value, ...]:
        """Import a subgraph of the node at hand with these inputs; it sees the tensors around it too."""
        if len(given) != len(graph.input):
            self.builder.invalid(f"its subgraph {graph.name!r} has {len(graph.input)} inputs, not {len(given)}")
        own = {info.name: value for info, value in zip(graph.input, given, strict=True)}
        return tuple(self.graph(graph, ChainMap(own, scope), opsets, prefix, bound))

    def _call(
        self, function: onnx.FunctionProto, name: str, inputs: Sequence[Value | None], given: Mapping[str, Any]
    ) -> list[Value | None]:
        """Inline a local function: its body is imported with the caller's values and attributes in place of its own."""
        if self._depth >= MOST_NESTED_CALLS:
            raise InvalidModel(f"node {name!r}: the function {function.name!r} calls itself, or calls nest too deeply")
        if len(inputs) > len(function.input):
            raise InvalidModel(
                f"node {name!r} gives {len(inputs)} inputs to the function {function.name!r}, "
                f"which has {len(function.input)}"
            )
        defaults = {
            a.name: attributes.value(a, self.reader, f"function {function.name!r}") for a in function.attribute_proto
        }
        scope: dict[str, Value] = {}
        omitted = set()
        for number, formal in enumerate(function.input):
            if number < len(inputs) and inputs[number] is not None:
                scope[formal] = inputs[number]
            else:
                omitted.add(formal)
        body = [_without_inputs(node, omitted) for node in function.node] if omitted else list(function.node)
        self._depth += 1
        opsets = {**self.opsets, **_opsets(function.opset_import)}
        bound = {**defaults, **given}
        self._nodes(body, scope, list(function.output), opsets, f"{name}/", bound, f"function {function.name!r}")
        self._depth -= 1
        return [scope[output] for output in function.output]


def call_operator(b: NodeBuilder, inputs: Sequence[Value | None], given: Mapping[str, Any]) -> Sequence[Value | None]:
    """Call the function of `b.node`'s operator, with the schema's defaults for attributes that the node leaves out."""
    node = b.node
    try:
        operator = registry.find(node.domain, node.op, node.opset)
    except registry.Unknown as unknown:
        b.fail(str(unknown))
    defaults, required, allowed = registry.defaults(operator)
    missing = sorted(required - set(given))
    if missing:
        b.invalid(f"the required attribute {missing[0]!r} is missing")
    for name in given:
        if (allowed is not None and name not in allowed) or (name not in operator.attributes | operator.ignored):
            b.fail(f"the attribute {name!r} is not supported")
        wanted = registry.wrong_type(operator, name, given[name])
        if wanted is not None:
            b.invalid(f"the attribute {name!r} must be of type {wanted}, not {type(given[name]).__name__}")
    arguments = {**defaults, **given}
    for name, supported in operator.only.items():
        if name in arguments and arguments[name] not in supported:
            b.fail(f"{name}={arguments[name]!r} is not supported; supported: {', '.join(map(repr, supported))}")
    fewest, most = operator.input_limits
    if len(inputs) < fewest or (most is not None and len(inputs) > most):
        b.invalid(
            f"takes {fewest}{'' if most == fewest else f' to {most}' if most else ' or more'} inputs, got {len(inputs)}"
        )
    absent = [number for number in operator.needed if inputs[number] is None] if None in inputs else []
    if absent:
        b.invalid(f"input {absent[0]} is left out, but it is not optional")
    try:
        results = operator.function(b, *inputs, **{k: v for k, v in arguments.items() if k in operator.attributes})
    except (InvalidModel, UnsupportedModel):
        raise
    except LuminalError as error:
        types = ", ".join(str(value.type) if value is not None else "-" for value in inputs)
        symbolic = any(type(dim) is not int for value in inputs if value is not None for dim in value.shape)
        raise (UnsupportedModel if symbolic else InvalidModel)(f"{node} of ({types}): {error}") from error
    return results if isinstance(results, tuple | list) else (results,)


def opset_of(domain: str, opsets: Mapping[str, int], name: str) -> int:
    """Return the opset that the model imports for a domain; InvalidModel if it imports none."""
    if domain not in opsets:
        if domain != "":
            return 1
        raise InvalidModel(f"node {name!r} is of domain {domain or 'ai.onnx'!r}, but the model imports no opset for it")
    return opsets[domain]


def _opsets(entries: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {canonical_domain(entry.domain): entry.version for entry in entries}


def _without_inputs(node: onnx.NodeProto, omitted: set[str]) -> onnx.NodeProto:
    """Return the node with inputs that the caller of its function left out emptied."""
    if not omitted.intersection(node.input):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = ["" if name in omitted else name for name in node.input]
    return copy


def input_dtype(info: onnx.ValueInfoProto) -> Any:
    """Return the dtype of a graph input; UnsupportedModel if it is no tensor or of a type that kernels cannot hold."""
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedModel(
            f"input {info.name!r} is a {kind or 'value of unknown type'}; only tensors are supported"
        )
    found = numpy_dtype(info.type.tensor_type.elem_type, f"input {info.name!r}")
    if found in NARROW:
        raise UnsupportedModel(f"input {info.name!r} is of the four-bit type {found}, which only weights may have")
    return from_numpy(found)


def declared_dims(info: onnx.ValueInfoProto) -> list[Dim | None] | None:
    """Return the numbers of a declared shape, None for each axis without one; None if no shape is declared."""
    if not info.type.tensor_type.HasField("shape"):
        return None
    axes = info.type.tensor_type.shape.dim
    return [int(a.dim_value) if a.WhichOneof("value") == "dim_value" and a.dim_value >= 0 else None for a in axes]
