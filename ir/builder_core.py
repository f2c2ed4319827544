"""The part of the builder that makes single nodes: checks types, shares equal nodes, broadcasts, composes views."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..plan import view as views
from ..plan.dims import Dim, Range, as_dim, bounds, evaluate, index_symbol, simplify, substitute, symbol
from ..plan.dtypes import DType, bool_, int64
from ..plan.errors import LuminalError
from ..plan.view import View
from .control import make_control
from .graph import Graph, Node, Size, TensorType, Value
from .primitives import cast_dtype, make_node
from .scalars import REDUCTIONS, row

Number = int | float | bool
_SHARED_CONSTANT_BYTES = 4096  # constants up to this size are shared by content, larger ones by identity


class BuilderCore:
    """Builds `graph` node by node. `origin` names the ONNX nodes that the next nodes come from.

    A node that is structurally equal to an earlier one is that one.
    """

    def __init__(self, name: str = "", ranges: Mapping[str, Range] = {}) -> None:
        self.graph = Graph(name, ranges=dict(ranges))
        self.origin: tuple[str, ...] = ()
        self._made: dict[tuple, Node] = {}

    def input(self, name: str, dtype: DType, shape: Sequence[Dim]) -> Value:
        """Add an input to the signature."""
        if name in self.graph.input_names:
            raise LuminalError(f"the graph has two inputs named {name!r}")
        value = self._node("input", (), {"name": name}, TensorType(dtype, _dims(shape)))
        self.graph.inputs.append(value)
        self.graph.input_names.append(name)
        return value

    def output(self, name: str, value: Value) -> None:
        """Make value an output of the signature."""
        if name in self.graph.output_names:
            raise LuminalError(f"the graph has two outputs named {name!r}")
        self.graph.outputs.append(value)
        self.graph.output_names.append(name)

    def constant(self, array: np.ndarray | np.generic) -> Value:
        """Return a tensor of exactly these elements. The array is kept, not copied, so it must not change."""
        return self._node("constant", (), {"data": np.asarray(array)})

    def scalar(self, value: Number, dtype: DType) -> Value:
        """Return a rank-0 tensor; LuminalError if an integer dtype cannot hold the value."""
        if dtype.is_integer:
            info = np.iinfo(dtype.numpy)
            if not math.isfinite(value) or value != int(value) or not info.min <= value <= info.max:
                raise LuminalError(f"{dtype} cannot hold the number {value}")
        with np.errstate(over="ignore"):
            return self.constant(np.array(value).astype(dtype.numpy))

    def elementwise(self, fn: str, *args: Value | Number, dtype: DType | None = None) -> Value:
        """Return row `fn` of the scalar table over the operands, broadcast as in NumPy.

        Operands must agree in dtype; a Python number takes that of the others. Only `cast` takes a `dtype`.
        """
        operands = self._operands(fn, args)
        shape = self.broadcast_shape(*(value.shape for value in operands))
        operands = [self.expand(value, shape) for value in operands]
        declared = TensorType(dtype, shape) if dtype is not None else None
        return self._node("elementwise", operands, {"fn": fn}, declared)

    __call__ = elementwise
    b = elementwise

    def _operands(self, fn: str, args: Sequence[Value | Number]) -> list[Value]:
        if len(args) != row(fn).arity:
            raise LuminalError(f"{fn} takes {row(fn).arity} operands, not {len(args)}")
        choosing = fn == "where"
        dtypes = [arg.dtype for arg in (args[1:] if choosing else args) if isinstance(arg, Value)]
        if not dtypes:
            raise LuminalError(f"{fn} of Python numbers only has no dtype; make one of them a scalar(value, dtype)")
        return [
            arg if isinstance(arg, Value) else self.scalar(arg, bool_ if choosing and place == 0 else dtypes[0])
            for place, arg in enumerate(args)
        ]

    def cast(self, x: Value, dtype: DType) -> Value:
        """Return x in another dtype (`scalars.convert` says how values change); x itself where it has it already."""
        while cast_dtype(x.node) is not None and _holds(x.dtype, x.node.inputs[0].dtype):
            x = x.node.inputs[0]
        if x.dtype is dtype:
            return x
        return self._node("elementwise", (x,), {"fn": "cast"}, TensorType(dtype, x.shape))

    def reduce(self, fn: str, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        """Return `fn` (sum, prod, max, min) over the axes, in any order; over no axes it is x."""
        if fn not in REDUCTIONS:
            raise LuminalError(f"there is no reduction {fn!r}; known: {', '.join(REDUCTIONS)}")
        over = self._axes(axes, x.type.rank)
        if not over:
            return x
        kept = [axis for axis in range(x.type.rank) if axis not in over]
        moved = self.view(x, views.transpose(x.shape, [*kept, *over], self.ranges))
        result = self._node("reduce", (moved,), {"fn": fn, "count": len(over)})
        if keepdims:
            result = self.view(result, views.insert_axes(result.shape, over, self.ranges))
        return result

    def iota(self, shape: Sequence[Dim], expr: Dim) -> Value:
        """Return the int64 tensor whose elements are `expr` of their index variables (`dims.index_symbol`)."""
        shape = _dims(shape)
        ones = {axis: 0 for axis, extent in enumerate(shape) if type(extent) is int and extent == 1}
        expr = simplify(substitute(as_dim(expr), {}, ones), self.ranges, shape)
        return self._node("iota", (), {"expr": expr}, TensorType(int64, shape))

    def size(self, name: str, value: Value, least: Dim, most: Dim) -> Dim:
        """Return the symbol `name`, which has the number in an int64 scalar as its value when the graph runs.

        The number must be in least..most, which are dims that are known before running.
        """
        if name in self.ranges:
            raise LuminalError(f"the graph has a dim {name!r} already")
        low, high = bounds(least, self.ranges)[0], bounds(most, self.ranges)[1]
        if low is None or high is None or low < 0:
            raise LuminalError(f"the size {name!r} needs bounds, and {least}..{most} gives none")
        typical = evaluate(most, {name: known.opt for name, known in self.ranges.items()})
        self.ranges[name] = Range(low, min(max(int(typical), low), high), max(low, high))
        self.graph.sizes[name] = Size(value, least, most)
        return symbol(name)

    def view(self, x: Value, view: View) -> Value:
        """Return x read through view. A view of a view becomes one view, an identity vanishes."""
        if view.in_shape != x.shape:
            raise LuminalError(f"a view of {x.type} was made for the shape [{', '.join(map(str, view.in_shape))}]")
        if x.node.op == "view":
            composed = views.compose(view, x.node.attrs["view"], self.ranges)
            if composed is not None:
                x, view = x.node.inputs[0], composed
        if view.is_identity(self.ranges):
            return x
        return self._node("view", (x,), {"view": view})

    def gather_flat(self, data: Value, index: Value) -> Value:
        """Return `data.flat[index]`, of the index's shape; the index is clamped to the valid range."""
        return self._node("gather", (data, index), {})

    def scatter_flat(self, dest: Value, index: Value, src: Value, fn: str = "none") -> Value:
        """Return a copy of dest in which element `index[p]` became `fn(old, src[p])`, in order of p.

        `fn` is none (replace), add, mul, max or min; an index out of range is dropped.
        """
        return self._node("scatter", (dest, index, src), {"fn": fn})

    def control(self, op: str, inputs: Sequence[Value], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        """Return the outputs of a loop or branch (`ir/control.py`) with these operands and attributes."""
        key = (op, tuple(inputs), tuple(id(part) if isinstance(part, Graph) else part for part in attrs.values()))
        node = self._made.get(key)
        if node is None:
            node = self._made[key] = make_control(op, inputs, attrs, self.origin)
        return node.outputs

    def expand(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Return x repeated to `shape`, along axes of extent 1 and new axes in front."""
        shape = _dims(shape)
        if shape == x.shape:
            return x
        lead = len(shape) - x.type.rank
        index: list[Dim] = []
        for axis, extent in enumerate(x.shape):
            if lead >= 0 and self._equal(extent, shape[lead + axis]):
                index.append(index_symbol(lead + axis))
            elif lead >= 0 and _is_one(extent):
                index.append(0)
            else:
                raise LuminalError(f"{x.type} does not broadcast to [{', '.join(map(str, shape))}]")
        return self.view(x, views.select(x.shape, shape, index, self.ranges))

    def broadcast_shape(self, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the shape that NumPy broadcasts these to; LuminalError if extents are neither equal nor 1."""
        rank = max(map(len, shapes))
        result: list[Dim] = [1] * rank
        for shape in shapes:
            for axis, extent in enumerate(shape, rank - len(shape)):
                if _is_one(result[axis]):
                    result[axis] = extent
                elif not (_is_one(extent) or self._equal(extent, result[axis])):
                    listed = ", ".join(f"[{', '.join(map(str, shape))}]" for shape in shapes)
                    raise LuminalError(
                        f"shapes {listed} do not broadcast: the extents {result[axis]} and {extent} are not known "
                        "to be equal, and neither is 1; name symbolic dims that are always equal alike"
                    )
        return tuple(result)

    @property
    def ranges(self) -> dict[str, Range]:
        """The range of every symbolic dim."""
        return self.graph.ranges

    def _equal(self, a: Dim, b: Dim) -> bool:
        if a == b:
            return True
        if type(a) is int and type(b) is int:
            return False
        difference = simplify(a - b, self.ranges)
        return type(difference) is int and difference == 0

    def _axes(self, axes: Sequence[int], rank: int) -> list[int]:
        found = [axis + rank if axis < 0 else axis for axis in axes]
        if any(not 0 <= axis < rank for axis in found) or len(set(found)) != len(found):
            raise LuminalError(f"the axes {list(axes)} do not fit a tensor of {rank} axes")
        return sorted(found)

    def _axis(self, axis: int, rank: int) -> int:
        return self._axes([axis], rank)[0]

    def _node(
        self, op: str, inputs: Sequence[Value], attrs: Mapping[str, Any], declared: TensorType | None = None
    ) -> Value:
        key = (op, tuple((id(value.node), value.index) for value in inputs), declared, _attrs_key(attrs))
        node = self._made.get(key)
        if node is None:
            node = self._made[key] = make_node(op, inputs, attrs, declared, self.origin)
        return Value(node)


def _attrs_key(attrs: Mapping[str, Any]) -> tuple:
    data = attrs.get("data")
    if data is None:
        return tuple(sorted(attrs.items()))
    if isinstance(data, np.ndarray) and data.nbytes <= _SHARED_CONSTANT_BYTES:
        return ("content", data.dtype, data.shape, data.tobytes())
    return ("identity", id(data))  # the node keeps the array alive, so the id stays its own


def _dims(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(as_dim(extent) for extent in shape)


def _is_one(extent: Dim) -> bool:
    return type(extent) is int and extent == 1


_EXACT_INTEGER_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def _holds(wide: DType, narrow: DType) -> bool:
    """Say whether every value of `narrow` is exactly a value of `wide`."""
    if wide is narrow or narrow is bool_:
        return True
    if wide is bool_ or (narrow.is_float and not wide.is_float):
        return False
    if narrow.is_float:
        return wide.bits > narrow.bits
    value_bits = narrow.bits - (narrow.kind == "i")
    if wide.is_float:
        return value_bits <= _EXACT_INTEGER_BITS[wide.name]
    return value_bits <= wide.bits - (wide.kind == "i") and (wide.kind == "i" or narrow.kind == "u")


