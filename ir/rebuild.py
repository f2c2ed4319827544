"""Copy nodes into another graph: how a pass writes its result."""

from __future__ import annotations

from collections.abc import Sequence

from .builder_core import BuilderCore
from .control import is_control
from .graph import Node, Value


def copy_outputs(builder: BuilderCore, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Build the same node, of any kind, over other inputs of equal types, and return its outputs."""
    if not is_control(node):
        return (copy_node(builder, node, inputs),)
    builder.origin = node.origin
    return builder.control(node.op, inputs, node.attrs)


def copy_node(builder: BuilderCore, node: Node, inputs: Sequence[Value]) -> Value:
    """Build the same node of one output over other inputs of equal types; equal nodes are shared, views composed."""
    attrs, type = node.attrs, node.types[0]
    builder.origin = node.origin
    match node.op:
        case "input":
            return builder.input(attrs["name"], type.dtype, type.shape)
        case "constant":
            return builder.constant(attrs["data"])
        case "elementwise" if attrs["fn"] == "cast":
            return builder.cast(inputs[0], type.dtype)
        case "elementwise":
            return builder.elementwise(attrs["fn"], *inputs)
        case "reduce":
            rank = inputs[0].type.rank
            return builder.reduce(attrs["fn"], inputs[0], range(rank - attrs["count"], rank))
        case "iota":
            return builder.iota(type.shape, attrs["expr"])
        case "view":
            return builder.view(inputs[0], attrs["view"])
        case "gather":
            return builder.gather_flat(*inputs)
    return builder.scatter_flat(*inputs, fn=attrs["fn"])
