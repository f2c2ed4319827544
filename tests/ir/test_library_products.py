"""What a library call takes in beside the product: each link of the chain fires, is guarded, and is right."""

from __future__ import annotations

import numpy as np
import pytest
from product_graphs import After, bias, matrix, product_then, relu, tanh_gelu
from search_graphs import Net
from search_tools import Eyes, Oracle, built, space_of

from luminal_onnx.ir.graph import Graph, Value
from luminal_onnx.ir.interpreter import run as interpret
from luminal_onnx.ir.program_reference import run_program
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import BY_NAME, DType, bfloat16, float16, float32, float64, int8
from luminal_onnx.plan.lt import LtMatmul


def calls(after: After, **options: object) -> list[LtMatmul]:
    """Return the records that store `after` of a product, having run every one of the graph's candidates."""
    graph, result = product_then(after, **options)
    check(graph)
    return Eyes(graph).library(result)


def check(graph: Graph, dims: dict[str, int] | None = None) -> None:
    """Run every candidate. Feeds of 16 bits are such that their products and sums are exact: no rounding is to be seen."""
    space, oracle = space_of(graph), Oracle(graph, dims)
    if any(value.dtype.bits == 16 for value in graph.inputs):
        oracle.feeds = {name: (np.round(2 * feed.astype(np.float32)) / 2).astype(feed.dtype) for name, feed in oracle.feeds.items()}
        oracle.expected = interpret(graph, oracle.feeds, oracle.dims)
    run = 0
    for candidate in space.candidates:
        program = space.forced(candidate)
        if program is not None:
            oracle.check(program)
            run += candidate.kind == "lt"
    assert run or not any(candidate.kind == "lt" for candidate in space.candidates)


def reads(graph: Graph, result: Value, name: str) -> list[LtMatmul]:
    """Return the records by which a call that stores the result reads this input."""
    eyes = Eyes(graph)
    fed = eyes.tensor(graph.inputs[graph.input_names.index(name)])
    calls = eyes.classes.library.get(eyes.tensor(result), ())
    return [eyes.saturated.handles.thing(call.record) for call in calls if fed in call.operands]


def alphas(after: After, **options: object) -> set[float]:
    return {record.alpha for record in calls(after, **options)}


def betas(after: After, **options: object) -> set[float]:
    return {record.beta for record in calls(after, **options)}


def epilogues(after: After, **options: object) -> set[str]:
    return {record.epilogue for record in calls(after, **options)}


# Scale


def test_a_number_becomes_alpha():
    assert alphas(lambda net, p: net("mul", p, 1.5)) == {1.5}
    assert alphas(lambda net, p: net("mul", net.expand(net.scalar(1.5, float32), p.shape), p)) == {1.5}
    assert alphas(lambda net, p: net("div", p, 8.0)) == {0.125}
    assert alphas(lambda net, p: net("mul", p, 1e-3), sizes=(7, 11, 50)) == {float(np.float32(1e-3))}
    assert alphas(lambda net, p: net("mul", p, -2.0), dtype=float16) == {-2.0}
    assert alphas(lambda net, p: net("mul", p, 0.1), dtype=float64) == {0.1}


@pytest.mark.parametrize("number", [0.0, float("inf"), float("nan")])
def test_a_number_that_would_hide_or_spread_nan_is_no_alpha(number: float):
    graph, result = product_then(lambda net, p: net("mul", p, number))
    assert Eyes(graph).library(result) == []


def test_a_product_divided_by_nothing_is_no_call():
    graph, result = product_then(lambda net, p: net("div", p, 0.0))
    assert Eyes(graph).library(result) == []


def test_a_scale_of_one_is_the_product_itself():
    graph, result = product_then(lambda net, p: net("neg", net("mul", p, 1.0)))
    assert Eyes(graph).saturated.report.stop == "saturated"


def test_a_scaled_sum_is_no_scaled_product():
    assert alphas(lambda net, p: net("mul", net("add", p, bias(net, p)), 1.5)) == set()
    assert alphas(lambda net, p: net("mul", net("add", p, matrix(net, p)), 1.5)) == set()
    assert alphas(lambda net, p: net("mul", relu(net, p), 1.5)) == set()


