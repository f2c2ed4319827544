"""Products of one tensor with several weights joined into one: when it happens, what blocks it, and that it is right."""

from __future__ import annotations

import numpy as np
import pytest
from search_graphs import Net, encoder, symbolic_encoder
from search_tools import TARGET, Eyes, Oracle, built, space_of
from tolerances import MODEL, REDUCTION

from luminal_onnx import importer
from luminal_onnx.codegen.lowering import lower
from luminal_onnx.ir.egraph import siblings
from luminal_onnx.ir.graph import Graph, Value
from luminal_onnx.ir.program import LtKernel, Program
from luminal_onnx.ir.search import SearchOptions, search
from luminal_onnx.models import bert, llama
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import BY_NAME, DType, float16, float32

ASK = ("ask-sibling", "ask-biased-sibling")


def weight_bytes(program: Program) -> int:
    return sum(tensor.data.nbytes for tensor in program.tensors if tensor.kind == "weight")


def joined_names(program: Program) -> list[str]:
    return [tensor.name for tensor in program.tensors if tensor.kind == "weight" and "+" in tensor.name]


def calls(program: Program) -> list[LtKernel]:
    return [kernel for kernel in program.kernels if isinstance(kernel, LtKernel)]


def product(net: Net, x: Value, columns: int, storage: str = "rm", bias: bool = False) -> Value:
    depth = x.shape[-1]
    if storage == "rm":
        weight = net.weight(depth, columns, dtype=x.dtype)
    else:
        weight = net.transpose(net.weight(columns, depth, dtype=x.dtype, scale=depth**-0.5), (1, 0))
    y = net.matmul(x, weight)
    return net("add", y, net.spread(net.weight(columns, dtype=x.dtype, scale=0.5), y)) if bias else y


def used(net: Net, *values: Value) -> tuple[Value, ...]:
    """Each value in a kernel of its own that takes no product in."""
    return tuple(net("exp", net.transpose(value, (1, 0))) for value in values)


def joined_parts(graph: Graph) -> list[int]:
    """How many parts each joined weight of a graph has; biases are weights too."""
    return [len(joined.parts) for joined in Eyes(graph).saturated.joined.values()]


# It happens


def test_the_projections_of_attention_become_one_product():
    graph = encoder(batch=1, length=128, width=768, heads=12)
    joined, apart = search(graph, TARGET), search(graph, TARGET, SearchOptions(without=ASK))
    wide = [kernel for kernel in calls(joined.program) if 3 * 768 in (kernel.matmul.m, kernel.matmul.n)]
    assert len(wide) == 1 and wide[0].matmul.epilogue == "bias"
    readers = [kernel for kernel in joined.program.kernels if wide[0].writes[0] in kernel.reads]
    assert 2 <= len(readers) <= 3
    assert joined.report.cost < apart.report.cost - 2 * TARGET.launch
    assert len(joined.program.kernels) == len(apart.program.kernels) - 2
    assert weight_bytes(joined.program) == weight_bytes(apart.program)


def test_every_layer_of_bert_joins_its_projections():
    graph = importer.load(bert.build(layers=3, hidden=256, heads=4, seq=128, vocab=100)).graph
    names = joined_names(search(graph, TARGET).program)
    for layer in range(3):
        scope = f"encoder.layer.{layer}.attention.self."
        for kind in ("weight", "bias"):
            assert "+".join(f"{scope}{name}.{kind}" for name in ("query", "key", "value")) in names
    assert len(names) == 6


def test_llama_joins_projections_of_different_widths_and_the_gate():
    model = llama.build(layers=1, hidden=1024, heads=8, kv_heads=2, intermediate=2816, seq=128, past=0)
    graph = importer.load(model).graph
    program = search(graph, TARGET).program
    assert {name.count("+") for name in joined_names(program)} == {1, 2}
    assert {kernel.matmul.m for kernel in calls(program)} >= {1024 + 2 * 256, 2 * 2816}


def test_symbolic_sizes_join_too():
    program = search(symbolic_encoder(width=64, heads=4), TARGET).program
    assert len(joined_names(program)) == 2


# It is blocked


def blocked(make) -> None:
    graph, _ = built(make)
    assert joined_parts(graph) == []
    Oracle(graph).check(space_of(graph).best().program)


def test_weights_that_are_fed_are_not_joined():
    def make(net: Net):
        x = net.input("x", float32, (7, 5))
        return used(net, *(net.matmul(x, net.input(name, float32, (5, 6))) for name in "ab"))

    blocked(make)


