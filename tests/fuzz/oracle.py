"""What a graph means, and how sure that is: the interpreter in float64, and how far rounding moves each element.

A comparison flips, an argmax moves, a difference cancels: after a few operations a fixed tolerance is wrong for some
elements and too wide for the rest. So the graph is evaluated again with every inexact operation disturbed by a few
units in the last place of its dtype, and so is each use of its result, since kernels may compute a value again and
round it otherwise. Where a function jumps (`jumps`) within what its operands may be off, samples fall on both sides. What
moves little must be met closely; what moves much says nothing and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from luminal_onnx.ir.graph import Graph, Node, TensorType, Value
from luminal_onnx.ir.interpreter import run
from luminal_onnx.ir.primitives import cast_dtype, primitive, shape_at
from luminal_onnx.plan.dtypes import DType, float64
from tolerances import ELEMENTWISE

from .jumps import choices

Feeds = Mapping[str, np.ndarray]
Dims = Mapping[str, int]

SAMPLES = 6
_ULPS = 2.0  # how far one operation is disturbed
_SLACK = 4.0  # how much farther than the samples a right result may be
_LOOSE = 0.05  # an element whose tolerance exceeds this share of the peak says nothing
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_SMALLEST = {"float64": 1e-300, "float32": 2e-38, "float16": 6.1e-5 * 2**-8, "bfloat16": 2e-38}
_LARGEST = {"float64": 1.7e308, "float32": 3.4e38, "float16": 65504.0, "bfloat16": 3.3e38}
_EXACT_TEXT = """
neg abs sign min max floor ceil trunc round_even where less less_equal greater greater_equal equal not_equal isnan isinf
and or xor not
"""
_EXACT_ROWS = frozenset(_EXACT_TEXT.split())


class Evaluation:
    """Evaluates nodes in float64, each once."""

    def __init__(self, feeds: Feeds, dims: Dims) -> None:
        self.feeds, self.dims = feeds, dict(dims)
        self._known: dict[int, object] = {}
        self._kept: list[Node] = []  # so that no id is used twice

    def of(self, value: Value) -> np.ndarray:
        """Return the value's array; floats are float64."""
        return self._of(value)

    def _of(self, value: Value):
        stack = [value.node]
        while stack:
            node = stack[-1]
            if id(node) in self._known:
                stack.pop()
                continue
            missing = [operand.node for operand in node.inputs if id(operand.node) not in self._known]
            if missing:
                stack.extend(missing)
                continue
            self._known[id(node)] = self._evaluate(node)
            self._kept.append(node)
            stack.pop()
        return self._known[id(value.node)]

    def _evaluate(self, node: Node) -> np.ndarray:
        if node.op == "input":
            return widened(self.feeds[node.attrs["name"]])
        if node.op == "constant":
            return widened(node.attrs["data"])
        return self.computed(node, [self._known[id(operand.node)] for operand in node.inputs])

    def computed(self, node: Node, operands: list[np.ndarray]) -> np.ndarray:
        """Return what a node makes of these operands."""
        type = node.types[0]
        wide = TensorType(float64, type.shape) if type.dtype.is_float else type
        return primitive(node.op).reference(operands, node.attrs, wide, self.dims)


