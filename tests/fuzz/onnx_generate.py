"""Seeded random ONNX models: some eighty operators, shape subgraphs and named dims.

A model grows node by node. Each new node is run by onnxruntime alone, at every binding, so that shapes and magnitudes
of all values are known while the rest is chosen; a node that onnxruntime refuses is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
LARGEST = 2000
_LIMIT = 20.0

onnxruntime.set_default_logger_severity(4)


@dataclass
class OnnxCase:
    """A model, the ranges of its dims, and feeds at some of their values."""

    seed: int
    model: onnx.ModelProto
    dims: Mapping[str, tuple[int, int]]
    feeds: list[dict[str, np.ndarray]]


class GaveUp(Exception):
    """A production that does not fit what there is."""


@dataclass(frozen=True)
class Tensor:
    """A value of the model by name, with its array at each binding."""

    name: str
    arrays: tuple[np.ndarray, ...]

    @property
    def rank(self) -> int:
        return self.arrays[0].ndim

    @property
    def is_float(self) -> bool:
        return self.arrays[0].dtype == np.float32

    @property
    def dtype(self) -> np.dtype:
        return self.arrays[0].dtype

    def extents(self, axis: int) -> list[int]:
        return [array.shape[axis] for array in self.arrays]

    def fixed(self, axis: int) -> int | None:
        """The extent of an axis if it is the same at each binding."""
        found = set(self.extents(axis))
        return found.pop() if len(found) == 1 else None

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [array.shape for array in self.arrays]


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Return onnxruntime's session, without its rewrites."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def element_type(dtype: np.dtype) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    stored: Sequence[onnx.TensorProto],
) -> onnx.ModelProto:
    infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "fuzz", inputs, infos, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


class OnnxGenerator:
    """Grows one model. `pool` holds the values that productions draw from, oldest first."""

    def __init__(self, seed: int, attempt: int = 0) -> None:
        self.seed = seed
        self.random = np.random.default_rng((seed, 0x0A1 + attempt))
        names = () if self.chance(0.35) else ("n", "m")[: self.between(1, 2)]
        self.dims: dict[str, tuple[int, int]] = {}
        for name in names:
            low = self.pick((1, 2, 3))
            self.dims[name] = low, low + self.pick((2, 5, 9)) + (name == "m")
        self.bindings = [{}]
        if names:
            most = {name: high for name, (_, high) in self.dims.items()}
            inside = {name: self.between(low, high - 1) for name, (low, high) in self.dims.items()}
            self.bindings = [inside, most]
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.stored: list[onnx.TensorProto] = []
        self.feeds: list[dict[str, np.ndarray]] = [{} for _ in self.bindings]
        self.pool: list[Tensor] = []
        self.count = 0

    # Drawing

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, options: Sequence):
        return options[int(self.random.integers(len(options)))]

    def between(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high, endpoint=True))

    def value(self, fits: Callable[[Tensor], bool] = lambda value: True) -> Tensor:
        options = [value for value in self.pool if fits(value)]
        if not options:
            raise GaveUp
        return self.pick(options[-4:] if self.chance(0.6) else options)

    def float_value(self, least_rank: int = 0) -> Tensor:
        return self.value(lambda value: value.is_float and value.rank >= least_rank)

    def axis(self, x: Tensor) -> int:
        axis = self.between(0, x.rank - 1)
        return axis - x.rank if self.chance(0.4) else axis

    # Making

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def data(self, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
        if dtype == np.bool_:
            return np.asarray(self.random.random(shape) < 0.5)
        if np.dtype(dtype).kind in "iu":
            return np.asarray(self.random.integers(0 if dtype == np.uint8 else -5, 8, shape)).astype(dtype)
        return np.asarray(np.clip(self.random.standard_normal(shape), -2.5, 2.5)).astype(dtype)

    def constant(self, array: object, dtype: type = np.int64) -> Tensor:
        array = np.asarray(array, dtype)
        name = self.name()
        self.stored.append(numpy_helper.from_array(array, name))
        return Tensor(name, (array,) * len(self.bindings))

    def floats(self, *shape: int) -> Tensor:
        return self.constant(self.data(np.float32, shape), np.float32)

    def input(self, dtype: type, shape: Sequence[int | str]) -> Tensor:
        name = self.name()
        self.inputs.append(helper.make_tensor_value_info(name, element_type(dtype), shape))
        arrays = []
        for dims, feeds in zip(self.bindings, self.feeds):
            feeds[name] = self.data(dtype, [dims.get(extent, extent) for extent in shape])
            arrays.append(feeds[name])
        return Tensor(name, tuple(arrays))

    def op(self, kind: str, *inputs: Tensor | None, outputs: int = 1, **attributes) -> Tensor | list[Tensor]:
        """Add a node; GaveUp if onnxruntime refuses it or a result is too large."""
        names = [self.name() for _ in range(outputs)]
        read = [x.name if x else "" for x in inputs]
        node = helper.make_node(kind, read, names, name=f"{kind}_{names[0]}", **attributes)
        distinct = list({x.name: x for x in inputs if x}.values())
        infos = [helper.make_tensor_value_info(x.name, element_type(x.dtype), [None] * x.rank) for x in distinct]
        try:
            session = session_of(make_model([node], infos, names, []))
            runs = [
                session.run(None, {x.name: x.arrays[k] for x in distinct}) for k in range(len(self.bindings))
            ]
        except Exception:  # onnxruntime has kinds of its own for each sort of refusal
            raise GaveUp from None
        results = []
        for name, arrays in zip(names, zip(*runs)):
            arrays = tuple(np.asarray(array) for array in arrays)
            if max(array.size for array in arrays) > LARGEST or arrays[0].ndim > 6:
                raise GaveUp
            if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in arrays):
                raise GaveUp
            results.append(Tensor(name, arrays))
        self.nodes.append(node)
        return results[0] if outputs == 1 else results

    def keep(self, x: Tensor) -> None:
        if x.is_float and max(float(np.abs(array).max(initial=0)) for array in x.arrays) > _LIMIT:
            x = self.op(self.pick(("Tanh", "Sigmoid", "Softsign")), x)
        self.pool.append(x)

    def partner(self, x: Tensor) -> Tensor:
        """Return a value of x's dtype whose shape broadcasts with x's."""

        def fits(y: Tensor) -> bool:
            try:
                return y.dtype == x.dtype and all(
                    np.prod(np.broadcast_shapes(a, b)) <= LARGEST for a, b in zip(x.shapes, y.shapes)
                )
            except ValueError:
                return False

        options = [y for y in self.pool if fits(y)]
        if options and self.chance(0.6):
            return self.pick(options)
        lead = self.between(0, x.rank) if self.chance(0.4) else 0
        shape = [1 if x.fixed(axis) is None or self.chance(0.3) else x.fixed(axis) for axis in range(lead, x.rank)]
        return self.constant(self.data(x.dtype, shape), x.dtype)

    def extent_of(self, x: Tensor, axis: int) -> Tensor:
        """Return the extent of an axis as an int64 tensor of shape [1], by a shape subgraph."""
        how = self.between(0, 2)
        shape = self.op("Shape", x)
        if how == 0:
            return self.op("Gather", shape, self.constant([axis]), axis=0)
        if how == 1:
            end = axis + 1 if axis != -1 else np.iinfo(np.int64).max
            return self.op("Slice", shape, self.constant([axis]), self.constant([end]), self.constant([0]))
        scalar = self.op("Gather", shape, self.constant(axis), axis=0)
        return self.op("Unsqueeze", scalar, self.constant([0]))

    def case(self) -> OnnxCase:
        for _ in range(self.between(1, 2)):
            dtype = self.pick((np.float32,) * 4 + (np.int64, np.int32))
            rank = self.pick((1, 2, 2, 3, 3, 4))
            extents = [self.pick((1, 2, 3, 4, 5, 7, 8)) for _ in range(rank)]
            if self.dims:
                extents[self.between(0, rank - 1)] = self.pick(list(self.dims))
            self.pool.append(self.input(dtype, extents))
        if not any(x.is_float for x in self.pool):
            self.pool.append(self.input(np.float32, [*list(self.dims)[:1], 4]))
        missing = set(self.dims) - {d.dim_param for i in self.inputs for d in i.type.tensor_type.shape.dim}
        for name in missing:
            self.pool.append(self.input(np.float32, [name, 3]))
        names = list(ONNX_PRODUCTIONS)
        wanted, made = self.between(3, 10), 0
        for _ in range(10 * wanted):
            nodes = len(self.nodes)
            try:
                results = ONNX_PRODUCTIONS[self.pick(names)](self)
                for result in results if isinstance(results, list) else [results]:
                    self.keep(result)
                    made += 1
            except GaveUp:
                del self.nodes[nodes:]
            if made >= wanted:
                break
        read = {name for node in self.nodes for name in node.input}
        made_names = {name for node in self.nodes for name in node.output}
        leaves = [x.name for x in self.pool if x.name not in read and x.name in made_names]
        others = [x.name for x in self.pool if x.name in read and x.name in made_names]
        outputs = [*leaves[-4:], *([self.pick(others)] if others and self.chance(0.4) else [])]
        if not outputs:
            last = self.op("Identity", self.pool[0])
            outputs = [last.name]
        return OnnxCase(self.seed, self.needed(outputs), self.dims, self.feeds)

    def needed(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """Return the model without the nodes and constants that no output needs."""
        wanted, kept = set(outputs), []
        for node in reversed(self.nodes):
            if wanted.intersection(node.output):
                kept.append(node)
                wanted.update(node.input)
        stored = [tensor for tensor in self.stored if tensor.name in wanted]
        return make_model(kept[::-1], self.inputs, outputs, stored)


def generate_onnx(seed: int) -> OnnxCase:
    """Return the model of this seed; equal seeds give equal models."""
    attempt = 0
    while not runs(case := OnnxGenerator(seed, attempt).case()):
        attempt += 1
    return case


def runs(case: OnnxCase) -> bool:
    """Say whether onnxruntime runs a model. It may refuse as a whole what it ran node by node."""
    try:
        session = session_of(case.model)
        for feeds in case.feeds:
            session.run(None, feeds)
    except Exception:  # onnxruntime has kinds of its own for each sort of refusal
        return False
    return True


ONNX_PRODUCTIONS: dict[str, Callable[[OnnxGenerator], Tensor | list[Tensor]]] = {}


def production(function: Callable[[OnnxGenerator], Tensor | list[Tensor]]):
    ONNX_PRODUCTIONS[function.__name__] = function
    return function


_UNARY_TEXT = """
Abs Neg Sin Cos Tanh Sigmoid Erf Floor Ceil Round Sign Relu Elu
Selu Softplus Softsign HardSigmoid HardSwish Mish LeakyRelu Celu ThresholdedRelu Atan Asinh Identity Exp
"""
_UNARY = _UNARY_TEXT.split()


@production
def unary(g: OnnxGenerator) -> Tensor:
    kind = g.pick(_UNARY)
    attributes = {}
    if kind in ("Elu", "Celu", "ThresholdedRelu", "LeakyRelu", "HardSigmoid") and g.chance(0.6):
        attributes["alpha"] = g.pick((0.2, 0.5, 1.5))
    x = g.float_value()
    if kind == "Exp":
        x = g.op("Tanh", x)
    return g.op(kind, x, **attributes)


@production
def positive(g: OnnxGenerator) -> Tensor:
    x = g.op("Add", g.op("Abs", g.float_value()), g.constant(0.5, np.float32))
    return g.op(g.pick(("Sqrt", "Log", "Reciprocal")), x)


@production
def binary(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.dtype != np.bool_)
    y = g.partner(x)
    kind = g.pick(("Add", "Sub", "Mul", "Max", "Min", "Add", "Mul"))
    x, y = (x, y) if g.chance(0.6) else (y, x)
    return g.op(kind, x, y)


@production
def division(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.dtype != np.bool_)
    y = g.op("Abs", g.partner(x))
    y = g.op("Add", y, g.constant(1, x.dtype.type))
    if g.chance(0.5):
        return g.op("Div", x, y)
    return g.op("Mod", x, y, fmod=1) if x.is_float or g.chance(0.4) else g.op("Mod", x, y)


@production
def power(g: OnnxGenerator) -> Tensor:
    x = g.float_value()
    if g.chance(0.5):
        return g.op("Pow", x, g.constant(g.pick((2, 3)), g.pick((np.float32, np.int64))))
    return g.op("Pow", g.op("Add", g.op("Abs", x), g.constant(0.5, np.float32)), g.op("Tanh", g.partner(x)))


@production
def variadic(g: OnnxGenerator) -> Tensor:
    x = g.float_value()
    return g.op(g.pick(("Sum", "Mean", "Max", "Min")), x, *[g.partner(x) for _ in range(g.between(0, 2))])


@production
def clip(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.dtype in (np.float32, np.int64, np.int32))
    low, high = g.constant(-1, x.dtype.type), g.constant(2, x.dtype.type)
    return g.op("Clip", x, *g.pick(((low, high), (low,), (None, high), ())))


@production
def prelu(g: OnnxGenerator) -> Tensor:
    x = g.float_value(1)
    return g.op("PRelu", x, g.floats(*[x.fixed(k) or 1 for k in range(1, x.rank)]))


@production
def comparison(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.dtype != np.bool_)
    return g.op(g.pick(("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")), x, g.partner(x))


@production
def logic(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.dtype == np.bool_)
    return g.op("Not", x) if g.chance(0.2) else g.op(g.pick(("And", "Or", "Xor")), x, g.partner(x))


@production
def where(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.dtype != np.bool_)
    condition = g.op("Greater", x, g.partner(x))
    return g.op("Where", condition, x, g.partner(x))


@production
def cast(g: OnnxGenerator) -> Tensor:
    x = g.value()
    to = g.pick((TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL))
    return g.op("Cast", x, to=to)


# Movement


@production
def transpose(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 2)
    if g.chance(0.2):
        return g.op("Transpose", x)
    return g.op("Transpose", x, perm=[int(k) for k in g.random.permutation(x.rank)])


@production
def flatten(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 1)
    return g.op("Flatten", x, axis=g.between(0, x.rank))


@production
def reshape_with_zero(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 2)
    kept = g.between(0, x.rank - 1)
    return g.op("Reshape", x, g.constant([0] * kept + [-1]))


@production
def reshape_by_shape(g: OnnxGenerator) -> Tensor:
    """The first extent by a shape subgraph, the rest flattened, or split into pieces."""
    x = g.value(lambda x: x.rank >= 2)
    axis = g.between(0, x.rank - 1)
    parts = [g.extent_of(x, axis), g.constant([-1])]
    if g.chance(0.3):
        parts.insert(g.between(0, 2), g.constant([1]))
    return g.op("Reshape", x, g.op("Concat", *parts, axis=0))


@production
def split_heads(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 2 and x.fixed(x.rank - 1) in (4, 6, 8))
    heads = g.pick((2, x.fixed(x.rank - 1) // 2))
    lead = [g.extent_of(x, axis) for axis in range(x.rank - 1)]
    shape = g.op("Concat", *lead, g.constant([heads, -1]), axis=0)
    return g.op("Transpose", g.op("Reshape", x, shape), perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2, x.rank])


@production
def squeeze_or_not(g: OnnxGenerator) -> Tensor:
    x = g.value()
    ones = [axis for axis in range(x.rank) if x.fixed(axis) == 1]
    if ones and g.chance(0.6):
        return g.op("Squeeze", x, g.constant([g.pick(ones)]))
    return g.op("Unsqueeze", x, g.constant([g.between(-x.rank - 1, x.rank)]))


@production
def expand(g: OnnxGenerator) -> Tensor:
    x = g.value()
    if g.chance(0.5):
        other = g.value(lambda y: y.rank >= x.rank)
        return g.op("Expand", x, g.op("Shape", other))
    return g.op("Expand", x, g.constant([g.between(1, 3), *[1] * x.rank]))


@production
def tile(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 1 and x.dtype != np.bool_)
    return g.op("Tile", x, g.constant([g.between(1, 2) for _ in range(x.rank)]))


@production
def slice_fixed(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 1 and min(x.shapes[0]) >= 1)
    axis = g.axis(x)
    if g.chance(0.4):
        step = -g.between(1, 2)
        start, end = g.pick(((-1, np.iinfo(np.int64).min), (np.iinfo(np.int64).max, np.iinfo(np.int64).min), (-1, 0)))
    else:
        step = g.between(1, 3)
        start, end = g.pick(((0, -1), (1, np.iinfo(np.int64).max), (-2, 100), (0, 2)))
    result = g.op("Slice", x, g.constant([start]), g.constant([end]), g.constant([axis]), g.constant([step]))
    if any(0 in shape for shape in result.shapes):
        raise GaveUp
    return result


@production
def slice_by_shape(g: OnnxGenerator) -> Tensor:
    """The first part of an axis whose length comes from a shape subgraph."""
    x = g.value(lambda x: x.rank >= 1)
    axis = g.between(0, x.rank - 1)
    if min(x.extents(axis)) < 2:
        raise GaveUp
    extent = g.extent_of(x, axis)
    how = g.between(0, 2)
    if how == 0:
        end = g.op("Sub", extent, g.constant([1]))
    elif how == 1:
        end = g.op("Div", extent, g.constant([2]))
    else:
        end = g.op("Div", g.op("Add", extent, g.constant([1])), g.constant([2]))
    start = g.constant([0])
    if g.chance(0.3):
        start, end = end, extent
    result = g.op("Slice", x, start, end, g.constant([axis]))
    if any(0 in shape for shape in result.shapes):
        raise GaveUp
    return result


@production
def concat(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 1)
    axis = g.axis(x)
    parts = [x]
    for _ in range(g.between(1, 2)):
        def fits(y: Tensor) -> bool:
            return y.dtype == x.dtype and y.rank == x.rank and all(
                a[:k] + a[k + 1 :] == b[:k] + b[k + 1 :]
                for a, b in zip(x.shapes, y.shapes)
                for k in [axis % x.rank]
            )

        parts.append(g.value(fits))
    return g.op("Concat", *parts, axis=axis)


@production
def split(g: OnnxGenerator) -> list[Tensor]:
    x = g.value(lambda x: any((x.fixed(axis) or 0) >= 2 for axis in range(x.rank)))
    axis = g.pick([axis for axis in range(x.rank) if (x.fixed(axis) or 0) >= 2])
    extent = x.fixed(axis)
    if g.chance(0.3):
        return g.op("Split", x, outputs=2, axis=axis, num_outputs=2)
    first = g.between(1, extent - 1)
    return g.op("Split", x, g.constant([first, extent - first]), outputs=2, axis=axis)


@production
def pad(g: OnnxGenerator) -> Tensor:
    x = g.float_value(1)
    mode = g.pick(("constant", "constant", "reflect", "edge", "wrap"))
    amounts = []
    for axis in range(x.rank):
        most = min(x.extents(axis)) - 1 if mode in ("reflect", "wrap") else 2
        amounts.append(g.between(0, min(2, most)) if g.chance(0.6) else 0)
    after = [amount if mode == "reflect" else g.between(0, amount) for amount in amounts]
    return g.op("Pad", x, g.constant([*amounts, *after]), g.constant(g.pick((0.0, 1.5)), np.float32), mode=mode)


@production
def depth_to_space(g: OnnxGenerator) -> Tensor:
    x = g.float_value(1)
    if x.rank == 4 and (x.fixed(1) or 1) % 4 == 0:
        return g.op("DepthToSpace", x, blocksize=2, mode=g.pick(("DCR", "CRD")))
    if x.rank == 4 and all((x.fixed(axis) or 1) % 2 == 0 for axis in (2, 3)):
        return g.op("SpaceToDepth", x, blocksize=2)
    raise GaveUp


@production
def trilu(g: OnnxGenerator) -> Tensor:
    x = g.float_value(2)
    return g.op("Trilu", x, g.constant(g.between(-1, 1)), upper=g.between(0, 1))


@production
def resize(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.is_float and x.rank in (3, 4))
    scales = [1.0, 1.0, *[g.pick((1.0, 2.0, 2.0, 3.0)) for _ in range(x.rank - 2)]]
    mode = g.pick(("nearest", "linear"))
    where_ = g.pick(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    attributes = {"nearest_mode": g.pick(("floor", "round_prefer_floor", "ceil"))} if mode == "nearest" else {}
    scale = g.constant(scales, np.float32)
    return g.op("Resize", x, None, scale, mode=mode, coordinate_transformation_mode=where_, **attributes)


# Shapes as values


@production
def range_of_extent(g: OnnxGenerator) -> Tensor:
    x = g.float_value(1)
    axis = x.rank - 1
    extent = g.op("Squeeze", g.extent_of(x, axis), g.constant([0]))
    places = g.op("Range", g.constant(0), extent, g.constant(1))
    scaled = g.op("Mul", g.op("Cast", places, to=TensorProto.FLOAT), g.constant(0.25, np.float32))
    return g.op("Add", x, g.op("Sin", scaled))


@production
def constant_of_shape(g: OnnxGenerator) -> Tensor:
    x = g.float_value()
    value = numpy_helper.from_array(np.array([0.5], np.float32))
    filled = g.op("ConstantOfShape", g.op("Shape", x), value=value)
    return g.op(g.pick(("Add", "Mul")), x, filled)


@production
def size(g: OnnxGenerator) -> Tensor:
    x = g.value()
    total = g.op("Size", x)
    wide = g.op("Cast", total, to=TensorProto.FLOAT)
    return g.op("Reciprocal", g.op("Add", wide, g.constant(1.0, np.float32)))


@production
def masked(g: OnnxGenerator) -> Tensor:
    """A causal mask built from the extents, as attention has."""
    x = g.float_value(2)
    rows, columns = (g.op("Squeeze", g.extent_of(x, axis), g.constant([0])) for axis in (x.rank - 2, x.rank - 1))
    row = g.op("Unsqueeze", g.op("Range", g.constant(0), rows, g.constant(1)), g.constant([1]))
    column = g.op("Range", g.constant(0), columns, g.constant(1))
    return g.op("Where", g.op("LessOrEqual", column, row), x, g.constant(-1.0, np.float32))


# Rows


@production
def reduced(g: OnnxGenerator) -> Tensor:
    x = g.float_value(1)
    kind = g.pick(
        ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
         "ReduceLogSumExp")
    )
    keepdims = g.between(0, 1)
    if g.chance(0.2):
        return g.op(kind, x, keepdims=keepdims)
    count = g.between(1, min(2, x.rank))
    axes = sorted(int(k) for k in g.random.permutation(x.rank)[:count])
    return g.op(kind, x, g.constant([axis - x.rank if g.chance(0.3) else axis for axis in axes]), keepdims=keepdims)


@production
def integer_reduced(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.dtype in (np.int64, np.int32) and x.rank >= 1)
    return g.op(g.pick(("ReduceSum", "ReduceMax", "ReduceMin")), x, g.constant([g.axis(x)]), keepdims=g.between(0, 1))


@production
def softmax(g: OnnxGenerator) -> Tensor:
    x = g.float_value(1)
    return g.op(g.pick(("Softmax", "Softmax", "LogSoftmax", "Hardmax")), x, axis=g.axis(x))


@production
def layer_normalization(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.is_float and x.rank >= 1 and (x.fixed(x.rank - 1) or 0) >= 2)
    width = x.fixed(x.rank - 1)
    bias = [g.floats(width)] if g.chance(0.6) else []
    return g.op("LayerNormalization", x, g.floats(width), *bias, axis=-1, epsilon=1e-2)


@production
def layer_norm_by_hand(g: OnnxGenerator) -> Tensor:
    x = g.float_value(1)
    mean = g.op("ReduceMean", x, g.constant([-1]))
    centred = g.op("Sub", x, mean)
    square = g.op("ReduceMean", g.op("Pow", centred, g.constant(2.0, np.float32)), g.constant([-1]))
    return g.op("Div", centred, g.op("Sqrt", g.op("Add", square, g.constant(0.01, np.float32))))


@production
def channel_normalization(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.is_float and x.rank in (3, 4) and x.fixed(1) is not None)
    channels = x.fixed(1)
    scale, bias = g.floats(channels), g.floats(channels)
    if g.chance(0.5):
        return g.op("InstanceNormalization", x, scale, bias, epsilon=1e-2)
    variance = g.constant(np.abs(g.data(np.float32, (channels,))) + 0.5, np.float32)
    return g.op("BatchNormalization", x, scale, bias, g.floats(channels), variance)


@production
def best(g: OnnxGenerator) -> Tensor:
    x = g.float_value(1)
    return g.op(
        g.pick(("ArgMax", "ArgMin")), x, axis=g.axis(x), keepdims=g.between(0, 1), select_last_index=g.between(0, 1)
    )


@production
def top_k(g: OnnxGenerator) -> list[Tensor]:
    x = g.value(lambda x: x.is_float and x.rank >= 1 and min(x.extents(x.rank - 1)) >= 2)
    return g.op("TopK", x, g.constant([g.between(1, 2)]), outputs=2, axis=-1, largest=g.between(0, 1))


@production
def cumulative(g: OnnxGenerator) -> Tensor:
    x = g.float_value(1)
    return g.op("CumSum", x, g.constant(g.axis(x)), exclusive=g.between(0, 1), reverse=g.between(0, 1))


# Products


@production
def matmul(g: OnnxGenerator) -> Tensor:
    x = g.float_value(1)
    depth = x.fixed(x.rank - 1)
    options = [y for y in g.pool if y.is_float and y.rank >= 2 and y.extents(y.rank - 2) == x.extents(x.rank - 1)]
    if options and g.chance(0.5):
        return g.op("MatMul", x, g.pick(options))
    if depth is None:
        flipped = g.op("Transpose", x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2]) if x.rank >= 2 else x
        return g.op("MatMul", x, flipped)
    result = g.op("MatMul", x, g.floats(depth, g.pick((1, 3, 4, 8))))
    return g.op("Add", result, g.partner(result)) if g.chance(0.5) else result


@production
def gemm(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.is_float and x.rank == 2)
    flip_x, flip_y = g.between(0, 1), g.between(0, 1)
    depth = x.fixed(0 if flip_x else 1)
    if depth is None:
        raise GaveUp
    width = g.pick((1, 3, 4))
    y = g.floats(*((width, depth) if flip_y else (depth, width)))
    bias = g.pick(((), (g.floats(width),), (g.floats(1),), (g.floats(1, width),)))
    return g.op("Gemm", x, y, *bias, transA=flip_x, transB=flip_y, alpha=g.pick((1.0, 0.5)), beta=g.pick((1.0, 0.25)))


@production
def einsum(g: OnnxGenerator) -> Tensor:
    x = g.float_value(2)
    letters = "abcdef"[: x.rank]
    if g.chance(0.5):
        return g.op("Einsum", x, x, equation=f"...{letters[-1]},...{letters[-1]}->...")
    return g.op("Einsum", x, equation=f"{letters}->{letters[-1]}{letters[0]}")


@production
def convolution(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.is_float and x.rank in (3, 4) and x.fixed(1) is not None)
    spatial, channels = x.rank - 2, x.fixed(1)
    kernel = [g.between(1, 3) for _ in range(spatial)]
    attributes = {"strides": [g.pick((1, 1, 2)) for _ in range(spatial)]}
    if g.chance(0.3):
        attributes["auto_pad"] = g.pick(("SAME_UPPER", "SAME_LOWER"))
        # Of a transposed convolution, onnxruntime's result is smaller than the standard says where a stride skips the kernel.
        kernel = [max(pair) for pair in zip(kernel, attributes["strides"])]
    else:
        attributes["pads"] = [g.between(0, 2) for _ in range(2 * spatial)]
    if g.chance(0.3):
        groups = g.pick([k for k in (1, 2, channels) if channels % k == 0])
        w = g.floats(channels, g.between(1, 2), *kernel)
        return g.op("ConvTranspose", x, w, **attributes) if groups else x
    groups = g.pick([k for k in (1, 1, 2, channels) if channels % k == 0])
    attributes["dilations"] = [g.pick((1, 1, 2)) for _ in range(spatial)]
    maps = groups * g.between(1, 2)
    bias = [g.floats(maps)] if g.chance(0.5) else []
    return g.op("Conv", x, g.floats(maps, channels // groups, *kernel), *bias, group=groups, **attributes)


@production
def pooling(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.is_float and x.rank in (3, 4))
    spatial = x.rank - 2
    if g.chance(0.2):
        return g.op(g.pick(("GlobalAveragePool", "GlobalMaxPool")), x)
    kernel = [g.between(1, 3) for _ in range(spatial)]
    attributes = {"kernel_shape": kernel, "strides": [g.between(1, 2) for _ in range(spatial)]}
    attributes["pads"] = [g.between(0, k - 1) for k in (*kernel, *kernel)]
    attributes["ceil_mode"] = g.between(0, 1)
    if g.chance(0.5):
        return g.op("MaxPool", x, **attributes)
    return g.op("AveragePool", x, count_include_pad=g.between(0, 1), **attributes)


# Indexing by data


@production
def gather(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 1)
    axis = g.axis(x)
    least = min(x.extents(axis))
    shape = g.pick(((), (3,), (2, 2)))
    return g.op("Gather", x, g.constant(g.random.integers(-least, least, shape)), axis=axis)


@production
def gather_by_data(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 1 and x.fixed(0) is not None)
    index = g.value(lambda y: y.dtype in (np.int64, np.int32) and y.rank <= 2)
    place = g.op("Mod", index, g.constant(x.fixed(0), index.dtype.type))
    return g.op("Gather", x, place, axis=0)


@production
def gather_elements(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 1 and all(x.fixed(axis) is not None for axis in range(x.rank)))
    axis = g.between(0, x.rank - 1)
    shape = list(x.shapes[0])
    shape[axis] = g.between(1, 4)
    extent = x.fixed(axis)
    return g.op("GatherElements", x, g.constant(g.random.integers(-extent, extent, shape)), axis=axis)


@production
def gather_nd(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.rank >= 2)
    index = np.stack([g.random.integers(0, min(x.extents(axis)), (3,)) for axis in range(g.between(1, 2))], -1)
    return g.op("GatherND", x, g.constant(index))


@production
def scatter_elements(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.is_float and x.rank >= 1)
    axis = g.between(0, x.rank - 1)
    shape = [min(x.extents(k)) for k in range(x.rank)]
    extent = shape[axis]
    index = np.argsort(g.random.random(shape), axis)  # no place twice, where onnxruntime's order would count
    options = {} if g.chance(0.5) else {"reduction": g.pick(("add", "mul", "max", "min"))}
    if extent > 1 and g.chance(0.5):
        index = np.take(index, range(g.between(1, extent)), axis)
    return g.op("ScatterElements", x, g.constant(index), g.floats(*index.shape), axis=axis, **options)


@production
def scatter_nd(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.is_float and x.rank >= 1 and all(x.fixed(k) is not None for k in range(1, x.rank)))
    least = min(x.extents(0))
    index = g.random.permutation(least)[: g.between(1, least)].reshape(-1, 1)
    updates = g.floats(len(index), *[x.fixed(k) for k in range(1, x.rank)])
    options = {} if g.chance(0.6) else {"reduction": "add"}
    return g.op("ScatterND", x, g.constant(index), updates, **options)


@production
def one_hot(g: OnnxGenerator) -> Tensor:
    index = g.value(lambda x: x.dtype == np.int64 and x.rank <= 3)
    return g.op("OneHot", index, g.constant([g.between(2, 5)]), g.constant([0.0, 1.0], np.float32), axis=-1)


@production
def quantized(g: OnnxGenerator) -> Tensor:
    x = g.float_value()
    scale, zero = g.constant(0.125, np.float32), g.constant(g.between(0, 3), g.pick((np.uint8, np.int8)))
    return g.op("DequantizeLinear", g.op("QuantizeLinear", x, scale, zero), scale, zero)


@production
def attention(g: OnnxGenerator) -> Tensor:
    x = g.value(lambda x: x.is_float and x.rank == 3 and x.fixed(2) is not None)
    width = x.fixed(2)
    q, k, v = (g.op("MatMul", x, g.floats(width, 4)) for _ in range(3))
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 2, 1]))
    scores = g.op("Div", scores, g.constant(2.0, np.float32))
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), v)


@production
def fresh(g: OnnxGenerator) -> Tensor:
    rank = g.between(1, 4)
    extents = [g.pick((1, 2, 3, 4, 5, 8)) for _ in range(rank)]
    if g.dims and g.chance(0.5):
        extents[0] = g.pick(list(g.dims))
    return g.input(g.pick((np.float32, np.float32, np.int64)), extents)
