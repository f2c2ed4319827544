"""Which nodes of a graph are needed, and in what order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from ..plan.errors import InvalidModel


def captured(graph: onnx.GraphProto) -> set[str]:
    """Return the tensors that a subgraph takes from outside."""
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    used = {name for node in graph.node for name in needs(node)} | {info.name for info in graph.output}
    return {name for name in used - own if name}


def needs(node: onnx.NodeProto) -> list[str]:
    """Return the tensors that a node reads, those that its subgraphs capture included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            names.extend(sorted(captured(graph)))
    return names


def node_name(node: onnx.NodeProto, number: int) -> str:
    """Return the node's name, or one made of its operator and number where it has none."""
    return node.name or f"{node.op_type}_{number}"


def needed_in_order(
    nodes: Sequence[onnx.NodeProto], available: Iterable[str], outputs: Sequence[str], where: str
) -> list[tuple[int, onnx.NodeProto]]:
    """Return the nodes that the outputs depend on, numbered as they stand, each after what it reads.

    `available` are the tensors that exist beforehand. InvalidModel names a tensor that nothing makes, one that two
    nodes make, or the nodes of a cycle.
    """
    available = set(available)
    producer: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in node.output:
            if name and (name in producer or name in available):
                other = f"node {node_name(nodes[producer[name]], producer[name])!r}" if name in producer else "an input"
                raise InvalidModel(
                    f"{where}: the tensor {name!r} is made twice, by node {node_name(node, number)!r} and by {other}"
                )
            producer[name] = number

    order: list[int] = []
    state: dict[int, str] = {}
    for output in outputs:
        if output not in producer:
            if output not in available:
                raise InvalidModel(f"{where}: the output {output!r} is made by no node and is no input or initializer")
            continue
        stack = [(producer[output], iter(needs(nodes[producer[output]])))]
        if producer[output] in state:
            continue
        state[producer[output]] = "open"
        while stack:
            number, waiting = stack[-1]
            name = next(waiting, None)
            if name is None:
                stack.pop()
                state[number] = "done"
                order.append(number)
            elif name in producer:
                inner = producer[name]
                if state.get(inner) == "open":
                    cycle = [n for n, _ in stack[[n for n, _ in stack].index(inner) :]]
                    names = ", ".join(repr(node_name(nodes[n], n)) for n in cycle)
                    raise InvalidModel(f"{where}: the nodes {names} depend on each other in a cycle through {name!r}")
                if inner not in state:
                    state[inner] = "open"
                    stack.append((inner, iter(needs(nodes[inner]))))
            elif name not in available:
                raise InvalidModel(
                    f"{where}: node {node_name(nodes[number], number)!r} reads the tensor {name!r}, which no node "
                    "makes and which is no input or initializer"
                )
    return [(number, nodes[number]) for number in _as_they_stand(order, nodes, producer)]


def _as_they_stand(order: list[int], nodes: Sequence[onnx.NodeProto], producer: dict[str, int]) -> list[int]:
    """Return the nodes in the file's own order where that is a good one, as ONNX demands."""
    standing = sorted(order)
    sorted_already = all(producer.get(name, -1) < number for number in standing for name in needs(nodes[number]))
    return standing if sorted_already else order