def test_biases_that_are_fed_are_not_joined_but_the_products_are():
    def make(net: Net):
        x = net.input("x", float32, (7, 5))
        values = [product(net, x, 6) for _ in range(2)]
        biases = [net.spread(net.input(name, float32, (6,)), values[0]) for name in "ab"]
        return used(net, *(net("add", value, bias) for value, bias in zip(values, biases)))

    graph, _ = built(make)
    assert joined_parts(graph) == [2]


def test_products_of_different_tensors_are_not_joined():
    blocked(lambda net: used(net, *(product(net, net.input(name, float32, (7, 5)), 6) for name in "xy")))


def test_products_that_read_a_tensor_in_different_ways_are_not_joined():
    def make(net: Net):
        x = net.input("x", float32, (6, 6))
        return used(net, product(net, x, 4), product(net, net.transpose(x, (1, 0)), 4))

    blocked(make)


def test_weights_stored_in_different_orders_are_not_joined():
    def make(net: Net):
        x = net.input("x", float32, (7, 5))
        return used(net, product(net, x, 6), product(net, x, 6, "cm"))

    blocked(make)


def test_products_of_different_dtypes_are_not_joined():
    def make(net: Net):
        x = net.input("x", float32, (7, 5))
        return used(net, product(net, x, 6), product(net, net.cast(x, float16), 6))

    graph, _ = built(make)
    assert joined_parts(graph) == []


def test_a_weight_that_is_used_again_is_not_joined():
    """It would have to be kept twice."""

    def make(net: Net):
        x, y = net.input("x", float32, (7, 5)), net.input("y", float32, (3, 5))
        shared = net.weight(5, 6)
        return used(net, net.matmul(x, shared), product(net, x, 6), net.matmul(y, shared))

    blocked(make)


def test_a_part_of_a_weight_is_not_joined():
    def make(net: Net):
        x = net.input("x", float32, (7, 5))
        whole = net.weight(5, 12)
        halves = (net.slice(whole, (0, start), (1, 1), (5, 6)) for start in (0, 6))
        return used(net, *(net.matmul(x, half) for half in halves))

    blocked(make)


def test_weights_that_hold_the_rows_are_not_joined():
    def make(net: Net):
        x = net.input("x", float32, (5, 7))
        return used(net, *(net.matmul(net.weight(6, 5), x) for _ in range(2)))

    blocked(make)


def test_weights_beyond_the_limit_are_not_joined(monkeypatch: pytest.MonkeyPatch):
    def make(net: Net):
        return used(net, *(product(net, x, 6) for x in [net.input("x", float32, (7, 5))] * 2))

    assert joined_parts(built(make)[0]) == [2]
    monkeypatch.setattr(siblings, "MOST_BYTES", 2 * 5 * 6 * 4 - 1)
    blocked(make)


def test_many_siblings_are_joined_in_groups_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(siblings, "MOST_PARTS", 3)

    def make(net: Net):
        x = net.input("x", float32, (7, 5))
        return used(net, *(product(net, x, 4) for _ in range(7)))

    graph, _ = built(make)
    assert joined_parts(graph) == [3, 3]
    Oracle(graph).check(space_of(graph).best().program)


# It is right


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("storage", ["rm", "cm"])
@pytest.mark.parametrize("lead", [(7,), (2, 7), (1,)])
def test_every_candidate_is_right(lead: tuple[int, ...], storage: str, bias: bool):
    def make(net: Net):
        x = net.input("x", float32, (*lead, 5))
        a, b, c = (product(net, x, columns, storage, bias) for columns in (6, 3, 6))
        return net("mul", net("exp", a), c), net("neg", b)

    graph, _ = built(make)
    assert set(joined_parts(graph)) == {3}
    space, oracle = space_of(graph), Oracle(graph)
    reads_joint = 0
    for candidate in space.candidates:
        program = space.forced(candidate)
        assert program is not None, f"{candidate} cannot be selected"
        oracle.check(program)
        reads_joint += any(read in space.classes.parts for read in candidate.reads)
    assert reads_joint > 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats_are_right(dtype: str):
    def make(net: Net):
        x = net.input("x", BY_NAME[dtype], (7, 16))
        return used(net, *(product(net, x, columns, bias=True) for columns in (8, 4)))

    graph, _ = built(make)
    assert joined_parts(graph) == [2, 2]
    space, oracle = space_of(graph), Oracle(graph)
    for candidate in space.candidates:
        oracle.check(space.forced(candidate), MODEL if BY_NAME[dtype].size == 2 else REDUCTION)


