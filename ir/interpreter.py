"""What a graph means, in NumPy. The oracle for every kernel, rewrite and candidate; it shares no code with them.

A multiplication that only feeds a sum is not stored: the two are contracted blockwise (`contraction`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..plan.dims import evaluate
from ..plan.dtypes import float64
from ..plan.errors import InvalidInput, LuminalError
from .contraction import sum_of_products
from .control import BRANCH, LOOP, Loop, loop_of
from .feeds import Feeds, bind_feeds, bind_size
from .graph import Graph, Node, TensorType, Value
from .primitives import primitive, shape_at


def run(graph: Graph, feeds: Feeds, dims: Mapping[str, int] | None = None, wide: bool = False) -> list[np.ndarray]:
    """Return the outputs for feeds, given by input name or in signature order. The arrays are the caller's own.

    Dims are found from the shapes of the feeds; `dims` adds those that no shape shows. `wide` computes all floats in
    float64 and returns them so; integers stay exact either way.
    """
    arrays, env = bind_feeds(graph, feeds, dims)
    return _Run(graph, arrays, env, wide).outputs()


@dataclass(frozen=True)
class _Step:
    """One node to evaluate and the values that it reads; for a contraction, those behind the product's views."""

    node: Node
    reads: tuple[Value, ...]
    product: Node | None = None


def _steps(graph: Graph) -> list[_Step]:
    """Return the nodes to evaluate, in order: those that an output needs, less products that are contracted."""
    nodes = graph.nodes()
    uses = Counter(value for node in nodes for value in node.inputs)
    uses.update(graph.outputs)
    uses.update(size.value for size in graph.sizes.values())
    steps: dict[int, _Step] = {}
    for node in nodes:
        product = node.inputs[0].node if node.op == "reduce" and node.attrs["fn"] == "sum" else None
        if product is not None and product.op == "elementwise" and product.attrs["fn"] == "mul" and (
            uses[node.inputs[0]] == 1
        ):
            steps[id(node)] = _Step(node, tuple(_behind_view(value) for value in product.inputs), product)
        else:
            steps[id(node)] = _Step(node, node.inputs)
    needed = {id(value.node) for value in (*graph.inputs, *graph.outputs, *(s.value for s in graph.sizes.values()))}
    for node in reversed(nodes):
        if id(node) in needed:
            needed.update(id(value.node) for value in steps[id(node)].reads)
    return [steps[id(node)] for node in nodes if id(node) in needed]


def _behind_view(value: Value) -> Value:
    return value.node.inputs[0] if value.node.op == "view" else value


