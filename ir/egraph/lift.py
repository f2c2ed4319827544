"""From a graph to rows of the e-graph.

Value number p of the graph becomes `Value p`, a tensor, and `Register 2p`, what is stored there. Operands are read as
`Register 2p+1`, the load of value p at identity. Axes of extent 1 vanish on the way: a tensor is a flat buffer, and a
space without them has fewer spellings. Constants whose elements all have the same bits are `Const`, through any total
view as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...plan.dims import product
from ...plan.dtypes import ALL, DType
from ...plan.view import identity
from ..graph import Graph, Node, Value
from .handles import Handles, Shape, squeezed, squeezed_expr, squeezed_view

DTYPE_CODES = {dtype: code for code, dtype in enumerate(ALL)}


@dataclass
class Lifted:
    """The rows for each lift relation, and the graph's nodes by value number."""

    nodes: list[Node]
    number: dict[int, int]
    rows: dict[str, list[tuple]] = field(default_factory=dict)

    def add(self, relation: str, *row: object) -> None:
        self.rows.setdefault(relation, []).append(row)

    def value_number(self, value: Value) -> int:
        return self.number[id(value.node)]


def lift(graph: Graph, handles: Handles) -> Lifted:
    """Return the rows that say what the graph computes, in the vocabulary of `rules/core.egg`."""
    nodes = graph.nodes()
    lifted = Lifted(nodes, {id(node): number for number, node in enumerate(nodes)})
    constants = splat_constants(nodes)
    for number, node in enumerate(nodes):
        lifted.add("lift-level", number, 2 * number)  # between two levels is room for what rules make
        type = node.types[0]
        shape, dtype = squeezed(type.shape), DTYPE_CODES[type.dtype]
        if id(node) in constants:
            bits = handles.intern("bits", constants[id(node)])
            lifted.add("lift-const", 2 * number + 1, bits, dtype)
        else:
            at_identity = handles.view(identity(shape, handles.ranges))
            lifted.add("lift-load", 2 * number + 1, number, at_identity, dtype)
        if node.op in ("input", "constant"):
            lifted.add("lift-in", number, handles.dim(product(shape)), dtype)
        elif node.op == "scatter":
            operands = [lifted.value_number(value) for value in node.inputs]
            lifted.add("lift-scatter", number, node.attrs["fn"], *operands)
        else:
            _lift_register(lifted, handles, number, node, constants, dtype)
            lifted.add("lift-store", number, 2 * number, handles.shape(shape))
            lifted.add("Count", handles.shape(shape), handles.dim(product(shape)))
    for number in pushable(graph, nodes):
        lifted.add("lift-pushable", number)
    return lifted


def _lift_register(
    lifted: Lifted, handles: Handles, number: int, node: Node, constants: dict[int, bytes], dtype: int
) -> None:
    operands = [2 * lifted.value_number(value) + 1 for value in node.inputs]
    shape = node.types[0].shape
    if id(node) in constants:
        lifted.add("lift-const", 2 * number, handles.intern("bits", constants[id(node)]), dtype)
    elif node.op == "elementwise":
        lifted.add(f"lift-e{len(operands)}", 2 * number, node.attrs["fn"], *operands, dtype)
    elif node.op == "view":
        view = handles.view(squeezed_view(node.attrs["view"], handles.ranges))
        lifted.add("lift-load", 2 * number, lifted.value_number(node.inputs[0]), view, dtype)
    elif node.op == "iota":
        expr = handles.dim(squeezed_expr(node.attrs["expr"], shape))
        lifted.add("lift-iota", 2 * number, expr, handles.shape(squeezed(shape)))
    elif node.op == "gather":
        lifted.add("lift-gather", 2 * number, lifted.value_number(node.inputs[0]), operands[1], dtype)
    else:
        extents = squeezed(node.inputs[0].shape[-node.attrs["count"] :])
        if extents:
            lifted.add("lift-red", 2 * number, node.attrs["fn"], operands[0], handles.shape(extents), dtype)
        else:  # over axes of extent 1 only: of one element, every reduction is that element
            lifted.add("lift-same", 2 * number, operands[0])


def splat_constants(nodes: list[Node]) -> dict[int, bytes]:
    """Return, by node id, the bits of each value that is known to have the same element everywhere."""
    found: dict[int, bytes] = {}
    for node in nodes:
        if node.op == "constant":
            bits = splat_bits(node.attrs["data"])
            if bits is not None:
                found[id(node)] = bits
        elif node.op == "view" and node.attrs["view"].is_total and id(node.inputs[0].node) in found:
            found[id(node)] = found[id(node.inputs[0].node)]
    return found


def splat_bits(data: np.ndarray) -> bytes | None:
    """Return the little-endian bytes of the one element that fills the array; None if there is no such element."""
    if data.size == 0:
        return None
    flat = data.reshape(-1)
    first = np.ascontiguousarray(flat[:1]).tobytes()
    if any(np.ascontiguousarray(flat[at : at + 1]).tobytes() != first for at in (flat.size // 2, flat.size - 1)):
        return None
    if flat.size > 3:
        raw = np.ascontiguousarray(flat).view(np.uint8).reshape(flat.size, -1)
        if not (raw == raw[0]).all():
            return None
    return first


def pushable(graph: Graph, nodes: list[Node]) -> list[int]:
    """Return the numbers of values that a view may be pushed through without paying twice.

    Those with one use, where a reshape counts as the uses of its result, and those made of constants and iotas only.
    """
    uses: dict[int, int] = {id(node): 0 for node in nodes}
    for value in (*graph.outputs, *(size.value for size in graph.live_sizes().values())):
        uses[id(value.node)] += 2
    for node in reversed(nodes):
        for value in node.inputs:
            is_reshape = node.op == "view" and node.attrs["view"].is_contiguous()
            uses[id(value.node)] += max(uses[id(node)], 1) if is_reshape else 1
    cheap: set[int] = set()
    for node in nodes:
        if node.op == "iota" or (node.op == "constant" and node.attrs["data"].size == 1):
            cheap.add(id(node))
        elif node.op in ("elementwise", "view") and all(id(value.node) in cheap for value in node.inputs):
            cheap.add(id(node))
    return [number for number, node in enumerate(nodes) if uses[id(node)] == 1 or id(node) in cheap]


def stored_shape(node: Node) -> Shape:
    """Return the shape that a node's value has in the e-graph."""
    return squeezed(node.types[0].shape)


def dtype_of(code: int) -> DType:
    """Return the element type that a number stands for in the e-graph."""
    return ALL[code]