def test_what_differs_from_place_to_place_is_no_scale():
    assert alphas(lambda net, p: net("mul", p, bias(net, p))) == set()
    assert alphas(lambda net, p: net("div", net.expand(net.scalar(2.0, float32), p.shape), p)) == set()


# Matrix


@pytest.mark.parametrize("batch", [0, 3])
@pytest.mark.parametrize("first", [False, True])
def test_a_matrix_is_added(first: bool, batch: int):
    def after(net: Net, p: Value) -> Value:
        c = matrix(net, p)
        return net("add", *((c, p) if first else (p, c)))

    records = calls(after, batch=batch)
    assert {(record.beta, record.ldc, record.stride_c) for record in records} == {(1.0, 11, 77 if batch else 0)}
    assert {record.order_d for record in records} == {"col", "row"}


def test_a_matrix_is_subtracted_and_scaled():
    assert betas(lambda net, p: net("sub", p, matrix(net, p))) == {-1.0}
    assert betas(lambda net, p: net("add", p, net("mul", matrix(net, p), 0.5))) == {0.5, 1.0}  # 1: of half of it, stored
    both = calls(lambda net, p: net("add", net("mul", p, 1.5), net("mul", matrix(net, p), 0.5)))
    assert (1.5, 0.5) in {(record.alpha, record.beta) for record in both}


def test_a_matrix_from_which_the_product_is_taken_is_not_added():
    assert calls(lambda net, p: net("sub", matrix(net, p), p)) == []


def test_a_matrix_times_nothing_is_not_beta():
    assert betas(lambda net, p: net("add", p, net("mul", matrix(net, p), 0.0))) <= {1.0}


def test_part_of_a_wider_matrix_is_added():
    def after(net: Net, p: Value) -> Value:
        return net("add", p, net.slice(net.input("c", float32, (9, 20)), (2, 3), (1, 1), (7, 11)))

    graph, result = product_then(after)
    assert {(record.ldc, record.offset_c) for record in reads(graph, result, "c")} == {(20, 43)}
    check(graph)


def test_one_matrix_for_all_of_a_batch_is_added():
    records = calls(lambda net, p: net("add", p, net.spread(net.input("c", float32, (7, 11)), p)), batch=3)
    assert {(record.ldc, record.stride_c) for record in records} == {(11, 0)}


@pytest.mark.parametrize("kind", ["transposed", "one row", "one column", "every other", "backwards"])
def test_a_matrix_that_no_leading_dimension_describes_is_not_added(kind: str):
    def after(net: Net, p: Value) -> Value:
        if kind == "transposed":
            c = net.transpose(net.input("c", float32, (11, 11)), (1, 0))
        elif kind == "one row":
            c = net.slice(net.spread(net.input("c", float32, (12,)), net.input("z", float32, (11, 12))), (0, 1), (1, 1), (11, 11))
        elif kind == "one column":
            c = net.spread(net.input("c", float32, (11, 1)), p)
        else:
            step = 2 if kind == "every other" else -1
            c = net.slice(net.input("c", float32, (11, 22)), (0, 0 if step > 0 else 10), (1, step), (11, 11))
        return net("add", p, c)

    graph, result = product_then(after, sizes=(11, 11, 5))
    assert reads(graph, result, "c") == []
    check(graph)


def test_a_row_that_is_one_is_added_whatever_its_stride():
    def after(net: Net, p: Value) -> Value:
        return net("add", p, net.slice(net.input("c", float32, (3, 20)), (1, 2), (1, 1), (1, 11)))

    graph, result = product_then(after, sizes=(1, 11, 5))
    assert {(record.ldc, record.offset_c) for record in reads(graph, result, "c")} == {(11, 22)}
    check(graph)


def test_a_product_is_added_to_a_product():
    def make(net: Net) -> Value:
        a, b = (net.matmul(net.input(f"x{k}", float32, (7, 5 + k)), net.weight(5 + k, 11)) for k in range(2))
        return net("add", a, b)

    graph, (result,) = built(make)
    assert {record.k for record in Eyes(graph).library(result) if record.beta == 1.0} == {5, 6}
    check(graph)


# Bias with others


def test_a_matrix_and_a_bias_in_either_order():
    for after in (
        lambda net, p: net("add", net("add", p, bias(net, p)), matrix(net, p)),
        lambda net, p: net("add", net("add", p, matrix(net, p)), bias(net, p)),
    ):
        records = calls(after)
        assert ("bias", 1.0, 4) in {(record.epilogue, record.beta, record.operand_count) for record in records}