class _Run:
    def __init__(
        self,
        graph: Graph,
        arrays: Sequence[np.ndarray],
        env: Mapping[str, int],
        wide: bool,
        steps: Sequence[_Step] | None = None,
    ) -> None:
        self.graph = graph
        self.env = dict(env)
        self.wide = wide
        self.steps = _steps(graph) if steps is None else steps
        self.fed = {id(value.node): array for value, array in zip(graph.inputs, arrays, strict=True)}
        self.values: dict[Value, np.ndarray] = {}

    def outputs(self) -> list[np.ndarray]:
        left = Counter(value for step in self.steps for value in step.reads)
        left.update(self.graph.outputs)
        for step in self.steps:
            results = dict(zip(step.node.outputs, self.evaluate(step), strict=True))
            for value, result in results.items():
                self.bind_sizes(value, result)
            for value, result in results.items():
                self.check(value, result)
                if left[value]:
                    self.values[value] = result
            for value in step.reads:
                left[value] -= 1
                if not left[value]:
                    self.values.pop(value, None)
        return [np.array(self.values[value], order="C") for value in self.graph.outputs]

    def bind_sizes(self, value: Value, result: np.ndarray) -> None:
        """Give their values to the symbols that stand for what was computed; a loop counts its trips itself."""
        for name, size in self.graph.sizes.items():
            if size.value == value and name != value.node.attrs.get("count"):
                self.env[name] = bind_size(name, size.least, size.most, int(result), self.env)

    def evaluate(self, step: _Step) -> list[np.ndarray]:
        node = step.node
        try:
            if step.product is not None:
                return [self.contract(step)]
            if node.op == "input":
                return [self.widened(self.fed[id(node)])]
            operands = [self.values[value] for value in step.reads]
            if node.op == LOOP:
                results = self.loop(loop_of(node), operands)
            elif node.op == BRANCH:
                chosen = node.attrs["then" if bool(operands[0]) else "otherwise"]
                results = _Run(chosen, operands[1:], self.env, self.wide).outputs()
            else:
                result = primitive(node.op).reference(operands, node.attrs, self.wide_type(node.types[0]), self.env)
                results = [self.widened(result) if node.op == "constant" else result]
        except (LuminalError, KeyError, ZeroDivisionError, ValueError) as error:
            raise _with_place(error, node) from error
        return results

    def check(self, value: Value, result: np.ndarray) -> None:
        """Raise LuminalError if what was computed is not of the value's type."""
        type = self.wide_type(value.type)
        if result.shape != shape_at(type.shape, self.env) or result.dtype != type.dtype.numpy:
            raise LuminalError(
                f"{_place(value.node)} made {result.dtype}{list(result.shape)} instead of {type} at {dict(self.env)}"
            )

    def loop(self, loop: Loop, operands: list[np.ndarray]) -> list[np.ndarray]:
        """Run the body until the trips are made or its condition is false."""
        goes_on = bool(operands[0]) if loop.conditional else True
        states = operands[loop.conditional : loop.conditional + loop.states]
        captured = operands[loop.conditional + loop.states :]
        most = None if loop.trips is None else int(evaluate(loop.trips, self.env))
        rows: list[list[np.ndarray]] = [[] for _ in loop.body.outputs[loop.conditional + loop.states :]]
        steps = _steps(loop.body)
        trip = 0
        while goes_on and (most is None or trip < most):
            results = _Run(
                loop.body, [*states, *captured], {**self.env, loop.trip: trip}, self.wide, steps
            ).outputs()
            goes_on = bool(results[0]) if loop.conditional else True
            states = results[loop.conditional : loop.conditional + loop.states]
            for row, result in zip(rows, results[loop.conditional + loop.states :], strict=True):
                row.append(result)
            trip += 1
        if loop.count is not None:
            self.env[loop.count] = trip
        return [*states, *map(self.stacked, rows, loop.body.outputs[loop.conditional + loop.states :])]

    def stacked(self, rows: list[np.ndarray], value: Value) -> np.ndarray:
        if rows:
            return np.stack(rows)
        type = self.wide_type(value.type)
        return np.zeros((0, *shape_at(type.shape, self.env)), type.dtype.numpy)

    def widened(self, array: np.ndarray) -> np.ndarray:
        is_float = array.dtype.kind not in "iub"
        return array.astype(np.float64) if self.wide and is_float else array

    def wide_type(self, type: TensorType) -> TensorType:
        return TensorType(float64, type.shape) if self.wide and type.dtype.is_float else type

    def contract(self, step: _Step) -> np.ndarray:
        product, type = step.product, self.wide_type(step.node.types[0])
        space = shape_at(product.types[0].shape, self.env)
        if 0 in space:  # nothing to read, so that a view may well read nothing where it repeats
            return np.zeros(shape_at(type.shape, self.env), type.dtype.numpy)
        factors = [
            self.compact(original, self.values[value])
            for original, value in zip(product.inputs, step.reads, strict=True)
        ]
        result = sum_of_products(*factors, space, step.node.attrs["count"], type.dtype.compute.numpy)
        return result.astype(type.dtype.numpy, copy=False)

    def compact(self, original: Value, array: np.ndarray) -> np.ndarray:
        """Return the factor with extent 1 along the axes that its view repeats, so that repeats are never stored."""
        if original.node.op != "view":
            return array
        view = original.node.attrs["view"]
        repeated = view.broadcast_axes()
        shape = tuple(1 if axis in repeated else extent for axis, extent in enumerate(view.out_shape))
        return replace(view, out_shape=shape).apply(array, self.env)


def _place(node: Node) -> str:
    names = ", ".join(node.origin) or "no named node"
    what = f"{node.op} {node.attrs['fn']}" if "fn" in node.attrs else node.op
    return f"{what} (from {names})"


def _with_place(error: Exception, node: Node) -> Exception:
    message = error.args[0] if error.args else str(error)
    kind = InvalidInput if isinstance(error, KeyError) else LuminalError  # a KeyError is a dim without a value
    if isinstance(error, LuminalError):
        kind = type(error)
    return kind(f"{_place(node)}: {message}")
