"""Seeded random graphs: chains and diamonds over all primitives, with odd sizes, all dtypes and symbolic dims.

`generate(seed)` returns a case: a graph and feeds at one or more values of its dims. While it grows, every value is
evaluated; one that is too large, mostly NaN or ruled by rounding is squashed or given up, so that comparisons tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.graph import Graph, Value
from luminal_onnx.ir.primitives import shape_at
from luminal_onnx.plan.dims import Dim, Range, index_symbol, symbol, symbols
from luminal_onnx.plan.dtypes import (
    BY_NAME,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint64,
)
from luminal_onnx.plan.errors import LuminalError
from luminal_onnx.plan.view import select, windows

from .oracle import Disturbed, Evaluation, expected_of

LARGEST, WIDE_LARGEST = 3000, 30_000  # elements of one tensor, at the largest dims
_SPACE, _WIDE_SPACE = 60_000, 1_500_000  # points of a product's space
_LIMIT = 30.0  # floats beyond it are squashed
_TELLING = 0.6  # the least share of elements that a value must have that rounding does not rule



def _words(text: str) -> list[str]:
    return text.split()


_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 33)
_WIDE_EXTENTS = (1, 2, 3, 16, 33, 64, 65, 96, 128, 257, 300, 512, 1031)
_FLOATS = ("float32",) * 6 + ("float16",) * 2 + ("bfloat16", "float64")
_INTEGERS = ("int64",) * 3 + ("int32",) * 3 + ("uint8",) * 2 + ("int8", "int16", "uint16", "uint32", "uint64")


@dataclass(frozen=True)
class Binding:
    """Feeds, and the value of each dim that they are for."""

    dims: Mapping[str, int]
    feeds: Mapping[str, np.ndarray]


@dataclass
class Case:
    """A graph, and what to feed it."""

    seed: int
    graph: Graph
    bindings: list[Binding]


class GaveUp(Exception):
    """A production that does not fit what there is."""


def generate(seed: int) -> Case:
    """Return the case of this seed; equal seeds give equal cases."""
    return Generator(seed).case()


@dataclass
class _Growth:
    """The graph at one value of its dims: feeds so far, and evaluations exact and disturbed."""

    dims: dict[str, int]
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    exact: Evaluation = None
    noisy: Disturbed = None

    def __post_init__(self) -> None:
        self.exact = Evaluation(self.feeds, self.dims)
        self.noisy = Disturbed(self.exact, 3)


class Generator:
    """Grows one graph. `pool` holds the values that productions draw from, oldest first."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = np.random.default_rng((seed, 0xF022))
        wide = self.chance(0.12)  # enough for kernels of blocks and tiles
        self.largest, self.space = (WIDE_LARGEST, _WIDE_SPACE) if wide else (LARGEST, _SPACE)
        self.extents = _WIDE_EXTENTS if wide else _EXTENTS
        self.special = self.chance(0.08)  # NaN and infinities among the feeds
        self.names, ranges = self.symbols()
        self.b = Builder(f"seed {seed}", ranges)
        self.growths = [_Growth(dims) for dims in self.values_of_dims()]
        self.pool: list[Value] = []
        self.used: set[int] = set()

    # Drawing

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, options: Sequence):
        return options[int(self.random.integers(len(options)))]

    def between(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high, endpoint=True))

    def symbols(self) -> tuple[list[Dim], dict[str, Range]]:
        if self.chance(0.6):
            return [], {}
        ranges = {}
        for name in ("n", "m")[: self.between(1, 2)]:
            low = self.pick((1, 1, 1, 2, 3, 0))
            high = low + self.pick((3, 6, 12, 29))
            ranges[name] = Range(low, self.between(low, high), high)
        return [symbol(name) for name in ranges], ranges

    def values_of_dims(self) -> list[dict[str, int]]:
        ranges = self.b.ranges
        if not ranges:
            return [{}]
        inside = {name: self.between(max(r.min, 1), r.max) for name, r in ranges.items()}
        least = {name: r.min for name, r in ranges.items()}
        most = {name: r.max for name, r in ranges.items()}
        return [dict(t) for t in dict.fromkeys(tuple(d.items()) for d in (inside, most, least))]

    def size(self, shape: Sequence[Dim]) -> int:
        """The most elements that a tensor of this shape has."""
        return max(math.prod(shape_at(shape, growth.dims)) for growth in self.growths)

    def extent(self) -> Dim:
        if self.names and self.chance(0.4):
            return self.pick(self.names)
        return 0 if self.chance(0.015) else self.pick(self.extents)

    def shape(self, rank: int | None = None, most: int | None = None) -> tuple[Dim, ...]:
        rank = self.pick((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5)) if rank is None else rank
        shape = [self.extent() for _ in range(rank)]
        while self.size(shape) > (most or self.largest):
            shape[self.between(0, rank - 1)] = self.pick((1, 2, 3))
        return tuple(shape)

    def dtype(self) -> DType:
        kind = self.random.random()
        names = _FLOATS if kind < 0.7 else _INTEGERS if kind < 0.93 else ("bool",)
        return BY_NAME[self.pick(names)]

    def value(self, fits: Callable[[Value], bool] = lambda value: True) -> Value:
        """Return a value that fits, mostly a recent one."""
        options = [value for value in self.pool if fits(value)]
        if not options:
            raise GaveUp
        return self.pick(options[-4:] if self.chance(0.6) else options)

    def float_value(self, least_rank: int = 0) -> Value:
        return self.value(lambda value: value.dtype.is_float and value.type.rank >= least_rank)

    def integer_value(self) -> Value:
        return self.value(lambda value: value.dtype.is_integer)

    # Sources

    def data(self, dtype: DType, shape: Sequence[int], of_input: bool = False) -> np.ndarray:
        if dtype is bool_:
            return self.random.random(shape) < 0.5
        if dtype.is_integer:
            wide = self.chance(0.1)
            info = np.iinfo(dtype.numpy)
            low, high = (info.min, info.max) if wide else (max(-6, info.min), 9)
            return np.asarray(self.random.integers(low, high, shape, dtype=dtype.numpy, endpoint=True))
        array = np.asarray(np.clip(self.random.standard_normal(shape), -2.5, 2.5))
        if of_input and self.special and array.size:
            for special in (np.nan, np.inf, -np.inf):
                array.reshape(-1)[self.between(0, array.size - 1)] = special
        return array.astype(dtype.numpy)

    def source(self, dtype: DType, shape: Sequence[Dim]) -> Value:
        """Return a new input, a constant or a constant that is spread."""
        fixed = not any(symbols(extent) for extent in shape)
        draw = self.random.random()
        if draw < 0.2 and fixed:
            return self.b.constant(self.data(dtype, tuple(shape)))
        if draw < 0.3:
            return self.b.expand(self.b.constant(self.data(dtype, ())), shape)
        value = self.b.input(f"x{len(self.b.graph.inputs)}", dtype, shape)
        for growth in self.growths:
            extents = shape_at(shape, growth.dims)
            growth.feeds[value.node.attrs["name"]] = self.data(dtype, extents, True)
        return value

    def partner(self, x: Value, dtype: DType | None = None) -> Value:
        """Return a value of a dtype (x's) whose shape broadcasts with x's."""
        dtype = dtype or x.dtype
        draw = self.random.random()
        if draw < 0.55:
            options = [y for y in self.pool if self.broadcasts(x, y) and (y.dtype is dtype or self.chance(0.3))]
            if options:
                return self.cast_to(self.pick(options), dtype)
        if draw < 0.65 and x.type.rank:
            axis = self.between(0, x.type.rank - 1)
            return self.cast_to(self.reversed(x, axis), dtype)
        lead = 0 if self.chance(0.7) or not x.type.rank else self.between(0, x.type.rank)
        shape = [1 if self.chance(0.3) else extent for extent in x.shape[lead:]]
        return self.source(dtype, shape)

    def broadcasts(self, *values: Value) -> bool:
        try:
            return self.size(self.b.broadcast_shape(*(value.shape for value in values))) <= self.largest
        except LuminalError:
            return False

    def cast_to(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype is dtype else self.b.cast(x, dtype)

    def reversed(self, x: Value, axis: int) -> Value:
        return self.b.slice_axis(x, axis, x.shape[axis] - 1, x.shape[axis], -1)

    # Keeping values telling

    def squashed(self, x: Value) -> Value:
        if x.dtype.is_float:
            how = self.between(0, 3)
            if how == 0:
                return self.b("tanh", x)
            if how == 1:
                return self.b("div", x, self.b("add", self.b("abs", x), 1.0))
            if how == 2:
                return self.b("min", self.b("max", x, -2.0), 2.0)
            return self.b("sin", x)
        return self.b("floor_mod", x, self.pick((5, 7, 17)))

    def is_telling(self, x: Value) -> bool:
        growth = self.growths[0]
        found = expected_of(x.dtype, growth.exact.of(x), growth.noisy.of(x))
        if found.share < _TELLING:
            return False
        if not x.dtype.is_float or not found.values.size:
            return True
        return np.isfinite(found.values).mean() > 0.5 and self.peak(x) <= 1000

    def peak(self, x: Value) -> float:
        array = np.abs(self.growths[0].exact.of(x).astype(np.float64))
        return float(array[np.isfinite(array)].max(initial=0.0))

    def keep(self, x: Value) -> None:
        """Add a value to the pool, squashed if it is large; GaveUp if it tells nothing."""
        if self.size(x.shape) > self.largest or x.type.rank > 6:
            raise GaveUp
        limit = _LIMIT if x.dtype.is_float else 1e6
        if x.dtype is not bool_ and self.peak(x) > limit and not (x.dtype.is_integer and self.chance(0.5)):
            x = self.squashed(x)
        if x in self.pool or not self.is_telling(x):
            raise GaveUp
        self.pool.append(x)

    # Growing

    def case(self) -> Case:
        for _ in range(self.between(1, 3)):
            self.pool.append(self.source(self.dtype(), self.shape()))
        wanted = self.between(3, 12)
        names = list(PRODUCTIONS)
        weights = np.array([PRODUCTIONS[name][0] for name in names], float)
        weights *= self.random.choice([0.3, 1.0, 3.0], len(names))  # each graph has a taste of its own
        weights /= weights.sum()
        made = 0
        for _ in range(12 * wanted):
            produce = PRODUCTIONS[self.random.choice(names, p=weights)][1]
            try:
                results = produce(self)
                for result in results if isinstance(results, (list, tuple)) else [results]:
                    self.keep(result)
                    made += 1
            except GaveUp:
                continue
            if made >= wanted:
                break
        self.choose_outputs()
        self.show_dims()
        bindings = [Binding(growth.dims, self.needed(growth.feeds)) for growth in self.growths]
        return Case(self.seed, self.b.graph, bindings)

    def show_dims(self) -> None:
        """Add inputs until each dim is the extent of one: that is how a run learns it."""
        shown = {extent for value in self.b.graph.inputs for extent in value.shape}
        for name in self.names:
            if name not in shown:
                value = self.b.input(f"size_{name}", float32, (name,))
                for growth in self.growths:
                    growth.feeds[value.node.attrs["name"]] = self.data(float32, shape_at((name,), growth.dims))

    def needed(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: feeds[name] for name in self.b.graph.input_names}

    def choose_outputs(self) -> None:
        read = {operand for value in self.pool for operand in _below(value)}
        outputs = [value for value in self.pool if value not in read][-4:]
        outputs += [self.pick(self.pool) for _ in range(self.between(0, 2))]
        if self.chance(0.2):
            outputs.append(self.pick(self.b.graph.inputs or self.pool))
        if self.chance(0.15):
            outputs.append(self.b.constant(self.data(float32, (2, 3))))
        if self.chance(0.25):
            outputs.append(self.b.reshape(outputs[0], (_product(outputs[0].shape),)))
        if self.chance(0.15):
            outputs.append(self.b.transpose(outputs[0], range(outputs[0].type.rank)[::-1]))
        if not self.chance(0.1):
            outputs = list(dict.fromkeys(outputs))
        for number, value in enumerate(outputs):
            self.b.output(f"y{number}", value)


def _below(value: Value) -> set[Value]:
    found: set[Value] = set()
    stack = list(value.node.inputs)
    while stack:
        operand = stack.pop()
        if operand not in found:
            found.add(operand)
            stack.extend(operand.node.inputs)
    return found


def _product(shape: Sequence[Dim]) -> Dim:
    result: Dim = 1
    for extent in shape:
        result = result * extent
    return result


PRODUCTIONS: dict[str, tuple[float, Callable[[Generator], Value | Sequence[Value]]]] = {}


def production(weight: float):
    def add(function: Callable[[Generator], Value | Sequence[Value]]):
        PRODUCTIONS[function.__name__] = weight, function
        return function

    return add


# Point by point

_SAFE = _words("sin cos tanh atan asinh erf sigmoid floor ceil trunc round_even sign neg abs")


@production(9)
def unary(g: Generator) -> Value:
    b, x = g.b, g.float_value()
    if g.chance(0.45):
        return b(g.pick(_SAFE), x)
    small, positive = b("tanh", x), b("add", b("abs", x), g.pick((0.25, 0.5, 1.0)))
    fn = g.pick(_words("exp exp2 sinh cosh tan asin acos atanh acosh sqrt rsqrt log log2 recip"))
    if g.chance(0.1):
        return b(fn, x)  # NaN where it has no value
    if fn in ("exp", "exp2", "sinh", "cosh"):
        return b(fn, b("min", x, 2.0) if g.chance(0.5) else small)
    if fn == "tan":
        return b(fn, small)
    if fn in ("asin", "acos", "atanh"):
        return b(fn, b("mul", small, 0.875))
    return b(fn, b("add", b("abs", x), 1.25) if fn == "acosh" else positive)


@production(3)
def integer_unary(g: Generator) -> Value:
    x = g.integer_value()
    return g.b(g.pick(("neg", "abs", "sign", "bit_not")), x)


@production(12)
def binary(g: Generator) -> Value:
    x = g.value(lambda value: value.dtype is not bool_)
    y = g.partner(x)
    x, y = (x, y) if g.chance(0.7) else (y, x)
    if x.dtype.is_integer:
        fn = g.pick(_words("add sub mul min max div floor_mod trunc_mod pow bit_and bit_or bit_xor"))
        return g.b(fn, x, y)
    fn = g.pick(_words("add add sub sub mul mul min max div floor_mod trunc_mod pow"))
    if fn in ("div", "floor_mod", "trunc_mod") and g.chance(0.9):
        y = g.b("add", g.b("abs", y), 0.5)
    if fn == "pow" and g.chance(0.9):
        x = g.b("add", g.b("abs", x), 0.5)
    return g.b(fn, x, y)


@production(2)
def with_number(g: Generator) -> Value:
    x = g.value(lambda value: value.dtype is not bool_)
    if x.dtype.is_integer:
        return g.b(g.pick(_words("add sub mul min max div floor_mod trunc_mod")), x, g.pick((0, 1, 2, 3, 7)))
    return g.b(g.pick(["add", "sub", "mul", "min", "max", "div"]), x, g.pick((0.0, 1.0, -1.0, 0.5, 3.0, 0.1)))


@production(2)
def shift(g: Generator) -> Value:
    x = g.integer_value()
    y = g.partner(x)
    if g.chance(0.8):
        y = g.b("floor_mod", y, g.pick((3, 7, 8)))
    return g.b(g.pick(("shift_left", "shift_right")), x, y)


@production(3)
def comparison(g: Generator) -> Value:
    x = g.value()
    fns = ["equal", "not_equal"]
    if x.dtype is not bool_:
        fns += ["less", "less_equal", "greater", "greater_equal"]
    if x.dtype.is_float and g.chance(0.2):
        return g.b(g.pick(("isnan", "isinf")), x)
    return g.b(g.pick(fns), x, g.partner(x))


@production(3)
def logic(g: Generator) -> Value:
    x = g.value(lambda value: value.dtype is bool_)
    if g.chance(0.25):
        return g.b("not", x)
    return g.b(g.pick(("and", "or", "xor", "min", "max", "equal")), x, g.partner(x))


@production(4)
def where(g: Generator) -> Value:
    x = g.value()
    y = g.partner(x)
    options = [c for c in g.pool if c.dtype is bool_ and g.broadcasts(c, x)]
    condition = g.pick(options) if options and g.chance(0.6) else g.partner(x, bool_)
    if not g.broadcasts(condition, x, y):
        raise GaveUp
    return g.b("where", condition, x, y)


@production(4)
def cast(g: Generator) -> Value:
    x = g.value()
    if x.dtype.is_float and g.chance(0.5):
        return g.b.cast(x, g.pick((float32, float16, bfloat16, float64)))
    return g.b.cast(x, g.dtype())


# Views


@production(3)
def reshape(g: Generator) -> Value:
    x = g.value()
    shape = list(x.shape)
    if len(shape) > 1 and g.chance(0.6):
        at = g.between(0, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    numbers = [k for k, extent in enumerate(shape) if isinstance(extent, int) and extent > 1]
    if numbers and g.chance(0.7):
        at = g.pick(numbers)
        factors = [f for f in range(2, shape[at] + 1) if shape[at] % f == 0]
        factor = g.pick(factors)
        shape[at : at + 1] = [factor, shape[at] // factor] if g.chance(0.5) else [shape[at] // factor, factor]
    if g.chance(0.2):
        shape.insert(g.between(0, len(shape)), 1)
    return g.b.reshape(x, shape)


@production(3)
def permute(g: Generator) -> Value:
    x = g.value(lambda value: value.type.rank >= 2)
    return g.b.transpose(x, [int(k) for k in g.random.permutation(x.type.rank)])


def _least(g: Generator, extent: Dim) -> int:
    return min(shape_at([extent], growth.dims)[0] for growth in g.growths)


@production(4)
def cut(g: Generator) -> Value:
    """A slice of some axes, forwards or backwards."""
    x = g.value(lambda value: value.type.rank >= 1)
    starts, steps, sizes = [0] * x.type.rank, [1] * x.type.rank, list(x.shape)
    for axis, extent in enumerate(x.shape):
        if g.chance(0.4):
            continue
        least = _least(g, extent)
        if least < 2 or g.chance(0.3):
            starts[axis], steps[axis] = (extent - 1, -1) if g.chance(0.6) else (0, 1)
        elif isinstance(extent, int):
            step = g.pick((1, 1, 2, 3))
            size = g.between(0 if g.chance(0.05) else 1, -(-extent // step))
            room = extent - (1 + (size - 1) * step if size else 0)
            start = g.between(0, max(room, 0))
            if size and g.chance(0.4):
                start, step = start + (size - 1) * step, -step
            starts[axis], steps[axis], sizes[axis] = start, step, size
        else:
            lost = g.between(1, least - 1)
            first = g.between(0, lost)
            sizes[axis] = extent - lost
            starts[axis], steps[axis] = (first, 1) if g.chance(0.6) else (first + sizes[axis] - 1, -1)
    return g.b.slice(x, starts, steps, sizes)


@production(2)
def repeat(g: Generator) -> Value:
    x = g.value()
    shape = [g.extent() if extent == 1 else extent for extent in x.shape]
    if g.chance(0.6):
        shape.insert(0, g.extent())
    if g.size(shape) > g.largest:
        raise GaveUp
    return g.b.expand(x, shape)


@production(3)
def padded(g: Generator) -> Value:
    x = g.value(lambda value: value.type.rank >= 1)
    before, after = [0] * x.type.rank, [0] * x.type.rank
    for axis, extent in enumerate(x.shape):
        low = -1 if _least(g, extent) >= 3 and g.chance(0.3) else 0
        if g.chance(0.6):
            before[axis], after[axis] = g.between(low, 3), g.between(low, 3)
            if g.names and g.chance(0.15):
                after[axis] = g.pick(g.names)
    fills = {"f": (0.0, 1.0, -1.5), "i": (0, 3), "u": (0, 3), "b": (False, True)}
    return g.b.pad(x, before, after, g.pick(fills[x.dtype.kind]))


@production(4)
def joined(g: Generator) -> Value:
    x = g.value(lambda value: value.type.rank >= 1)
    axis = g.between(0, x.type.rank - 1)
    parts = [x]
    for _ in range(g.between(1, 3)):
        def fits(y: Value) -> bool:
            return y.dtype is x.dtype and y.type.rank == x.type.rank and all(
                a == b or k == axis for k, (a, b) in enumerate(zip(x.shape, y.shape))
            )

        if g.chance(0.6):
            parts.append(g.value(fits))
        else:
            shape = list(x.shape)
            shape[axis] = g.extent()
            parts.append(g.source(x.dtype, shape))
    return g.b.concat([parts[int(k)] for k in g.random.permutation(len(parts))], axis)


@production(2)
def pieces(g: Generator) -> list[Value]:
    x = g.value(lambda value: any(_least(g, extent) >= 2 for extent in value.shape))
    axis = g.pick([k for k, extent in enumerate(x.shape) if _least(g, extent) >= 2])
    first = g.between(1, _least(g, x.shape[axis]) - 1)
    return g.b.split(x, [first, x.shape[axis] - first], axis)


@production(1)
def diagonal(g: Generator) -> Value:
    x = g.value(lambda value: value.type.rank >= 2 and value.shape[-1] == value.shape[-2])
    shape = x.shape[:-1]
    index = [index_symbol(k) for k in range(x.type.rank - 1)]
    return g.b.view(x, select(x.shape, shape, [*index, index[-1]], g.b.ranges))


@production(2)
def rolled(g: Generator) -> Value:
    x = g.value(lambda value: value.type.rank >= 1 and _least(g, value.shape[-1]) >= 2)
    axis = x.type.rank - 1
    lost = g.between(1, _least(g, x.shape[axis]) - 1)
    first = g.b.slice_axis(x, axis, lost, x.shape[axis] - lost)
    return g.b.concat([first, g.b.slice_axis(x, axis, 0, lost)], axis)


# Rows


def _axes(g: Generator, x: Value) -> list[int]:
    if g.chance(0.5):
        return [x.type.rank - 1]
    count = g.between(1, min(x.type.rank, 3))
    return sorted(int(k) for k in g.random.permutation(x.type.rank)[:count])


@production(8)
def reduced(g: Generator) -> Value:
    x = g.value(lambda value: value.type.rank >= 1)
    fn = g.pick(("max", "min")) if x.dtype is bool_ else g.pick(("sum", "sum", "sum", "prod", "max", "min"))
    return g.b.reduce(fn, x, _axes(g, x), g.chance(0.4))


@production(5)
def back_on_rows(g: Generator) -> Value:
    """A reduction, something of it, and that with every element again."""
    b, x = g.b, g.float_value(1)
    axes = _axes(g, x)
    row = b.reduce(g.pick(("sum", "max", "min")), b(g.pick(("sin", "abs", "neg", "tanh")), x), axes, True)
    if g.chance(0.5):
        row = b(g.pick(("tanh", "sigmoid", "neg")), row)
    if g.chance(0.3):
        row = b("add", row, g.partner(row))
    if not g.broadcasts(x, row):
        raise GaveUp
    return b(g.pick(("add", "sub", "mul", "max")), x, row)


@production(5)
def normalised(g: Generator) -> Value | list[Value]:
    b, x = g.b, g.float_value(1)
    axes = _axes(g, x)
    if any(_least(g, x.shape[axis]) == 0 for axis in axes):
        raise GaveUp
    how = g.between(0, 4)
    if how == 0:
        return b.softmax(x, g.pick(axes))
    if how == 1:
        most = b.reduce("max", x, axes, True)
        return b("add", b("log", b.reduce("sum", b("exp", b("sub", x, most)), axes, True)), most)
    mean = b.mean(x, axes, True)
    centred = b("sub", x, mean)
    if how == 2:
        return [mean, centred]
    square = b.mean(b("mul", centred, centred) if how == 3 else b("mul", x, x), axes, True)
    scale = b("rsqrt", b("add", square, 0.01))
    normal = b("mul", centred if how == 3 else x, scale)
    if g.chance(0.6):
        normal = b("mul", normal, g.partner(normal))
    return [normal, square] if g.chance(0.3) else normal


@production(2)
def best_place(g: Generator) -> Value:
    x = g.value(lambda value: value.type.rank >= 1 and value.dtype is not bool_)
    axis = _axes(g, x)[0]
    arg = g.b.argmax if g.chance(0.6) else g.b.argmin
    return arg(x, axis, g.chance(0.4), g.chance(0.3))


@production(1)
def running_sum(g: Generator) -> Value:
    x = g.value(lambda value: value.type.rank >= 1 and value.dtype is not bool_)
    extent = x.shape[-1]
    if g.size((*x.shape, extent)) > g.space or _least(g, extent) == 0:
        raise GaveUp
    seen = windows(
        x.shape, [x.type.rank - 1], [extent], [1], [1], [extent - 1], [extent], 0.0 if x.dtype.is_float else 0,
        g.b.ranges,
    )
    return g.b.reduce("sum", g.b.view(x, seen), [x.type.rank])


# Products


@production(6)
def product(g: Generator) -> Value:
    kinds = "f" if g.chance(0.85) else "iu"
    x = g.value(lambda value: value.type.rank >= 1 and value.dtype.kind in kinds)
    depth = x.shape[-1]
    options = [y for y in g.pool if y.dtype is x.dtype and y.type.rank >= 2 and y.shape[-2] == depth]
    flipped = [y for y in g.pool if y.dtype is x.dtype and y.type.rank >= 2 and y.shape[-1] == depth]
    draw = g.random.random()
    if draw < 0.3 and options:
        y = g.pick(options)
    elif draw < 0.55 and flipped:
        y = _flipped(g, g.pick(flipped))
    else:
        batch = [1 if g.chance(0.3) else extent for extent in x.shape[:-2]] if g.chance(0.5) else []
        batch = batch[g.between(0, len(batch)) :]
        width = g.extent()
        if g.chance(0.15):
            y = g.source(x.dtype, [depth])
        elif g.chance(0.5):
            y = g.source(x.dtype, [*batch, depth, width])
        else:
            y = _flipped(g, g.source(x.dtype, [*batch, width, depth]))
    try:
        lead = g.b.broadcast_shape(x.shape[:-2], y.shape[:-2])
    except LuminalError:
        raise GaveUp from None
    rows = x.shape[-2] if x.type.rank > 1 else 1
    columns = y.shape[-1] if y.type.rank > 1 else 1
    if g.size((*lead, rows, columns)) > g.largest or g.size((*lead, rows, columns, depth)) > g.space:
        raise GaveUp
    if x.dtype.is_float and g.chance(0.5):
        x = g.b("mul", x, 0.5)
    result = g.b.matmul(x, y)
    if g.chance(0.4):
        result = g.b("add", result, g.partner(result))
    return result


def _flipped(g: Generator, y: Value) -> Value:
    axes = list(range(y.type.rank))
    return g.b.transpose(y, [*axes[:-2], axes[-1], axes[-2]])



@production(2)
def contraction(g: Generator) -> Value:
    """An einsum of two operands with random labels."""
    x = g.value(lambda value: value.type.rank >= 1 and value.dtype.is_float)
    labels = list(range(x.type.rank))
    shared = [label for label in labels if g.chance(0.6)]
    own = [100 + k for k in range(g.between(0, 2))]
    y_labels = [int(k) for k in g.random.permutation([*shared, *own])]
    extents = dict(zip(labels, x.shape)) | {label: g.extent() for label in own}
    if g.size(list(extents.values())) > g.space:
        raise GaveUp
    y = g.source(x.dtype, [extents[label] for label in y_labels])
    everything = [*labels, *own]
    kept = [label for label in everything if g.chance(0.5)]
    out = [int(k) for k in g.random.permutation(kept)]
    if len(out) == len(everything):
        raise GaveUp
    return g.b.contract(x, labels, y, y_labels, out)


@production(3)
def convolution(g: Generator) -> Value:
    x = g.value(
        lambda v: v.type.rank in (3, 4) and v.dtype.is_float and isinstance(v.shape[1], int) and v.shape[1] > 0
    )
    rank, channels = x.type.rank - 2, x.shape[1]
    groups = g.pick([k for k in (1, 1, 2, 3, channels) if channels % k == 0])
    maps = groups * g.between(1, 3)
    kernel, strides, before, after, dilations = [], [], [], [], []
    for extent in x.shape[2:]:
        k, d = g.between(1, 3), g.pick((1, 1, 2))
        low, high = g.between(0, 2), g.between(0, 2)
        if _least(g, extent) + low + high < d * (k - 1) + 1:
            raise GaveUp
        for place, value in zip((kernel, strides, before, after, dilations), (k, g.pick((1, 1, 2)), low, high, d)):
            place.append(value)
    w = g.b.constant(g.data(x.dtype, (maps, channels // groups, *kernel)))
    result = g.b.conv(x, w, strides, before, after, dilations, groups)
    if g.size((*result.shape, *w.shape[1:])) > g.space:
        raise GaveUp
    if g.chance(0.5):
        result = g.b("max", g.b("add", result, g.source(x.dtype, (maps, *[1] * rank))), 0.0)
    return result


@production(2)
def pool(g: Generator) -> Value:
    x = g.value(lambda value: value.type.rank in (2, 3, 4) and value.dtype is not bool_)
    count = g.between(1, min(2, x.type.rank))
    kernel, strides, before, after, dilations = [], [], [], [], []
    for extent in x.shape[-count:]:
        k, d = g.between(1, 3), g.pick((1, 1, 2))
        low, high = g.between(0, k - 1), g.between(0, k - 1)
        if _least(g, extent) + low + high < d * (k - 1) + 1:
            raise GaveUp
        for place, value in zip((kernel, strides, before, after, dilations), (k, g.pick((1, 2, 3)), low, high, d)):
            place.append(value)
    make = g.b.pool_max if g.chance(0.6) else g.b.pool_sum
    return make(x, kernel, strides, before, after, dilations)


# Indexing by data


def _index(g: Generator, extent: Dim, shape: Sequence[Dim] | None = None) -> Value:
    """Return indices into an axis, some negative."""
    if isinstance(extent, int) and extent == 0 or _least(g, extent) == 0:
        raise GaveUp
    dtype = g.pick((int64, int64, int32))
    if shape is None:
        options = [v for v in g.pool if v.dtype.is_integer and v.type.rank <= 3 and g.size(v.shape) <= 64]
        raw = g.pick(options) if options and g.chance(0.5) else g.source(dtype, g.shape(g.between(0, 2), 40))
    else:
        raw = g.source(dtype, shape)
    raw = g.b.cast(raw, int64)
    place = g.b("floor_mod", raw, g.b.dim_value(extent))
    if g.chance(0.3):
        place = g.b("sub", place, g.b.dim_value(extent))
    return g.b.cast(place, dtype) if g.chance(0.3) else place


@production(3)
def take(g: Generator) -> Value:
    data = g.value(lambda value: value.type.rank >= 1)
    axis = g.between(0, data.type.rank - 1)
    index = _index(g, data.shape[axis])
    shape = (*data.shape[:axis], *index.shape, *data.shape[axis + 1 :])
    if g.size(shape) > g.largest:
        raise GaveUp
    return g.b.take(data, index, axis)


@production(2)
def along(g: Generator) -> Value:
    data = g.value(lambda value: value.type.rank >= 1)
    axis = g.between(0, data.type.rank - 1)
    shape = list(data.shape)
    shape[axis] = g.between(1, 5)
    return g.b.gather_elements(data, _index(g, data.shape[axis], shape), axis)


@production(1)
def flat(g: Generator) -> Value:
    """A gather whose indices may lie outside."""
    data, index = g.value(), g.integer_value()
    if index.dtype is uint64 or g.size(data.shape) == 0:
        raise GaveUp
    return g.b.gather_flat(data, index)


@production(3)
def scattered(g: Generator) -> Value:
    dest = g.value()
    shape = g.shape(g.between(0, 2), 60)
    index = g.source(g.pick((int64, int64, int32)), shape)
    if g.chance(0.7):
        index = g.b("mul", index, g.pick((1, 2, 5)))
    options = [v for v in g.pool if v.dtype is dest.dtype and v.shape == index.shape]
    source = g.pick(options) if options else g.source(dest.dtype, index.shape)
    fns = ("none", "max", "min") if dest.dtype is bool_ else ("none", "none", "add", "mul", "max", "min")
    return g.b.scatter_flat(dest, index, source, g.pick(fns))


@production(2)
def iota(g: Generator) -> Value:
    shape = g.shape(g.between(1, 3), 300)
    expr: Dim = g.between(-2, 3)
    for axis in range(len(shape)):
        expr = expr + g.between(-3, 4) * index_symbol(axis)
    if g.names and g.chance(0.4):
        expr = expr + g.pick(g.names)
    value = g.b.iota(shape, expr)
    if g.chance(0.6):
        dtype = g.pick((float32, float32, float16, int32))
        value = g.b.cast(value, dtype)
    return value


@production(2)
def fresh(g: Generator) -> Value:
    return g.source(g.dtype(), g.shape())
