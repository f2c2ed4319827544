"""Graphs whose values stay the same under views: folding would make most of them trivial, but saturation ends anyway."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.egraph.saturate import Limits, saturate
from luminal_onnx.ir.graph import Value
from luminal_onnx.ir.interpreter import run
from luminal_onnx.ir.program_reference import run_program
from luminal_onnx.ir.search import SearchSpace, target
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import float32
from tolerances import REDUCTION, assert_close

n, m = symbol("n"), symbol("m")
RANGES = {"n": Range(1, 4, 9), "m": Range(0, 2, 4)}


def splat(b: Builder) -> Value:
    return b.transpose(b("sin", b.expand(b.scalar(0.5, float32), (31, 5))), (1, 0))


def sum_of_a_splat(b: Builder) -> Value:
    b.input("x", float32, (n,))
    total = b.reduce("sum", b.expand(b.scalar(0.5, float32), (31, 5, n)), [2])
    return b.transpose(b("sin", total), (1, 0))


def equal_rows(b: Builder) -> Value:
    """The order of the rows after a transposition is the order before it; it takes 30 of them to come back to itself."""
    rows = b("sin", b.expand(b.input("x", float32, (7,)), (31, 5, 7)))
    return b.reshape(b.transpose(rows, (1, 0, 2)), (31, 5, 7))


def equal_rows_twice(b: Builder) -> Value:
    rows = b("sin", b.expand(b.input("x", float32, (7,)), (30, 7)))
    half = b("cos", b.slice(rows, [0, 0], [2, 1], [15, 7]))
    again = b("cos", b.reshape(b.transpose(b.expand(half, (2, 15, 7)), (1, 0, 2)), (30, 7)))
    return b("add", rows, again)


def views_of_nothing(extent: object) -> Callable[[Builder], Value]:
    """All views of a tensor without elements are equal: there is no end of them."""

    def make(b: Builder) -> Value:
        x = b.input("x", float32, (n, 17, extent))
        once = b("sin", b.transpose(x, (1, 0, 2)))
        twice = b("cos", b.transpose(once, (1, 0, 2)))
        weighed = b.contract(once, "abc", b.input("w", float32, (n, extent)), "bc", "ab")
        return b("add", weighed, b.reduce("sum", b("mul", b.transpose(twice, (1, 2, 0)), 2.0), [1]))

    return make


def products_of_nothing(extent: object) -> Callable[[Builder], Value]:
    def make(b: Builder) -> Value:
        x = b.input("x", float32, (n, 17, extent))
        left = b.matmul(x, b.input("w", float32, (extent, 5)))
        inner = b.contract(x, "abc", b.transpose(x, (1, 0, 2)), "bac", "cab")
        right = b.matmul(b.transpose(inner, (1, 0, 2)), b.input("y", float32, (17, 5)))
        return b("add", left, b.reduce("sum", right, [1], True))

    return make


GRAPHS = {
    "splat": splat,
    "sum_of_a_splat": sum_of_a_splat,
    "equal_rows": equal_rows,
    "equal_rows_twice": equal_rows_twice,
    "views_of_nothing": views_of_nothing(0),
    "views_of_perhaps_nothing": views_of_nothing(m),
    "products_of_nothing": products_of_nothing(0),
    "products_of_perhaps_nothing": products_of_nothing(m),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_saturation_ends_and_every_kernel_is_right(name: str):
    b = Builder(name, RANGES)
    b.output("y", GRAPHS[name](b))
    report = saturate(b.graph, Limits(rows=3000)).report
    assert report.stop == "saturated" and report.nodes < 1000
    space = SearchSpace(b.graph, target("sm_90"))
    programs = [space.best().program, space.plain(), *(space.random(seed) for seed in range(6))]
    for dims in ({"n": 4, "m": 2}, {"n": 4, "m": 0}):
        random = np.random.default_rng(0)
        shapes = [[dims.get(str(e), e) for e in value.shape] for value in b.graph.inputs]
        feeds = {
            name: random.standard_normal(shape).astype(np.float32) for name, shape in zip(b.graph.input_names, shapes)
        }
        (expected,) = run(b.graph, feeds, dims, wide=True)
        for program in programs:
            if program is not None:
                (actual,) = run_program(program, feeds, dims)
                assert_close(actual, expected, REDUCTION, vacuous_ok=not expected.any())