def test_a_second_bias_and_a_second_matrix_are_left_over():
    two = calls(lambda net, p: net("add", net("add", p, bias(net, p, "b")), bias(net, p, "c")))
    assert two == []
    two = calls(lambda net, p: net("add", net("add", p, matrix(net, p, "b")), matrix(net, p, "c")))
    assert two == []


# Activations


@pytest.mark.parametrize("batch", [0, 3])
def test_relu_is_taken_in(batch: int):
    assert epilogues(relu, batch=batch) == {"relu"}
    assert epilogues(lambda net, p: relu(net, net("add", p, bias(net, p))), batch=batch) == {"relu_bias"}
    mirrored = epilogues(lambda net, p: net("max", net.expand(net.scalar(0.0, float32), p.shape), p), batch=batch)
    assert mirrored == {"relu"}
    whole = calls(lambda net, p: relu(net, net("add", net("add", net("mul", p, 0.5), matrix(net, p)), bias(net, p))))
    assert {(r.alpha, r.beta, r.epilogue, r.order_d) for r in whole} == {(0.5, 1.0, "relu_bias", "col")}


def test_what_is_no_relu_is_not_taken_in():
    for after in (
        lambda net, p: net("max", p, 0.5),
        lambda net, p: net("min", p, 0.0),
        lambda net, p: net("max", p, bias(net, p)),
        lambda net, p: relu(net, net("neg", p)),
    ):
        assert epilogues(after) == set()


def test_what_follows_an_activation_is_not_done_before_it():
    """relu(ab + c / 2) is not relu(ab) + c / 2."""
    assert calls(lambda net, p: net("add", relu(net, p), matrix(net, p))) == []
    assert calls(lambda net, p: net("add", relu(net, p), net("mul", matrix(net, p), 0.5))) == []
    assert calls(lambda net, p: net("add", tanh_gelu(net, p), net("mul", matrix(net, p), 0.5))) == []
    assert calls(lambda net, p: net("add", relu(net, p), bias(net, p))) == []
    assert epilogues(lambda net, p: tanh_gelu(net, relu(net, p))) == set()


def test_relu_loses_nan_only_in_the_library_and_not_at_all_if_asked():
    graph, result = product_then(relu)
    feeds = Oracle(graph).feeds
    feeds["x"][0, 0] = np.nan
    space = space_of(graph)
    kept = {}
    for candidate in space.candidates:
        (out,) = run_program(space.forced(candidate), feeds, {})
        kept.setdefault(candidate.kind == "lt" and candidate.matmul.activation == "relu", []).append(np.isnan(out[0]).all())
    assert not any(kept[True]) and all(kept[False])
    strict = space_of(graph, strict_nan=True)
    assert not any(c.kind == "lt" and c.matmul.activation for c in strict.candidates)
    assert any(c.kind == "lt" for c in strict.candidates)


@pytest.mark.parametrize("half", ["first", "gate", "last"])
@pytest.mark.parametrize("cube", ["mul", "pow"])
def test_gelu_by_tanh_is_taken_in(half: str, cube: str):
    assert epilogues(lambda net, p: tanh_gelu(net, p, half, cube)) == {"gelu"}
    assert epilogues(lambda net, p: tanh_gelu(net, net("add", p, bias(net, p)), half, cube)) == {"gelu_bias"}


def test_gelu_by_erf_is_not_what_the_library_computes():
    assert epilogues(lambda net, p: net.gelu(p)) == set()


def test_other_numbers_than_gelus_are_not_gelu():
    def bent(net: Net, x: Value, factor: float, root: float, one: float, half: float) -> Value:
        third = net("mul", net("mul", x, x), x)
        inner = net("mul", net("add", x, net("mul", third, factor)), root)
        return net("mul", net("mul", x, half), net("add", net("tanh", inner), one))

    right = (0.044715, 0.7978845608, 1.0, 0.5)
    assert epilogues(lambda net, p: bent(net, p, *right)) == {"gelu"}
    for position, wrong in enumerate((0.0447, 0.79, 1.001, 0.51)):
        numbers = [*right]
        numbers[position] = wrong
        assert epilogues(lambda net, p, n=numbers: bent(net, p, *n)) == set()


