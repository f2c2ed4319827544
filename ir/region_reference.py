"""What a region means, in NumPy: the oracle for every generated kernel, whatever its schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..plan.errors import LuminalError
from .primitives import gather_array, iota_array, reduce_array, shape_at
from .region import Broadcast, Constant, Elementwise, Gather, Iota, Load, Reduce, Region, RegionNode
from .scalars import evaluate


def run_region(region: Region, operands: Sequence[np.ndarray], env: Mapping[str, int]) -> list[np.ndarray]:
    """Return what each store writes, for operands in slot order and a value for each dim symbol.

    16-bit floats stay float32 between a load and a store, as they do in a kernel's registers; an explicit cast rounds.
    """
    if len(operands) != len(region.operands):
        raise LuminalError(f"the region reads {len(region.operands)} operands, {len(operands)} were given")
    for slot, (operand, type) in enumerate(zip(operands, region.operands, strict=True)):
        expected = shape_at(type.shape, env)
        if operand.shape != expected or operand.dtype != type.dtype.numpy:
            raise LuminalError(f"operand {slot} is {type}, so {expected}; got {operand.dtype}{list(operand.shape)}")
    values: list[np.ndarray] = []
    for position, node in enumerate(region.nodes):
        value = _in_register(_value(node, [values[arg] for arg in node.args], operands, env), node)
        if value.shape != shape_at(node.space, env):
            raise LuminalError(f"region node {position} ({node}) made the shape {list(value.shape)}")
        values.append(value)
    with np.errstate(all="ignore"):
        return [values[store].astype(region.nodes[store].dtype.numpy, order="C") for store in region.stores]


def _value(
    node: RegionNode, args: Sequence[np.ndarray], operands: Sequence[np.ndarray], env: Mapping[str, int]
) -> np.ndarray:
    space = shape_at(node.space, env)
    match node:
        case Load():
            return node.view.apply(operands[node.slot], env)
        case Constant():
            return np.broadcast_to(np.frombuffer(node.bits, node.dtype.numpy)[0], space)
        case Iota():
            return iota_array(node.expr, node.space, env)
        case Elementwise(fn="cast"):
            return evaluate("cast", args, node.dtype)
        case Elementwise():
            return evaluate(node.fn, args, node.dtype.compute)
        case Gather():
            return gather_array(operands[node.slot], args[0])
        case Reduce():
            return reduce_array(node.fn, args[0], len(node.extents))
        case Broadcast():
            return np.broadcast_to(args[0].reshape(*args[0].shape, *[1] * len(node.extents)), space)
    raise LuminalError(f"a region has no nodes of type {type(node).__name__}")


def _in_register(value: np.ndarray, node: RegionNode) -> np.ndarray:
    return value.astype(node.dtype.compute.numpy, copy=False)
