"""Cutting a graph at its loops and branches.

A loop or branch is a stage of its own. All else is computed as late as it is wanted: right before the first loop that
needs it, else together with what reads it, so that it can fuse with that.
"""

from __future__ import annotations

from collections.abc import Sequence

from .control import is_control
from .graph import Graph, Node


def stages(graph: Graph, nodes: Sequence[Node]) -> list[list[Node] | Node]:
    """Return the nodes, given in topological order, in stages: each reads nothing but what stands before or in it.

    A loop or branch stands for itself; lists hold what is between them.
    """
    if not any(map(is_control, nodes)):
        return [list(nodes)] if nodes else []
    earliest = _earliest(graph, nodes)
    latest = _latest(graph, nodes, earliest)
    count = max(latest.values()) + 1
    plain: list[list[Node]] = [[] for _ in range(count)]
    control: list[list[Node]] = [[] for _ in range(count)]
    for node in nodes:
        (control if is_control(node) else plain)[latest[id(node)]].append(node)
    found: list[list[Node] | Node] = []
    for level in range(count):
        found.extend([plain[level]] if plain[level] else [])
        found.extend(control[level])
    return found


def _needs(graph: Graph, node: Node) -> list[Node]:
    sizes = graph.size_nodes(node) if graph.sizes else []
    return [*(value.node for value in node.inputs), *sizes]


def _earliest(graph: Graph, nodes: Sequence[Node]) -> dict[int, int]:
    """Return the first level at which each node can be computed: what reads a loop of one level is of the next."""
    found: dict[int, int] = {}
    for node in nodes:
        below = [found[id(other)] + is_control(other) for other in _needs(graph, node) if id(other) in found]
        found[id(node)] = max(below, default=0)
    return found


def _latest(graph: Graph, nodes: Sequence[Node], earliest: dict[int, int]) -> dict[int, int]:
    """Return the level at which each node is computed: the latest that suits all its readers; loops run early."""
    found: dict[int, int] = {}
    last = max(earliest.values())
    for node in reversed(nodes):
        level = earliest[id(node)] if is_control(node) else found.get(id(node), last)
        found[id(node)] = level
        for other in _needs(graph, node):
            if id(other) in earliest:
                found[id(other)] = min(found.get(id(other), level), level)
    return found