class Disturbed(Evaluation):
    """Evaluates nodes several times side by side, with every inexact operation disturbed."""

    def __init__(self, exact: Evaluation, samples: int = SAMPLES, seed: int = 0) -> None:
        super().__init__(exact.feeds, exact.dims)
        self.exact = exact
        self.noises = [np.random.default_rng((seed, number)) for number in range(samples)]
        self._inexact: set[int] = set()

    def of(self, value: Value) -> list[np.ndarray]:
        """Return one array a sample."""
        return self._of(value)

    def _evaluate(self, node: Node) -> list[np.ndarray]:
        if not node.inputs:
            return [self.exact.of(node.output)] * len(self.noises)
        dtype = node.types[0].dtype
        rounds = dtype.is_float and _rounds(node)
        carried = _carries(node) and any(id(operand.node) in self._inexact for operand in node.inputs)
        if dtype.is_float and (rounds or carried):
            self._inexact.add(id(node))
        operands = [[self._read(operand, k) for operand in node.inputs] for k in range(len(self.noises))]
        results = [self.computed(node, sample) for sample in operands]
        if node.op == "elementwise" and any(operand.dtype.is_float for operand in node.inputs):
            results = self._with_jumps(node, operands, results)
        if not rounds:
            return results
        if node.op == "reduce" and node.attrs["fn"] == "sum":
            results = [self._summed(node, k, operands[k][0], result) for k, result in enumerate(results)]
        return [self._disturbed(k, result, dtype) for k, result in enumerate(results)]

    def _read(self, operand: Value, k: int) -> np.ndarray:
        array = self._known[id(operand.node)][k]
        return self._disturbed(k, array, operand.dtype) if id(operand.node) in self._inexact else array

    def _disturbed(self, k: int, array: np.ndarray, dtype: DType) -> np.ndarray:
        with np.errstate(all="ignore"):
            large = np.abs(array) > 0.5 * _LARGEST[dtype.name]  # kernels may well overflow here
            array = np.where(large & np.isfinite(array), np.inf, array)
            relative, absolute = self.noises[k].uniform(-_ULPS, _ULPS, (2, *array.shape))
            return array * (1 + relative * _EPSILON[dtype.name]) + absolute * _SMALLEST[dtype.name]

    def _summed(self, node: Node, k: int, operand: np.ndarray, result: np.ndarray) -> np.ndarray:
        """Disturb a sum as much as adding one term after the other may be off, which grows with their number."""
        axes = tuple(range(operand.ndim - node.attrs["count"], operand.ndim))
        terms = math.prod(shape_at(node.inputs[0].shape, self.dims)[axes[0] :]) if axes else 1
        with np.errstate(all="ignore"):
            mass = np.abs(operand).sum(axis=axes)
            share = self.noises[k].uniform(-1, 1, result.shape) * terms / 8
            off = share * mass * _EPSILON[node.types[0].dtype.compute.name]
            return result + np.where(np.isfinite(off), off, 0.0)

    def _with_jumps(
        self, node: Node, operands: list[list[np.ndarray]], results: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Let each sample fall on either side where an operand may be on either side of a jump."""
        centres, radii = [], []
        for position, operand in enumerate(node.inputs):
            centre = self.exact.of(operand)
            moved = [_distance(sample[position], centre) for sample in operands]
            centres.append(centre)
            radii.append(_SLACK * np.max(moved, axis=0) if operand.dtype.is_float else np.zeros(centre.shape))
        sides = choices(node, centres, radii, lambda points: self.computed(node, points))
        if sides is None:
            return results
        where, options = sides
        for k, noise in enumerate(self.noises):
            drawn = np.full(where.shape, k) if k < len(options) else noise.integers(0, len(options), where.shape)
            results[k] = np.where(where, np.choose(drawn, options), results[k])
        return results


def _distance(array: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return how far elements are apart: 0 between equal infinities or two NaN, infinite if only one is NaN."""
    with np.errstate(all="ignore"):
        same = (array == other) | (np.isnan(array) & np.isnan(other))
        step = np.where(same, 0.0, np.abs(np.subtract(array, other, dtype=np.float64)))
    return np.where(np.isnan(step), np.inf, step)


def _rounds(node: Node) -> bool:
    """Say whether a node that makes floats may round them."""
    target = cast_dtype(node)
    if target is not None:
        source = node.inputs[0].dtype
        return not (source.kind == "b" or (source.is_float and target.bits > source.bits))
    if node.op == "elementwise":
        return node.attrs["fn"] not in _EXACT_ROWS
    return node.op == "scatter" or (node.op == "reduce" and node.attrs["fn"] in ("sum", "prod"))


def _carries(node: Node) -> bool:
    """Say whether a node passes on elements as they are, but for the sign."""
    if node.op == "elementwise":
        return node.attrs["fn"] in ("neg", "abs", "min", "max", "where", "cast")
    return node.op in ("view", "gather", "reduce")


def widened(array: np.ndarray) -> np.ndarray:
    """Return floats as float64, everything else as it is."""
    array = np.asarray(array)
    return array.astype(np.float64) if array.dtype.kind not in "iub" else array


@dataclass(frozen=True)
class Expected:
    """One output: its elements, how far off each may be, and which of them say something."""

    dtype: DType
    values: np.ndarray
    tolerance: np.ndarray
    telling: np.ndarray

    @property
    def share(self) -> float:
        """The share of elements that are compared; 1 of an empty output."""
        return float(self.telling.mean()) if self.telling.size else 1.0

    def wider(self, times: float) -> Expected:
        """Return the same with tolerances so many times as wide."""
        return replace(self, tolerance=self.tolerance * times)

    def difference(self, actual: np.ndarray) -> str | None:
        """Return what is wrong with an output, or None."""
        if actual.dtype != self.dtype.numpy or actual.shape != self.values.shape:
            return f"is {actual.dtype}{list(actual.shape)}, expected {self.dtype}{list(self.values.shape)}"
        got = widened(actual)
        if self.dtype.is_float:
            with np.errstate(invalid="ignore"):
                same = (got == self.values) | (np.isnan(got) & np.isnan(self.values))
                wrong = ~same & ~(np.abs(got - self.values) <= self.tolerance)
        else:
            wrong = got != self.values
        wrong = wrong & self.telling
        if not wrong.any():
            return None
        where = np.argwhere(wrong)[0]
        at = tuple(map(int, where))
        return (
            f"differs in {int(wrong.sum())} of {wrong.size} elements, first at {at}: got {got[at]}, "
            f"expected {self.values[at]} within {self.tolerance[at]:.3g}"
        )


def expect(graph: Graph, feeds: Feeds, dims: Dims, seed: int = 0) -> list[Expected]:
    """Return what each output must be for these feeds. AssertionError if the interpreter contradicts its own nodes."""
    exact = run(graph, feeds, dims, wide=True)
    plain = Evaluation(feeds, dims)
    disturbed = Disturbed(plain, SAMPLES, seed)
    found = []
    for name, value, array in zip(graph.output_names, graph.outputs, exact):
        result = expected_of(value.dtype, array, disturbed.of(value))
        with np.errstate(over="ignore"):
            stepwise = result.difference(plain.of(value).astype(value.dtype.numpy))
        assert stepwise is None, f"the interpreter contradicts its own nodes: output {name!r} {stepwise}"
        found.append(result)
    return found


def expected_of(dtype: DType, array: np.ndarray, samples: Iterable[np.ndarray]) -> Expected:
    """Return what must be met, given the exact elements and disturbed ones."""
    samples = list(samples)
    if not dtype.is_float:
        telling = np.ones(array.shape, bool)
        for sample in samples:
            telling &= sample == array
        return Expected(dtype, array, np.zeros(array.shape), telling)
    with np.errstate(all="ignore"):
        moved = np.zeros(array.shape)
        for sample in samples:
            moved = np.maximum(moved, _distance(sample, array))
        own = ELEMENTWISE[dtype.name]
        finite = np.isfinite(array)
        size = np.where(finite, np.abs(array), 0.0)
        tolerance = own.atol + own.rtol * size + _SLACK * moved
        peak = max(float(size.max(initial=0.0)), 100 * own.atol)
        telling = np.where(finite, tolerance <= max(_LOOSE, 2 * own.rtol) * peak, moved == 0)
    return Expected(dtype, array, np.where(finite, tolerance, 0.0), telling)
