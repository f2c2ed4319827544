"""Make a failing graph smaller while it fails: outputs dropped, inner values fed, nodes replaced by their operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from luminal_onnx.ir.graph import Graph, Node, Value, topological
from luminal_onnx.ir.primitives import make_node
from luminal_onnx.plan.dims import symbols

from .generate import Binding
from .oracle import Evaluation

Fails = Callable[[Graph, Binding], bool]
_LEAVES = ("input", "constant")


def shrink(graph: Graph, binding: Binding, fails: Fails, most_tries: int = 400) -> tuple[Graph, Binding]:
    """Return a graph that still fails, and its feeds, such that no single step makes it smaller and failing."""
    tries = 0
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(graph, binding):
            tries += 1
            if tries > most_tries:
                return graph, binding
            if fails(*smaller):
                graph, binding = smaller
                progress = True
                break
    return graph, binding


def node_count(graph: Graph) -> int:
    """How many nodes compute something."""
    return sum(node.op not in _LEAVES for node in graph.nodes())


def _smaller(graph: Graph, binding: Binding) -> Iterator[tuple[Graph, Binding]]:
    if len(graph.outputs) > 1:
        for value in dict.fromkeys(graph.outputs):
            yield _with(graph, binding, [value], {})
        for position in range(len(graph.outputs)):
            yield _with(graph, binding, [v for k, v in enumerate(graph.outputs) if k != position], {})
    inner = [node.output for node in reversed(graph.nodes()) if node.op not in _LEAVES]
    exact = Evaluation(binding.feeds, binding.dims)
    for value in inner:
        if value not in graph.outputs:
            yield _with(graph, binding, [value], {})
    for number, value in enumerate(inner):
        with np.errstate(over="ignore"):
            array = exact.of(value).astype(value.dtype.numpy)
        name = f"cut{number}"
        while name in graph.input_names:
            name += "_"
        fed = Value(make_node("input", (), {"name": name}, value.type))
        yield _with(graph, Binding(binding.dims, {**binding.feeds, name: array}), graph.outputs, {value: fed})
    for value in inner:
        for operand in value.node.inputs:
            if operand.type == value.type:
                yield _with(graph, binding, graph.outputs, {value: operand})


def _with(
    graph: Graph, binding: Binding, outputs: list[Value], replaced: Mapping[Value, Value]
) -> tuple[Graph, Binding]:
    """Return the graph of these outputs, some values replaced, with the inputs that it still needs."""
    changed: dict[Value, Value] = dict(replaced)
    for node in topological(outputs):
        inputs = tuple(changed.get(operand, operand) for operand in node.inputs)
        if inputs != node.inputs and node.output not in changed:
            changed[node.output] = Value(Node(node.op, inputs, node.attrs, node.types, node.origin))
    outputs = [changed.get(value, value) for value in outputs]
    nodes = topological(outputs)
    inputs = [node.output for node in nodes if node.op == "input"]
    missing = _dims_of(nodes) - {name for value in inputs for extent in value.shape for name in symbols(extent)}
    for value in graph.inputs:  # an input may be needed only because its shape shows a dim
        shown = {name for extent in value.shape for name in symbols(extent)}
        if value not in inputs and shown & missing:
            inputs.append(value)
            missing -= shown
    names = [value.node.attrs["name"] for value in inputs]
    used = {name for value in inputs for extent in value.shape for name in symbols(extent)} | _dims_of(nodes)
    result = Graph(
        graph.name,
        inputs,
        outputs,
        names,
        [f"y{number}" for number in range(len(outputs))],
        {name: limits for name, limits in graph.ranges.items() if name in used},
    )
    dims = {name: size for name, size in binding.dims.items() if name in used}
    return result, Binding(dims, {name: binding.feeds[name] for name in names})


def _dims_of(nodes: list[Node]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        for extent in node.types[0].shape:
            found |= symbols(extent)
        if node.op == "iota":
            found |= symbols(node.attrs["expr"])
    return found
