"""The primitives: eight kinds of node, one record each. Everything that a model computes is written with them.

A record holds what the primitive takes, the type rule, the NumPy meaning and a description; one that lacks any of these
fails when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..plan.dims import Dim
from ..plan.dims import evaluate as evaluate_dim
from ..plan.dtypes import DType, from_numpy, int64
from ..plan.errors import LuminalError
from ..plan.view import View
from .graph import Node, TensorType, Value
from .scalars import REDUCTIONS, TABLE, convert, evaluate, result_dtype

Attrs = Mapping[str, Any]
Infer = Callable[[Sequence[TensorType], Attrs, "TensorType | None"], TensorType]
Reference = Callable[[Sequence[np.ndarray], Attrs, TensorType, Mapping[str, int]], np.ndarray]

SCATTER_FUNCTIONS = ("none", "add", "mul", "max", "min")


@dataclass(frozen=True)
class Primitive:
    """One kind of node.

    `operands` is how many it takes (None: as many as its scalar function does), `attrs` are its attributes' names.
    `infer(operand types, attrs, declared)` returns the type of its output or raises LuminalError; `declared` is the
    type that the node states, which some primitives need. `reference(operands, attrs, type, dims)` is what it means.
    """

    name: str
    operands: int | None
    attrs: tuple[str, ...]
    infer: Infer
    reference: Reference
    doc: str

    def __post_init__(self) -> None:
        if not (self.name and callable(self.infer) and callable(self.reference) and self.doc):
            raise LuminalError(f"the record of primitive {self.name!r} is incomplete")


def _declared(declared: TensorType | None, name: str) -> TensorType:
    if declared is None:
        raise LuminalError(f"{name} needs its type to be stated")
    return declared


def _infer_input(operands: Sequence[TensorType], attrs: Attrs, declared: TensorType | None) -> TensorType:
    return _declared(declared, f"input {attrs['name']!r}")


def _infer_constant(operands: Sequence[TensorType], attrs: Attrs, declared: TensorType | None) -> TensorType:
    data = attrs["data"]
    if not isinstance(data, np.ndarray):
        raise LuminalError(f"a constant holds a NumPy array, not {type(data).__name__}")
    try:
        return TensorType(from_numpy(data.dtype), tuple(int(extent) for extent in data.shape))
    except KeyError:
        raise LuminalError(f"a constant of NumPy dtype {data.dtype} cannot be held by kernels") from None


def _infer_elementwise(operands: Sequence[TensorType], attrs: Attrs, declared: TensorType | None) -> TensorType:
    fn = attrs["fn"]
    dtype = result_dtype(fn, [operand.dtype for operand in operands], declared.dtype if declared else None)
    shape = operands[0].shape
    if any(operand.shape != shape for operand in operands):
        raise LuminalError(f"{fn} needs operands of one shape, not {', '.join(map(str, operands))}")
    return TensorType(dtype, shape)


def _infer_reduce(operands: Sequence[TensorType], attrs: Attrs, declared: TensorType | None) -> TensorType:
    (operand,) = operands
    fn, count = attrs["fn"], attrs["count"]
    if fn not in REDUCTIONS:
        raise LuminalError(f"there is no reduction {fn!r}; known: {', '.join(REDUCTIONS)}")
    if operand.dtype.kind not in REDUCTIONS[fn].kinds:
        raise LuminalError(f"reduce {fn} does not take {operand.dtype}")
    if not 1 <= count <= operand.rank:
        raise LuminalError(f"reduce {fn} over {count} trailing axes of {operand}; it has {operand.rank}")
    return TensorType(operand.dtype, operand.shape[: operand.rank - count])


def _infer_iota(operands: Sequence[TensorType], attrs: Attrs, declared: TensorType | None) -> TensorType:
    declared = _declared(declared, "iota")
    if declared.dtype is not int64:
        raise LuminalError(f"iota makes int64, not {declared.dtype}")
    return declared


def _infer_view(operands: Sequence[TensorType], attrs: Attrs, declared: TensorType | None) -> TensorType:
    (operand,) = operands
    view: View = attrs["view"]
    if view.in_shape != operand.shape:
        raise LuminalError(f"a view of {operand} was made for the shape [{', '.join(map(str, view.in_shape))}]")
    return TensorType(operand.dtype, view.out_shape)


def _infer_gather(operands: Sequence[TensorType], attrs: Attrs, declared: TensorType | None) -> TensorType:
    data, index = operands
    if not index.dtype.is_integer:
        raise LuminalError(f"gather needs an integer index, not {index}")
    return TensorType(data.dtype, index.shape)


def _infer_scatter(operands: Sequence[TensorType], attrs: Attrs, declared: TensorType | None) -> TensorType:
    dest, index, src = operands
    fn = attrs["fn"]
    if fn not in SCATTER_FUNCTIONS:
        raise LuminalError(f"there is no scatter {fn!r}; known: {', '.join(SCATTER_FUNCTIONS)}")
    if not index.dtype.is_integer:
        raise LuminalError(f"scatter needs an integer index, not {index}")
    if index.shape != src.shape:
        raise LuminalError(f"scatter needs index and source of one shape, not {index} and {src}")
    if dest.dtype is not src.dtype:
        raise LuminalError(f"scatter of {src} into {dest}: dtypes differ")
    if fn in ("add", "mul") and dest.dtype.kind == "b":
        raise LuminalError(f"scatter {fn} does not take bool")
    return dest


def shape_at(shape: Sequence[Dim], dims: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape as numbers."""
    return tuple(int(evaluate_dim(extent, dims)) for extent in shape)