def test_columns_of_several_axes_are_joined_and_right():
    def make(net: Net):
        x = net.input("x", float32, (7, 5))
        columns = [net.reshape(net.weight(5, 6), (5, 2, 3)) for _ in range(2)]
        values = [net.reshape(net.matmul(x, net.reshape(weight, (5, 6))), (7, 2, 3)) for weight in columns]
        return tuple(net("exp", net.transpose(value, (1, 0, 2))) for value in values)

    graph, _ = built(make)
    assert joined_parts(graph) == [2]
    space, oracle = space_of(graph), Oracle(graph)
    for candidate in space.candidates:
        oracle.check(space.forced(candidate))


def test_two_biases_on_one_product_are_kept_apart():
    def make(net: Net):
        x = net.input("x", float32, (7, 5))
        first, second = product(net, x, 6), product(net, x, 6, bias=True)
        vectors = [net.weight(6, scale=0.5) for _ in range(2)]
        return used(net, second, *(net("add", first, net.spread(vector, first)) for vector in vectors))

    graph, _ = built(make)
    assert joined_parts(graph) == [2, 2]  # the weights and one bias of each
    space, oracle = space_of(graph), Oracle(graph)
    for candidate in space.candidates:
        program = space.forced(candidate)
        if program is not None:
            oracle.check(program)


def test_a_part_that_is_an_output_is_stored_by_itself():
    def make(net: Net):
        x = net.input("x", float32, (64, 256))
        a, b, c = (product(net, x, 256) for _ in range(3))
        return a, *used(net, b, c)

    graph, _ = built(make)
    program = search(graph, TARGET).program
    assert all(type.shape == value.type.shape for (_, type, _), value in zip(program.outputs, graph.outputs))
    Oracle(graph).check(program)


@pytest.mark.parametrize("rows", [1, 3, 50])
def test_symbolic_rows_are_right(rows: int):
    count = symbol("rows")

    def make(net: Net):
        x = net.input("x", float32, (count, 5))
        return used(net, *(product(net, x, columns, bias=True) for columns in (6, 3)))

    graph, _ = built(make, rows=Range(1, 7, 50))
    assert joined_parts(graph) == [2, 2]
    space, oracle = space_of(graph), Oracle(graph, {"rows": rows})
    for candidate in space.candidates:
        oracle.check(space.forced(candidate))


# Weights


def test_a_joined_weight_is_a_recipe_until_a_program_needs_it():
    def make(net: Net):
        x = net.input("x", float32, (128, 64))
        return used(net, product(net, x, 64), product(net, x, 32))

    graph, _ = built(make)
    space = space_of(graph)
    (recipe,) = space.classes.saturated.joined.values()
    assert not any(isinstance(value, np.ndarray) for value in vars(recipe).values())
    parts = [node.attrs["data"] for node in graph.nodes() if node.op == "constant" and node.attrs["data"].ndim == 2]
    (weight,) = [tensor for tensor in space.best().program.tensors if tensor.kind == "weight"]
    np.testing.assert_array_equal(weight.data, np.concatenate(parts, 1))


@pytest.mark.parametrize("dtype", [float32, float16])
def test_originals_are_not_stored_and_no_byte_is_added(dtype: DType):
    graph = encoder(layers=2, length=16, width=64, heads=4, dtype=dtype)
    joined = lower(search(graph, TARGET).program, "sm_90")
    apart = lower(search(graph, TARGET, SearchOptions(without=ASK)).program, "sm_90")
    sizes = [sum(array.nbytes for array in lowered.weights.values()) for lowered in (joined, apart)]
    assert sizes[0] == sizes[1]
    assert sorted(array.shape for array in joined.weights.values()).count((64, 192)) == 2
    assert len(joined.weights) == len(apart.weights) - 2 * 4


def test_two_searches_write_the_same():
    first, second = (lower(search(encoder(layers=2, width=64, heads=4), TARGET).program, "sm_90") for _ in range(2))
    assert first.plan == second.plan and first.sources == second.sources
    assert [(name, array.tobytes()) for name, array in first.weights.items()] == [
        (name, array.tobytes()) for name, array in second.weights.items()
    ]
