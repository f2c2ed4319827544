"""Each rewrite rule: that it fires, that its guard blocks, and that what it equates is equal."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from product_graphs import every_link, product_then, tanh_gelu
from search_graphs import Net, convolutional, encoder, indexing, symbolic_encoder
from search_tools import Eyes, Oracle, built, space_of

from luminal_onnx.ir.egraph.rulebook import all_commands
from luminal_onnx.ir.graph import Graph, Value
from luminal_onnx.plan.dims import Range, index_symbol, symbol
from luminal_onnx.plan.dtypes import BY_NAME, DType, float16, float32, float64, int32, int64
from luminal_onnx.plan.view import pad, select, slice_, transpose

# Graphs in which rules fire that the networks do not need


def pushed() -> Graph:
    """Views over every kind of value that has one use."""

    def make(net: Net):
        x, y = net.input("x", float32, (4, 6)), net.input("y", float32, (4, 6))
        table = net.weight(5, 3, scale=1.0)
        index = net("add", net.input("i", int64, (4, 6)), 1)
        chosen = net("where", net("less", x, y), x, y)
        counted = net.cast(net.iota((4, 6), 6 * index_symbol(0) + index_symbol(1)), float32)
        halves = net("mul", net.expand(net.constant(np.float32(0.5)), (4, 6)), net("exp", x))
        values = [chosen, net.gather_flat(table, index), counted, halves]
        rows = net.reduce("sum", net("mul", x, y), [1])
        return (*(net("neg", net.transpose(value, (1, 0))) for value in values), net("neg", net.reshape(rows, (2, 2))))

    return built(make)[0]


def conditioned_rows() -> Graph:
    """A choice between row values, spread over the rows again, with the reduction in each place of the choice."""

    def make(net: Net):
        x = net.input("x", float32, (4, 6))
        total, most = net.reduce("sum", x, [1], True), net.reduce("max", x, [1], True)
        value = net("where", net("less", total, 0.0), most, net("neg", total))
        left = net("where", net("less", net.input("c", float32, (4, 1)), 0.0), total, 1.0)
        right = net("where", net("less", net.input("d", float32, (4, 1)), 0.0), 1.0, most)
        return net("sub", x, net.expand(value, (4, 6))), net("mul", x, net.expand(net("add", left, right), (4, 6)))

    return built(make)[0]


def spelled_otherwise() -> Graph:
    """Softmax by a reciprocal, norms by square roots, divisions and means by a factor."""

    def make(net: Net):
        x = net.input("x", float32, (4, 6))
        powers = net("exp", net("sub", x, net.spread(net.reduce("max", x, [1], True), x)))
        softmax = net("mul", powers, net.spread(net("recip", net.reduce("sum", powers, [1], True)), x))
        mean = net("mul", net.reduce("sum", x, [1], True), 1 / 6)
        centred = net("sub", x, net.spread(mean, x))
        square = net("mul", net.reduce("sum", net("mul", centred, centred), [1], True), 1 / 6)
        deviation = net("sqrt", net("add", square, 1e-5))
        by_division = net("div", centred, net.spread(deviation, x))
        mean_square = net.mean(net("mul", x, x), [1], True)
        by_factor = net("mul", x, net.spread(net("recip", net("sqrt", net("add", mean_square, 1e-5))), x))
        return softmax, by_division, by_factor

    return built(make)[0]


def siblings() -> Graph:
    """Two products of one tensor with weights, without biases."""

    def make(net: Net):
        x = net.input("x", float32, (4, 6))
        return net("mul", net("exp", net.linear(x, 5, bias=False)), net.linear(x, 5, bias=False))

    return built(make)[0]


def reductions_of_one() -> Graph:
    return built(lambda net: net("exp", net.reduce("sum", net.input("x", float32, (4, 1)), [1])))[0]


STORAGES = ("rm", "cm")


def product_graph(
    x_storage: str = "rm", y_storage: str = "rm", batch: int = 0, bias: bool = False, dtype: DType = float32,
    sizes: tuple[int, int, int] = (7, 11, 5), bias_first: bool = False,
) -> tuple[Graph, Value, Value]:
    """A matrix product of two inputs stored row-major (rm) or column-major (cm); sizes are rows, columns, depth.

    Returns the graph, the product and the result with or without bias.
    """
    rows, columns, depth = sizes
    lead = (batch,) if batch else ()
    flip = (0, 2, 1) if batch else (1, 0)

    def make(net: Net):
        x = net.input("x", dtype, lead + ((rows, depth) if x_storage == "rm" else (depth, rows)))
        y = net.input("y", dtype, lead + ((depth, columns) if y_storage == "rm" else (columns, depth)))
        x = x if x_storage == "rm" else net.transpose(x, flip)
        y = y if y_storage == "rm" else net.transpose(y, flip)
        product = net.matmul(x, y)
        if not bias:
            return product
        vector = net.spread(net.input("b", dtype, (columns,)), product)
        return net("add", *((vector, product) if bias_first else (product, vector)))

    graph, (result,) = built(make)
    product = next(node.output for node in graph.nodes() if node.op == "reduce")
    return graph, product, result


GRAPHS = {
    "encoder": encoder,
    "convolutional": convolutional,
    "indexing": indexing,
    "pushed": pushed,
    "conditioned_rows": conditioned_rows,
    "spelled_otherwise": spelled_otherwise,
    "siblings": siblings,
    "reductions_of_one": reductions_of_one,
    "every_link": every_link,
    "gelu": lambda: product_then(lambda net, p: tanh_gelu(net, p, "gate", "pow"))[0],
    "half_encoder": lambda: encoder(dtype=float16),
    **{
        f"product_{x}_{y}": lambda x=x, y=y: product_graph(x, y, bias=True)[0] for x in STORAGES for y in STORAGES
    },
}


@lru_cache(maxsize=None)
def matches(name: str) -> dict[str, int]:
    return Eyes(GRAPHS[name]()).matches


@pytest.mark.parametrize("rule", [command.rule for command in all_commands() if command.rule])
def test_rule_fires(rule: str):
    assert any(matches(name).get(rule, 0) > 0 for name in GRAPHS)


@pytest.mark.parametrize("name", ["pushed", "conditioned_rows", "spelled_otherwise", "siblings", "reductions_of_one"])
def test_every_kernel_in_it_is_right(name: str):
    graph = GRAPHS[name]()
    space, oracle = space_of(graph), Oracle(graph)
    oracle.check(space.best().program)
    oracle.check(space.plain())
    for candidate in space.candidates:
        program = space.forced(candidate)
        assert program is not None, f"{candidate} cannot be selected"
        oracle.check(program)


# load-store


def twice_used(net: Net, x: Value) -> Value:
    """A value that no view is pushed through: it has two uses besides."""
    value = net("exp", x)
    net.output("a", net("neg", value))
    net.output("b", net("sin", value))
    return value


def test_load_store_takes_the_stored_value_for_the_load():
    graph, (y,) = built(lambda net: net("neg", net("exp", net.input("x", float32, (4, 6)))))
    eyes = Eyes(graph)
    assert eyes.operand(y.node.inputs[0]) == eyes.register(y.node.inputs[0])


@pytest.mark.parametrize("shape", [(4, 6), (5, 5)])
def test_load_store_leaves_a_transposed_load_alone(shape: tuple[int, int]):
    """A square shape too: equal extents do not make a transposition the identity."""

    def make(net: Net):
        value = twice_used(net, net.input("x", float32, shape))
        return net("cos", net.transpose(value, (1, 0)))

    graph, (y,) = built(make)
    eyes = Eyes(graph)
    view = y.node.inputs[0]
    assert eyes.register(view) != eyes.register(view.node.inputs[0])
    Oracle(graph).check(space_of(graph).best().program)


# reshape-alias


def test_reshape_alias_makes_a_reshape_free():
    def make(net: Net):
        x = net.input("x", float32, (4, 6))
        return x, net.reshape(net.transpose(net.reshape(x, (2, 2, 6)), (0, 1, 2)), (3, 8))

    graph, (x, y) = built(make)
    eyes = Eyes(graph)
    assert eyes.tensor(x) == eyes.tensor(y)
    assert space_of(graph).best().program.kernels == ()


@pytest.mark.parametrize("kind", ["transpose", "slice", "expand", "pad"])
def test_reshape_alias_leaves_other_views_alone(kind: str):
    def make(net: Net):
        x = net.input("x", float32, (4, 6))
        views = {
            "transpose": lambda: net.transpose(x, (1, 0)),
            "slice": lambda: net.slice(x, (0, 0), (1, 1), (2, 6)),
            "expand": lambda: net.expand(x, (2, 4, 6)),
            "pad": lambda: net.pad(x, (1, 0), (0, 0), 0.0),
        }
        return x, views[kind]()

    graph, (x, y) = built(make)
    eyes = Eyes(graph)
    assert eyes.tensor(x) != eyes.tensor(y)
    program = space_of(graph).best().program
    assert len(program.kernels) == 1
    Oracle(graph).check(program)


# compose-views


def split_views(net: Net, first, second) -> Value:
    """Two views that the builder has not composed: a node stands between them while the graph is made."""
    x = net.input("x", float32, (4, 6))
    inner = net.view(x, first(x.shape))
    outer = second(inner.shape)
    return net._node("view", (inner,), {"view": outer})


def test_compose_views_reads_through_both():
    graph, (y,) = built(
        lambda net: split_views(net, lambda s: transpose(s, (1, 0)), lambda s: slice_(s, (1, 0), (2, 1), (2, 4)))
    )
    eyes = Eyes(graph)
    assert eyes.tensor(graph.inputs[0]) in eyes.loads(y)
    space = space_of(graph)
    assert len(space.best().program.kernels) == 1
    for candidate in space.candidates:
        Oracle(graph).check(space.forced(candidate))


def test_compose_views_leaves_paddings_with_different_values_apart():
    graph, (y,) = built(
        lambda net: split_views(net, lambda s: pad(s, (1, 0), (0, 0), 1.0), lambda s: pad(s, (0, 1), (0, 0), 2.0))
    )
    eyes = Eyes(graph)
    assert eyes.tensor(graph.inputs[0]) not in eyes.loads(y)
    program = space_of(graph).best().program
    assert len(program.kernels) == 2
    Oracle(graph).check(program)


def test_a_padded_size_is_computed_though_it_is_made_of_nothing():
    """What is made of indices alone is not read from memory, unless there is no other way to have it."""
    length = symbol("length")

    def make(net: Net):
        net.input("x", float32, (length,))
        return net.concat([net.reshape(net.dim_value(length), (1,)), net.constant(np.array([7, 9]))], 0)

    graph, _ = built(make, length=Range(1, 4, 9))
    Oracle(graph, {"length": 5}).check(space_of(graph).best().program)


# push-view and through-*


def test_push_view_moves_a_view_to_the_loads():
    graph, (y,) = built(lambda net: net("neg", net.transpose(net("exp", net.input("x", float32, (4, 6))), (1, 0))))
    program = space_of(graph).best().program
    assert len(program.kernels) == 1
    Oracle(graph).check(program)


def test_push_view_does_not_compute_a_shared_value_twice():
    def make(net: Net):
        value = twice_used(net, net.input("x", float32, (4, 6)))
        return net("cos", net.transpose(value, (1, 0)))

    assert Eyes(built(make)[0]).matches.get("push-view", 0) == 0


def test_push_view_does_not_move_padding_into_a_computation():
    graph, _ = built(lambda net: net("cos", net.pad(net("exp", net.input("x", float32, (4, 6))), (1, 0), (0, 2), 0.5)))
    assert Eyes(graph).matches.get("push-view", 0) == 0
    Oracle(graph).check(space_of(graph).best().program)


def test_through_red_moves_a_reshape_but_no_other_view():
    def make(net: Net, view):
        x = net.input("x", float32, (4, 6))
        return net("neg", view(net, net.reduce("sum", net("exp", x), [1])))

    reshaped, (y,) = built(lambda net: make(net, lambda net, v: net.reshape(v, (2, 2))))
    assert len(space_of(reshaped).best().program.kernels) == 1
    repeated, (z,) = built(lambda net: make(net, lambda net, v: net.expand(v, (3, 4))))
    assert Eyes(repeated).kinds(z.node.inputs[0])["Red"] == 0
    for graph in (reshaped, repeated):
        Oracle(graph).check(space_of(graph).best().program)


# row-broadcast


def row_kernel_count(axis: int, reduced: bool = True) -> int:
    def make(net: Net):
        x = net.input("x", float32, (5, 5))
        rows = net.reduce("sum", x, [1]) if reduced else net("exp", net.input("r", float32, (5,)))
        net.output("rows", rows)
        net.output("again", net("neg", rows))
        return net("sub", x, net.expand(net.reshape(rows, (5, 1) if axis == 1 else (1, 5)), (5, 5)))

    graph, (y,) = built(make)
    spread = y.node.inputs[1]
    Oracle(graph).check(space_of(graph).best().program)
    return Eyes(graph).kinds(spread)["Bcast"]


def test_row_broadcast_repeats_a_reduced_value_along_its_row():
    assert row_kernel_count(axis=1) == 1


def test_row_broadcast_leaves_a_value_alone_that_runs_along_the_columns():
    assert row_kernel_count(axis=0) == 0


def test_row_broadcast_needs_a_reduction():
    assert row_kernel_count(axis=1, reduced=False) == 0


# Matrix products


@pytest.mark.parametrize("batch", [0, 3])
@pytest.mark.parametrize("y_storage", STORAGES)
@pytest.mark.parametrize("x_storage", STORAGES)
@pytest.mark.parametrize("family", ["col", "row"])
def test_every_layout_is_offered_and_right(family: str, x_storage: str, y_storage: str, batch: int):
    graph, product, _ = product_graph(x_storage, y_storage, batch)
    space, oracle = space_of(graph), Oracle(graph)
    calls = [c for c in space.candidates if c.kind == "lt" and c.matmul.order_d == family]
    assert len(calls) == 1
    m = calls[0].matmul
    assert m.batch == max(batch, 1)
    if family == "col":
        assert (m.m, m.n, m.transpose_a, m.transpose_b) == (11, 7, y_storage == "cm", x_storage == "cm")
    else:
        assert (m.m, m.n, m.order_a, m.order_b) == (
            7, 11, "row" if x_storage == "rm" else "col", "row" if y_storage == "rm" else "col",
        )
    oracle.check(space.forced(calls[0]))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_products_of_other_floats_are_right(dtype: str):
    graph, _, _ = product_graph(dtype=BY_NAME[dtype], bias=True)
    space, oracle = space_of(graph), Oracle(graph)
    calls = [candidate for candidate in space.candidates if candidate.kind == "lt"]
    assert {call.matmul.epilogue for call in calls} == {"default", "bias"}
    assert {call.matmul.compute.name for call in calls} == {"float64" if dtype == "float64" else "float32"}
    for call in calls:
        oracle.check(space.forced(call))


@pytest.mark.parametrize("sizes", [(1, 11, 5), (7, 1, 5), (1, 1, 5), (7, 7, 7), (1, 300, 64)])
def test_extents_of_one_and_squares_are_right(sizes: tuple[int, int, int]):
    graph, _, _ = product_graph("cm", "cm", bias=True, sizes=sizes)
    space, oracle = space_of(graph), Oracle(graph)
    for candidate in space.candidates:
        oracle.check(space.forced(candidate))
    has_matrix = sizes[:2] != (1, 1)
    assert any(candidate.kind == "lt" for candidate in space.candidates) == has_matrix


def no_product(make) -> Graph:
    graph, values = built(make)
    assert Eyes(graph).matches.get("matmul-rows-first", 0) + Eyes(graph).matches.get("matmul-columns-first", 0) == 0
    Oracle(graph).check(space_of(graph).best().program)
    return graph


def test_a_sum_of_squares_is_no_product():
    no_product(lambda net: net.reduce("sum", net("mul", *[net.input("x", float32, (4, 6))] * 2), [1]))


def test_a_row_by_row_dot_product_is_no_product():
    no_product(
        lambda net: net.reduce("sum", net("mul", net.input("x", float32, (4, 6)), net.input("y", float32, (4, 6))), [1])
    )


def test_a_product_over_one_element_is_no_product():
    no_product(lambda net: net.matmul(net.input("x", float32, (7, 1)), net.input("y", float32, (1, 11))))


def test_an_integer_product_is_no_library_call():
    no_product(lambda net: net.matmul(net.input("x", int32, (7, 5)), net.input("y", int32, (5, 11))))


def test_a_greatest_product_is_no_sum():
    def make(net: Net):
        x, y = net.input("x", float32, (7, 5)), net.input("y", float32, (5, 11))
        i, j, k = map(index_symbol, range(3))
        factors = (net.view(v, select(v.shape, (7, 11, 5), at)) for v, at in ((x, [i, k]), (y, [k, j])))
        return net.reduce("max", net("mul", *factors), [2])

    no_product(make)


def test_a_product_through_a_flipped_operand_is_no_library_call():
    def make(net: Net):
        x = net.input("x", float32, (7, 5))
        return net.matmul(net.slice(x, (0, 4), (1, -1), (7, 5)), net.input("y", float32, (5, 11)))

    graph, _ = built(make)
    eyes = Eyes(graph)
    assert all(record.lda >= 1 and record.ldb >= 1 for record in eyes.library(graph.outputs[0]))
    space, oracle = space_of(graph), Oracle(graph)
    for candidate in space.candidates:
        oracle.check(space.forced(candidate))


def test_a_sliced_operand_keeps_its_leading_dimension_and_offset():
    def make(net: Net):
        x = net.slice(net.input("x", float32, (9, 8)), (2, 3), (1, 1), (7, 5))
        return net.matmul(x, net.input("y", float32, (5, 11)))

    graph, (y,) = built(make)
    eyes = Eyes(graph)
    by_rows = [record for record in eyes.library(y) if record.order_d == "row" and record.lda == 8]
    assert [record.offset_a for record in by_rows] == [2 * 8 + 3]
    space, oracle = space_of(graph), Oracle(graph)
    for candidate in space.candidates:
        oracle.check(space.forced(candidate))


def test_a_shared_weight_has_batch_stride_zero_or_joins_the_batch_to_the_rows():
    def make(net: Net, order):
        x = net.transpose(net.input("x", float32, (3, 7, 5)), order)
        return net.matmul(x, net.input("w", float32, (5, 11)))

    graph, (y,) = built(lambda net: make(net, (0, 1, 2)))
    assert {(record.m, record.n, record.batch) for record in Eyes(graph).library(y)} == {(21, 11, 1), (11, 21, 1)}
    graph, (y,) = built(lambda net: make(net, (1, 0, 2)))
    shared = [record for record in Eyes(graph).library(y) if record.batch == 3]  # seven rows are more than three
    assert {record.stride_b if record.order_d == "row" else record.stride_a for record in shared} == {0}
    Oracle(graph).check(space_of(graph).best().program)


def test_a_symbolic_product_keeps_its_sizes():
    rows, depth = symbol("rows"), symbol("depth")
    graph, (y,) = built(
        lambda net: net.matmul(net.input("x", float32, (rows, depth)), net.input("y", float32, (depth, 11))),
        rows=Range(1, 7, 50), depth=Range(1, 5, 50),
    )
    records = Eyes(graph).library(y)
    assert {(record.m, record.n, record.k) for record in records} == {(rows, 11, depth), (11, rows, depth)}
    oracle = Oracle(graph, {"rows": 3, "depth": 9})
    space = space_of(graph)
    for candidate in space.candidates:
        oracle.check(space.forced(candidate))


def test_a_size_that_may_be_zero_is_left_to_generated_kernels():
    depth = symbol("depth")
    graph, (y,) = built(
        lambda net: net.matmul(net.input("x", float32, (7, depth)), net.input("y", float32, (depth, 11))),
        depth=Range(0, 5, 50),
    )
    assert Eyes(graph).library(y) == []


# Bias


@pytest.mark.parametrize("batch", [0, 3])
@pytest.mark.parametrize("bias_first", [False, True])
def test_a_bias_along_the_columns_joins_the_call(bias_first: bool, batch: int):
    graph, _, result = product_graph(bias=True, bias_first=bias_first, batch=batch)
    with_bias = [record for record in Eyes(graph).library(result) if record.epilogue == "bias"]
    assert with_bias and all(record.order_d == "col" and record.m == 11 for record in with_bias)
    space, oracle = space_of(graph), Oracle(graph)
    for candidate in space.candidates:
        oracle.check(space.forced(candidate))


@pytest.mark.parametrize("kind", ["rows", "square rows", "matrix", "sliced"])
def test_what_is_not_a_whole_vector_along_the_columns_is_no_bias(kind: str):
    rows = 11 if kind == "square rows" else 7

    def make(net: Net):
        product = net.matmul(net.input("x", float32, (rows, 5)), net.input("y", float32, (5, 11)))
        if kind == "matrix":
            added = net.input("b", float32, (rows, 11))
        elif kind == "sliced":
            added = net.spread(net.slice(net.input("b", float32, (13,)), (2,), (1,), (11,)), product)
        else:
            added = net.spread(net.input("b", float32, (rows, 1)), product)
        return net("add", product, added)

    graph, (result,) = built(make)
    assert not any(record.has_bias for record in Eyes(graph).library(result))
    Oracle(graph).check(space_of(graph).best().program)


def test_a_bias_that_is_multiplied_is_no_bias():
    graph, _ = built(
        lambda net: net("mul", net.matmul(net.input("x", float32, (7, 5)), net.input("y", float32, (5, 11))),
                        net.expand(net.input("b", float32, (11,)), (7, 11)))
    )
    assert Eyes(graph).library(graph.outputs[0]) == []


# Packing


def test_a_factor_in_an_order_that_no_library_takes_is_packed():
    def make(net: Net):
        x = net.reshape(net.transpose(net.input("x", float32, (2, 7, 3)), (1, 0, 2)), (7, 6))
        return net.matmul(x, net.input("y", float32, (6, 11)))

    graph, (y,) = built(make)
    assert Eyes(graph).library(y)
    space, oracle = space_of(graph), Oracle(graph)
    assert any(candidate.kind == "lt" for candidate in space.candidates)
    for candidate in space.candidates:
        oracle.check(space.forced(candidate))


def test_factors_that_a_library_takes_as_they_are_and_windows_are_not_packed():
    for graph in (product_graph("cm", "cm", batch=3)[0], convolutional()):
        packed = Eyes(graph).matches
        assert packed.get("pack-left", 0) + packed.get("pack-right", 0) == 0


# Names


def test_softmax_and_norms_are_recognised_in_every_spelling():
    for graph in (encoder(), symbolic_encoder(), spelled_otherwise()):
        classes = Eyes(graph).classes
        assert classes.softmax and classes.layer_norm


def test_a_near_miss_is_not_a_softmax():
    def make(net: Net, reduction: str):
        x = net.input("x", float32, (4, 6))
        powers = net("exp", net("sub", x, net.spread(net.reduce(reduction, x, [1], True), x)))
        return net("div", powers, net.spread(net.reduce("sum", powers, [1], True), x))

    assert not Eyes(built(lambda net: make(net, "min"))[0]).classes.softmax
    assert Eyes(built(lambda net: make(net, "max"))[0]).classes.softmax


def test_dividing_by_another_values_deviation_is_no_norm():
    def make(net: Net):
        x, y = net.input("x", float64, (4, 6)), net.input("y", float64, (4, 6))
        deviation = net("sqrt", net("add", net.mean(net("mul", y, y), [1], True), 1e-5))
        return net("div", x, net.spread(deviation, x))

    classes = Eyes(built(make)[0]).classes
    assert not classes.rms_norm and not classes.layer_norm
