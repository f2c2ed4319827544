"""What the tests of the search share: looking into a saturated e-graph, and comparing programs with the interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property

from search_graphs import Net, feeds_for
from tolerances import REDUCTION, assert_close

from luminal_onnx.ir.egraph.classes import Classes, read_classes
from luminal_onnx.ir.egraph.saturate import Saturated, saturate
from luminal_onnx.ir.graph import Graph, Value
from luminal_onnx.ir.interpreter import run
from luminal_onnx.ir.program import LtKernel, Program, RegionKernel
from luminal_onnx.ir.program_reference import run_program
from luminal_onnx.ir.search import SearchOptions, SearchSpace, kernel_kind, target

TARGET = target("sm_90")


class Eyes:
    """Looks into the saturated e-graph of one graph."""

    def __init__(self, graph: Graph, **options: object) -> None:
        self.graph = graph
        self.saturated: Saturated = saturate(graph, **options)
        self.rows = self.saturated.rows
        self.matches = self.saturated.report.matches

    @cached_property
    def classes(self) -> Classes:
        return read_classes(self.saturated)

    def number(self, value: Value) -> int:
        return self.saturated.lifted.value_number(value)

    def register(self, value: Value) -> int:
        """The class of what is stored as this value."""
        return dict(row[:2] for row in self.rows["Register"])[2 * self.number(value)]

    def operand(self, value: Value) -> int:
        """The class of the value loaded at identity."""
        return dict(row[:2] for row in self.rows["Register"])[2 * self.number(value) + 1]

    def tensor(self, value: Value) -> int:
        return dict(row[:2] for row in self.rows["Value"])[self.number(value)]

    def kinds(self, value: Value) -> Counter[str]:
        """How many nodes of each constructor the register class of a value holds."""
        register = self.register(value)
        names = ("Load", "Const", "Iota", "E1", "E2", "E3", "Gather", "Red", "Bcast", "Through")
        return Counter(name for name in names for row in self.rows[name] if row[-1] == register)

    def loads(self, value: Value) -> set[int]:
        """The tensors that some node of a value's register class loads."""
        register = self.register(value)
        return {row[0] for row in self.rows["Load"] if row[-1] == register}

    def library(self, value: Value) -> list:
        """The cuBLASLt records that may be chosen for a value's tensor."""
        nodes = self.classes.library.get(self.tensor(value), ())
        return [self.saturated.handles.thing(node.record) for node in nodes]


def built(make: Callable[[Net], Value | tuple[Value, ...]], **ranges: object) -> tuple[Graph, tuple[Value, ...]]:
    """Return the graph whose outputs `make` returns, and those values."""
    net = Net("built", ranges)
    values = make(net)
    values = values if isinstance(values, tuple) else (values,)
    for number, value in enumerate(values):
        net.output(f"y{number}", value)
    return net.graph, values


def space_of(graph: Graph, **options: object) -> SearchSpace:
    return SearchSpace(graph, TARGET, SearchOptions(**options))


class Oracle:
    """The interpreter's outputs for seeded feeds, to compare programs with."""

    def __init__(self, graph: Graph, dims: dict[str, int] | None = None) -> None:
        self.dims = dims or {}
        self.feeds = feeds_for(graph, self.dims)
        self.expected = run(graph, self.feeds, self.dims)

    def check(self, program: Program, classes=REDUCTION) -> None:
        outputs = run_program(program, self.feeds, self.dims)
        assert len(outputs) == len(self.expected)
        for actual, expected in zip(outputs, self.expected):
            assert actual.dtype == expected.dtype
            assert_close(actual, expected, classes)


def kernel_shapes(program: Program) -> Counter:
    """The kernels of a program by what they do, sizes left out."""
    found: Counter = Counter()
    for kernel in program.kernels:
        if isinstance(kernel, RegionKernel):
            nodes = tuple((type(node).__name__, getattr(node, "fn", "")) for node in kernel.region.nodes)
            found[kernel.schedule, nodes, len(kernel.writes)] += 1
        elif isinstance(kernel, LtKernel):
            m = kernel.matmul
            found["cublaslt", m.order_a, m.order_b, m.order_d, m.transpose_a, m.transpose_b, m.epilogue] += 1
        else:
            found[kernel_kind(kernel)] += 1
    return found