def test_float64_has_no_activation():
    assert epilogues(relu, dtype=float64) == set()


# Values that others want


def test_a_value_on_the_way_stays_right_where_it_is_wanted_too():
    def make(net: Net) -> tuple[Value, ...]:
        x, w = net.input("x", float32, (7, 5)), net.weight(5, 11)
        product = net.matmul(x, w)
        summed = net("add", net("add", product, bias(net, product)), matrix(net, product))
        return relu(net, summed), net("exp", net("mul", summed, 0.1)), net("sin", product)

    graph, (activated, *_) = built(make)
    assert {record.epilogue for record in Eyes(graph).library(activated)} == {"relu_bias"}
    check(graph)
    space, oracle = space_of(graph), Oracle(graph)
    for seed in range(20):
        program = space.random(seed)
        if program is not None:
            oracle.check(program)


# Types


@pytest.mark.parametrize("narrow", [float16, bfloat16])
def test_a_cast_product_is_stored_wide(narrow: DType):
    wide = calls(lambda net, p: net.cast(p, float32), dtype=narrow)
    assert {(record.type_a, record.type_d, record.epilogue) for record in wide} == {(narrow, float32, "default")}
    after = calls(lambda net, p: net("add", net.cast(p, float32), net.input("c", float32, (7, 11))), dtype=narrow)
    assert {(record.type_d, record.beta) for record in after} == {(float32, 1.0)}
    back = calls(lambda net, p: net.cast(relu(net, net.cast(p, float32)), narrow), dtype=narrow)
    assert {(record.type_d, record.epilogue) for record in back} == {(narrow, "relu")}


def test_a_narrow_matrix_or_bias_under_a_wide_result_is_read_as_it_is():
    """A call has one type for all that it adds: 2-byte elements must not be read as 4-byte ones."""
    assert calls(lambda net, p: net.cast(net("add", p, matrix(net, p)), float32), dtype=bfloat16) == []
    assert calls(lambda net, p: net.cast(net("add", p, bias(net, p)), float32), dtype=bfloat16) == []
    whole = calls(lambda net, p: net.cast(tanh_gelu(net, net.cast(net("add", p, bias(net, p)), float32)), float16), dtype=float16)
    assert {(record.type_d, record.epilogue) for record in whole} == {(float16, "gelu_bias")}


def test_a_value_that_was_rounded_on_purpose_stays_rounded():
    assert calls(lambda net, p: net.cast(net.cast(p, float16), float32)) == []
    assert calls(lambda net, p: net.cast(p, float16)) == []  # of float32 factors the library makes float32
    assert calls(lambda net, p: net.cast(p, bfloat16), dtype=float16) == []
    again = calls(lambda net, p: net.cast(net.cast(relu(net, net.cast(p, float32)), float16), float32), dtype=float16)
    assert again == []


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("types", ["float16 float16", "bfloat16 bfloat16", "float16 bfloat16", "int8 int8"])
def test_widened_factors_are_read_narrow(types: str, shared: bool, flip: bool):
    left, right = (BY_NAME[name] for name in types.split())

    def make(net: Net) -> tuple[Value, ...]:
        x, y = net.cast(net.input("x", left, (7, 5)), float32), net.cast(net.input("y", right, (5, 11)), float32)
        product = net.matmul(net.transpose(y, (1, 0)), net.transpose(x, (1, 0))) if flip else net.matmul(x, y)
        return (product, net("sin", x)) if shared else (product,)

    graph, (product, *_) = built(make)
    narrow = {record.type_a for record in Eyes(graph).library(product)} - {float32}
    assert narrow == ({left} if left is right and left is not int8 else set())
    check(graph)


# Symbols


def test_sizes_with_names_are_taken_in():
    rows = symbol("rows")

    def make(net: Net) -> Value:
        product = net.matmul(net.input("x", float32, (rows, 5)), net.weight(5, 11))
        return relu(net, net("add", net("add", product, bias(net, product)), matrix(net, product)))

    graph, (result,) = built(make, rows=Range(1, 7, 50))
    assert {(record.n, record.ldc, record.epilogue) for record in Eyes(graph).library(result)} == {(rows, 11, "relu_bias")}
    check(graph, dims={"rows": 3})
