"""The oracle: right results in narrow floats are met, near ties are left out, and what is clearly wrong is seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from fuzz.oracle import expect
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.graph import Value
from luminal_onnx.ir.interpreter import run
from luminal_onnx.plan.dtypes import bfloat16, bool_, float16, float32, int32


def less_equal_after_a_sum(b: Builder) -> Value:
    total = b.reduce("sum", b.input("x", bfloat16, (64, 16)), [1], True)
    return b("less_equal", total, b.transpose(b.input("y", bfloat16, (64, 1)), (1, 0)))


def truncated(b: Builder) -> Value:
    """In float32, tanh is 1 where it is a little less."""
    return b.cast(b("tanh", b("mul", b.input("x", float32, (64, 16)), 6.0)), int32)


def remainders(b: Builder) -> Value:
    return b("floor_mod", b("mul", b.input("x", float32, (64, 16)), 3.0), 0.3)


def differences_of_equals(b: Builder) -> Value:
    x = b("sin", b.input("x", float16, (64, 16)))
    return b.cast(b("sub", x, b.reduce("max", x, [1], True)), bool_)


def roots_of_differences(b: Builder) -> Value:
    x = b("exp", b.input("x", float32, (64, 16)))
    return b("sqrt", b("sub", b.reduce("max", x, [1], True), x))


def sine_of_a_large_sum(b: Builder) -> Value:
    """A sum of equal terms, each rounding of which is off in the same direction."""
    return b("sin", b.reduce("sum", b("add", b.expand(b.input("x", float32, (64, 1)), (64, 3000)), 2.0), [1]))


def feeds_of(b: Builder, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        name: random.standard_normal(value.shape).astype(value.dtype.numpy)
        for name, value in zip(b.graph.input_names, b.graph.inputs)
    }


@pytest.mark.parametrize(
    "make",
    [less_equal_after_a_sum, truncated, remainders, differences_of_equals, roots_of_differences, sine_of_a_large_sum],
)
def test_what_rounding_decides_is_left_out_and_the_rest_is_met(make: Callable[[Builder], Value]) -> None:
    for seed in range(8):
        b = Builder(make.__name__, {})
        y = make(b)
        b.output("y", y)
        feeds = feeds_of(b, seed)
        (expected,) = expect(b.graph, feeds, {})
        (narrow,) = run(b.graph, feeds)
        assert expected.difference(narrow) is None
        if make is sine_of_a_large_sum:
            terms = np.broadcast_to(feeds["x"] + np.float32(2), (64, 3000))
            in_order = np.cumsum(terms, axis=1, dtype=np.float32)[:, -1]
            assert np.abs(np.sin(in_order) - expected.values).max() > 1e-4
            assert expected.difference(np.sin(in_order)) is None
            continue
        assert expected.share > 0.75
        wrong = ~narrow if narrow.dtype == bool else narrow + narrow.dtype.type(1)
        assert expected.difference(wrong) is not None


def test_a_tie_is_left_out_and_its_neighbour_is_not() -> None:
    b = Builder("tie", {})
    total = b.reduce("sum", b.input("x", bfloat16, (3, 2)), [1])
    b.output("y", b("less_equal", total, b.constant(np.float32([8.4375, 12.0, 4.0]).astype(bfloat16.numpy))))
    x = np.float32([[8.0, 0.46], [8.0, 0.46], [8.0, 0.46]]).astype(bfloat16.numpy)
    (expected,) = expect(b.graph, {"x": x}, {})
    assert expected.telling.tolist() == [False, True, True]
    assert expected.values.tolist()[1:] == [True, False]
