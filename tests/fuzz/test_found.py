"""The smallest graphs of bugs that generated ones have found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from fuzz.failures import Ways, failures
from fuzz.generate import Binding
from fuzz.road import Road
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.graph import Value
from luminal_onnx.plan.dims import Range, index_symbol, symbol
from luminal_onnx.plan.dtypes import DType, float16, float32, float64, int8, int16, int32, int64, uint8

n = symbol("n")
RANGES = {"n": Range(1, 4, 9)}


def power_of_a_number(dtype: DType, number_first: bool) -> Callable[[Builder], Value]:
    """A literal in a kernel's text is an int, whatever the dtype of the tensor."""

    def make(b: Builder) -> Value:
        x = b.input("x", dtype, (n,))
        return b("pow", 2, x) if number_first else b("pow", x, 3)

    return make


def padded_places(b: Builder) -> Value:
    """A tensor made of nothing, read where it has no elements."""
    b.input("x", float32, (n,))
    places = b.iota((3, n, 4), 3 * index_symbol(0) + 2 * index_symbol(1) - 2 * index_symbol(2))
    return b.pad(places, (0, 1, 0), (0, 1, 0), 0)


def rows_of_a_constant(b: Builder) -> Value:
    """What is made of constants alone is the same over several spaces."""
    b.input("x", float32, (n,))
    repeated = b.expand(b.scalar(0.875, float32), (33, n))
    total = b.cast(b.reduce("sum", repeated, [1], True), float16)
    return b.reduce("min", b.reshape(total, (11, 3)), [0, 1])


def scattered(b: Builder) -> Value:
    """The scratch memory of a scatter is written by one kernel and changed by the next."""
    return b.scatter_flat(b.input("x", float64, (5,)), b.input("i", int64, (n,)), b.input("s", float64, (n,)), "min")


def views_of_nothing(b: Builder) -> Value:
    """All views of a tensor without elements are equal: there is no end of them."""
    x = b.input("x", float32, (n, 17, 0))
    left = b.matmul(x, b.constant(np.ones((0, 5), np.float32)))
    inner = b.contract(x, "abc", b.transpose(x, (1, 0, 2)), "bac", "cab")
    right = b.matmul(b.transpose(inner, (1, 0, 2)), b.input("y", float32, (17, 5)))
    return b("add", left, b.reduce("sum", right, [1], True))


GRAPHS = {
    **{f"pow_{dtype}_{first}": power_of_a_number(dtype, first) for dtype in (int8, int16, int32, int64, uint8)
       for first in (True, False)},
    "padded_places": padded_places,
    "rows_of_a_constant": rows_of_a_constant,
    "scattered": scattered,
    "views_of_nothing": views_of_nothing,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_right(name: str) -> None:
    b = Builder(name, RANGES)
    b.output("y", GRAPHS[name](b))
    random = np.random.default_rng(0)
    feeds = {}
    for key, value in zip(b.graph.input_names, b.graph.inputs):
        shape = [4 if extent == n else extent for extent in value.shape]
        array = random.standard_normal(shape) if value.dtype.is_float else random.integers(0, 5, shape)
        feeds[key] = array.astype(value.dtype.numpy)
    road = Road.of(b.graph)
    for check_kernels in (False, True):
        assert not list(failures(road, Binding({"n": 4}, feeds), Ways(check_kernels=check_kernels)))