def iota_array(expr: Dim, shape: Sequence[Dim], dims: Mapping[str, int]) -> np.ndarray:
    """Return the int64 array whose element at each index is the value of `expr` there."""
    extents = shape_at(shape, dims)
    rank = len(extents)
    indices = [
        np.arange(extent, dtype=np.int64).reshape([-1 if k == axis else 1 for k in range(rank)])
        for axis, extent in enumerate(extents)
    ]
    value = np.asarray(evaluate_dim(expr, dims, indices), dtype=np.int64)
    return np.broadcast_to(value, extents)


def reduce_array(fn: str, array: np.ndarray, count: int) -> np.ndarray:
    """Return `fn` over the last `count` axes. Sums and products of floats accumulate in float64, integers wrap."""
    dtype = from_numpy(array.dtype)
    axes = tuple(range(array.ndim - count, array.ndim))
    with np.errstate(all="ignore"):
        if fn in ("sum", "prod"):
            accumulator = np.dtype(np.float64) if dtype.is_float else array.dtype  # NumPy would widen small integers
            result = (np.sum if fn == "sum" else np.prod)(array, axis=axes, dtype=accumulator)
        else:
            wide = array.astype(dtype.compute.numpy, copy=False)
            initial = REDUCTIONS[fn].identity(dtype)
            result = TABLE[REDUCTIONS[fn].combine].numpy.reduce(wide, axis=axes, initial=initial)
    return convert(np.asarray(result), array.dtype)


