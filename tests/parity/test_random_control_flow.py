"""Random ONNX models of nested loops, scans and branches, from the file to checked kernels, against the interpreter."""

from __future__ import annotations

import random

import luminal_onnx
import numpy as np
import onnx
import pytest
from luminal_onnx.importer import load
from luminal_onnx.ir import interpreter
from luminal_onnx.runtime.session import InferenceSession
from onnx import TensorProto, helper, numpy_helper
from tolerances import MODEL, assert_close

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
DEEPEST = 3


def info(name: str, shape=None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


class RandomModel:
    """A model over vectors of n elements. Values stay within -2..2, since sums pass through tanh."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0
        self.stored: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        scope = ["x", "y"]
        nodes = self.statements(scope, 0, self.random.randint(3, 6))
        inputs = [
            info("x", ["n"]),
            info("y", ["n"]),
            info("trips", [], INT64),
            info("flag", [], BOOL),
            info("z", ["T", "n"]),
        ]
        outputs = [info(name) for name in dict.fromkeys(scope[2:][-3:])]
        graph = helper.make_graph(nodes, "random", inputs, outputs, self.stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def constant(self, value) -> str:
        self.stored.append(numpy_helper.from_array(np.array(value), self.name()))
        return self.stored[-1].name

    def add(self, nodes: list, op: str, *inputs: str, **attributes) -> str:
        output = self.name()
        nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def late(self, scope: list[str]) -> str:
        return self.random.choice(scope[-3:])

    def statements(self, scope: list[str], depth: int, count: int) -> list[onnx.NodeProto]:
        nodes: list[onnx.NodeProto] = []
        makers = [self.binary, self.binary, self.unary]
        if depth < DEEPEST:
            makers += [self.loop, self.loop, self.scan, self.branch]
        for _ in range(count):
            self.random.choice(makers)(nodes, scope, depth)
        return nodes

    def binary(self, nodes: list, scope: list[str], depth: int) -> None:
        op = self.random.choice(["Add", "Sub", "Max"])
        scope.append(self.add(nodes, "Tanh", self.add(nodes, op, self.late(scope), self.random.choice(scope))))

    def unary(self, nodes: list, scope: list[str], depth: int) -> None:
        scope.append(self.add(nodes, self.random.choice(["Sin", "Cos", "Abs", "Neg"]), self.late(scope)))

    def flag(self, nodes: list, scope: list[str], limit: float) -> str:
        total = self.add(nodes, "ReduceSum", self.late(scope), keepdims=0)
        return self.add(nodes, "Less", total, self.constant(np.float32(limit)))

    def loop(self, nodes: list, scope: list[str], depth: int) -> None:
        """Counted by a constant or by data; half of those by a constant end early on a condition."""
        counted = self.random.random() < 0.5
        conditional = not counted and self.random.random() < 0.5
        trip, go_in = self.name(), self.name()
        states = [self.name() for _ in range(self.random.randint(1, 2))]
        inner = scope + states
        body = self.statements(inner, depth + 1, self.random.randint(1, 3))
        if self.random.random() < 0.5:
            number = self.add(body, "Cast", trip, to=FLOAT)
            inner.append(self.add(body, "Sin", self.add(body, "Add", number, self.late(inner))))
        go = self.flag(body, inner, 0.8) if conditional else self.add(body, "Identity", go_in)
        following = [self.add(body, "Identity", self.random.choice(inner[-3:] + states)) for _ in states]
        row = self.add(body, "Identity", self.late(inner))
        graph = helper.make_graph(
            body, self.name(), [info(trip, [], INT64), info(go_in, [], BOOL), *(info(name, ["n"]) for name in states)],
            [info(go, [], BOOL), *(info(name, ["n"]) for name in (*following, row))],
        )  # fmt: skip
        results, rows = [self.name() for _ in states], self.name()
        first = self.flag(nodes, scope, 2.0) if conditional else ""
        trips = "trips" if counted else self.constant(np.int64(self.random.randint(1, 4)))
        given = [self.random.choice(scope) for _ in states]
        nodes.append(helper.make_node("Loop", [trips, first, *given], [*results, rows], body=graph))
        total = self.add(nodes, "ReduceSum", rows, self.constant(np.array([0], np.int64)), keepdims=0)
        scope += [self.add(nodes, "Tanh", total), *results]

    def scan(self, nodes: list, scope: list[str], depth: int) -> None:
        state, row = self.name(), self.name()
        inner = [*scope, state, row]
        body = self.statements(inner, depth + 1, self.random.randint(1, 2))
        following, collected = self.add(body, "Identity", inner[-1]), self.add(body, "Identity", self.late(inner))
        graph = helper.make_graph(
            body, self.name(), [info(state, ["n"]), info(row, ["n"])], [info(following, ["n"]), info(collected, ["n"])]
        )
        last, rows = self.name(), self.name()
        given = [self.random.choice(scope), "z"]
        nodes.append(helper.make_node("Scan", given, [last, rows], body=graph, num_scan_inputs=1))
        scope += [last, self.add(nodes, "Tanh", self.add(nodes, "ReduceMax", rows, axes=[0], keepdims=0))]

    def branch(self, nodes: list, scope: list[str], depth: int) -> None:
        flag = self.flag(nodes, scope, 0.1) if self.random.random() < 0.7 else "flag"
        sides = []
        for _ in range(2):
            inner = list(scope)
            body = self.statements(inner, depth + 1, self.random.randint(0, 2))
            result = self.add(body, "Identity", self.late(inner))
            sides.append(helper.make_graph(body, self.name(), [], [info(result, ["n"])]))
        scope.append(self.add(nodes, "If", flag, then_branch=sides[0], else_branch=sides[1]))


def feeds_for(seed: int, steps: int, n: int, trips: int, flag: bool) -> dict[str, np.ndarray]:
    generator = np.random.default_rng([seed, n])
    vectors = {name: generator.standard_normal(n, np.float32) for name in ("x", "y")}
    z = generator.standard_normal((steps, n), np.float32)
    return {**vectors, "z": z, "trips": np.array(trips, np.int64), "flag": np.array(flag)}


def check(seed: int) -> None:
    model = RandomModel(seed).model()
    artifact = luminal_onnx.compile(model, verify=False, arches=["sm_90"])
    graph = load(model).graph
    with InferenceSession(artifact, device="cpu", check_kernels=True) as session:
        names = [port.name for port in session.get_inputs()]
        for sizes in ((3, 4, 2, True), (1, 5, 0, False), (6, 3, 5, True)):
            feeds = {name: value for name, value in feeds_for(seed, *sizes).items() if name in names}
            for output, wanted in zip(session.run(None, feeds), interpreter.run(graph, feeds), strict=True):
                assert_close(output, wanted, MODEL, vacuous_ok=not wanted.any())  # sums of no rows are 0


@pytest.mark.parametrize("seed", range(6))
def test_random_models_compute_what_their_graphs_mean(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_more_random_models_compute_what_their_graphs_mean(seed):
    check(seed)