def gather_array(data: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return `data.flat[index]` with the index clamped; zeros when data has no element to clamp to."""
    if data.size == 0:
        return np.zeros(index.shape, data.dtype)
    flat = np.ascontiguousarray(data).reshape(-1)
    return flat[np.clip(index, 0, flat.size - 1).astype(np.int64)]


def scatter_array(fn: str, dest: np.ndarray, index: np.ndarray, src: np.ndarray) -> np.ndarray:
    """Return a copy of dest in which element `index[p]` became `fn(old, src[p])`, in order of p.

    Out of range is dropped; 16-bit floats accumulate in float32.
    """
    compute = from_numpy(dest.dtype).compute.numpy
    result = np.array(dest, dtype=compute, order="C")
    flat, where, values = result.reshape(-1), index.reshape(-1), src.reshape(-1).astype(compute)
    inside = (where >= 0) & (where < flat.size)
    where, values = where[inside].astype(np.int64), values[inside]
    with np.errstate(all="ignore"):
        if fn == "none":
            _assign_last(flat, where, values)
        else:
            TABLE[fn].numpy.at(flat, where, values)
    return convert(result, dest.dtype)


def _assign_last(flat: np.ndarray, where: np.ndarray, values: np.ndarray) -> None:
    """Assign so that of several values for one place the last wins, which NumPy does not promise by itself."""
    places, from_end = np.unique(where[::-1], return_index=True)
    flat[places] = values[::-1][from_end]


def _reference_input(operands: Sequence[np.ndarray], attrs: Attrs, type: TensorType, dims: Mapping) -> np.ndarray:
    (fed,) = operands  # the interpreter hands in what was fed
    return fed


PRIMITIVES: Mapping[str, Primitive] = {
    primitive.name: primitive
    for primitive in (
        Primitive(
            "input", 0, ("name",), _infer_input, _reference_input,
            "A tensor that is fed, known by `name`.",
        ),
        Primitive(
            "constant", 0, ("data",), _infer_constant, lambda operands, attrs, type, dims: attrs["data"],
            "The array `data`: a weight, or any other tensor known before running. It keeps its exact bits.",
        ),
        Primitive(
            "elementwise", None, ("fn",), _infer_elementwise,
            lambda operands, attrs, type, dims: evaluate(attrs["fn"], operands, type.dtype),
            "Row `fn` of the scalar table, point by point, over operands of one shape. "
            "Example: add of float32[2, 3] and float32[2, 3]. `cast` converts to the dtype of its stated type.",
        ),
        Primitive(
            "reduce", 1, ("fn", "count"), _infer_reduce,
            lambda operands, attrs, type, dims: reduce_array(attrs["fn"], operands[0], attrs["count"]),
            "`fn` (sum, prod, max, min) over the trailing `count` axes, which vanish. "
            "Example: sum with count 1 of float32[2, 3] is float32[2]. Of nothing: 0, 1, lowest, highest.",
        ),
        Primitive(
            "iota", 0, ("expr",), _infer_iota,
            lambda operands, attrs, type, dims: iota_array(attrs["expr"], type.shape, dims),
            "An int64 tensor of the stated shape; each element is the value of `expr` at its index i0, i1, ... "
            "Example: 2*i0 + 1 of shape [3] is [1, 3, 5].",
        ),
        Primitive(
            "view", 1, ("view",), _infer_view,
            lambda operands, attrs, type, dims: attrs["view"].apply(operands[0], dims),
            "An index map (`plan/view.py`): reshape, transpose, slice, expand, pad, the windows of a convolution.",
        ),
        Primitive(
            "gather", 2, (), _infer_gather,
            lambda operands, attrs, type, dims: gather_array(*operands),
            "`out[p] = data.flat[index[p]]`, of the index's shape; the index is clamped to the valid range.",
        ),
        Primitive(
            "scatter", 3, ("fn",), _infer_scatter,
            lambda operands, attrs, type, dims: scatter_array(attrs["fn"], *operands),
            "A copy of `dest` in which element `index[p]` (row-major number) became `fn(old, src[p])`, in order of p; "
            "`none` replaces; out of range is dropped. Operands: dest, index, src.",
        ),
    )
}


def primitive(op: str) -> Primitive:
    """Return the record of `op`; LuminalError if there is none."""
    try:
        return PRIMITIVES[op]
    except KeyError:
        raise LuminalError(f"there is no primitive {op!r}; known: {', '.join(PRIMITIVES)}") from None


def make_node(
    op: str, inputs: Sequence[Value], attrs: Attrs, declared: TensorType | None = None, origin: tuple[str, ...] = ()
) -> Node:
    """Return a new node, its type inferred and checked; `declared` is needed by input, iota and cast."""
    record = primitive(op)
    if set(attrs) != set(record.attrs):
        raise LuminalError(f"{op} has the attributes {sorted(record.attrs)}, not {sorted(attrs)}")
    if record.operands is not None and len(inputs) != record.operands:
        raise LuminalError(f"{op} takes {record.operands} operands, not {len(inputs)}")
    inferred = record.infer([value.type for value in inputs], attrs, declared)
    return Node(op, tuple(inputs), dict(attrs), (inferred,), origin)


def cast_dtype(node: Node) -> DType | None:
    """Return the dtype that a cast node converts to; None for any other node."""
    is_cast = node.op == "elementwise" and node.attrs["fn"] == "cast"
    return node.types[0].dtype if is_cast else None
