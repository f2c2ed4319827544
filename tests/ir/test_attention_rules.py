"""The rules for attention: that they fire, what blocks them, and that the kernels they offer are equal to what they replace."""

from __future__ import annotations

import numpy as np
import pytest
from search_graphs import Net, encoder
from search_tools import Oracle, built, space_of
from tolerances import MODEL

from luminal_onnx.ir.attention import classify_attention
from luminal_onnx.ir.graph import Graph, Value
from luminal_onnx.ir.legality import check_region
from luminal_onnx.ir.schedule import ATTENTION
from luminal_onnx.plan.dims import Range, index_symbol, symbol
from luminal_onnx.plan.dtypes import DType, float16, float32

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 5, 7, 8


def parts(net: Net, dtype: DType = float16, kv_heads: int = HEADS, width: int = WIDTH, queries=QUERIES, keys=KEYS, batch=BATCH):
    """Queries, keys and values as [batch, heads, length, width]."""
    q = net.input("q", dtype, (batch, queries, HEADS, width))
    k, v = (net.input(name, dtype, (batch, keys, kv_heads, width)) for name in "kv")
    return tuple(net.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))


def scores(net: Net, q: Value, k: Value) -> Value:
    return net.matmul(q, net.transpose(k, (0, 1, 3, 2)))


def merged(net: Net, x: Value) -> Value:
    """Heads side by side, as [batch, queries, heads * width]."""
    batch, heads, queries, width = x.shape
    return net.reshape(net.transpose(x, (0, 2, 1, 3)), (batch, queries, heads * width))


def plain(net: Net) -> Value:
    q, k, v = parts(net)
    return merged(net, net.matmul(net.softmax(net("mul", scores(net, q, k), WIDTH**-0.5), 3), v))


def unmerged(net: Net) -> Value:
    q, k, v = parts(net)
    return net.matmul(net.softmax(scores(net, q, k), 3), v)


def scaled_queries(net: Net) -> Value:
    q, k, v = parts(net)
    return merged(net, net.matmul(net.softmax(scores(net, net("mul", q, 0.5), k), 3), v))


def masked(net: Net) -> Value:
    """Scaled by a division, with a mask over keys that is minus infinity in places."""
    q, k, v = parts(net)
    x = net("div", scores(net, q, k), 2.0)
    seen = net.input("seen", float16, (BATCH, 1, 1, KEYS))
    bias = net("where", net("less", seen, -0.5), net.scalar(-np.inf, float16), 0.0)
    return merged(net, net.matmul(net.softmax(net("add", x, net.spread(bias, x)), 3), v))


def causal(net: Net) -> Value:
    q, k, v = parts(net)
    x = scores(net, q, k)
    seen = net("less_equal", net.iota(x.shape, index_symbol(3)), net.iota(x.shape, index_symbol(2) + (KEYS - QUERIES)))
    return merged(net, net.matmul(net.softmax(net("where", seen, x, -1e4), 3), v))


def grouped(net: Net) -> Value:
    """Three query heads share one head of keys and values."""
    q, k, v = parts(net, kv_heads=1)
    k, v = (net.expand(x, (BATCH, HEADS, KEYS, WIDTH)) for x in (k, v))
    return merged(net, net.matmul(net.softmax(scores(net, q, k), 3), v))


def flat_heads(net: Net) -> Value:
    """Batch and heads as one axis, as older exporters write it."""
    q, k, v = (net.reshape(x, (BATCH * HEADS, x.shape[2], WIDTH)) for x in parts(net))
    y = net.matmul(net.softmax(net.matmul(q, net.transpose(k, (0, 2, 1))), 2), v)
    return merged(net, net.reshape(y, (BATCH, HEADS, QUERIES, WIDTH)))


FUSED = (plain, unmerged, scaled_queries, masked, causal, grouped, flat_heads)


def attention_programs(graph: Graph):
    space = space_of(graph)
    return space, [candidate for candidate in space.candidates if candidate.schedule == ATTENTION]


@pytest.mark.parametrize("make", FUSED, ids=lambda make: make.__name__)
def test_attention_is_offered_chosen_and_right(make):
    graph, _ = built(make)
    space, found = attention_programs(graph)
    oracle = Oracle(graph)
    assert found
    for candidate in found:
        check_region(candidate.region)
        assert classify_attention(candidate.region) is not None
        oracle.check(space.forced(candidate), MODEL)
    best = space.best()
    assert best.report.kernels[ATTENTION] == 1
    oracle.check(best.program, MODEL)


def test_heads_are_merged_for_nothing():
    for make in (plain, scaled_queries, grouped, flat_heads):
        graph, _ = built(make)
        assert sum(space_of(graph).best().report.kernels.values()) == 1, make.__name__


@pytest.mark.parametrize("at", [{"batch": 1, "queries": 1, "keys": 1}, {"batch": 3, "queries": 9, "keys": 20}], ids=str)
def test_named_sizes(at):
    ranges = {"batch": Range(1, 2, 4), "queries": Range(1, 16, 32), "keys": Range(1, 16, 64)}

    def make(net: Net):
        q, k, v = parts(net, batch=symbol("batch"), queries=symbol("queries"), keys=symbol("keys"))
        return merged(net, net.matmul(net.softmax(scores(net, q, k), 3), v))

    graph, _ = built(make, **ranges)
    best = space_of(graph).best()
    assert best.report.kernels == {ATTENTION: 1}
    Oracle(graph, at).check(best.program, MODEL)


# What blocks it


def softmax_over_queries(net: Net) -> Value:
    q, k, v = parts(net, queries=KEYS)
    return net.matmul(net.softmax(scores(net, q, k), 2), v)


def scaled_between(net: Net) -> Value:
    q, k, v = parts(net)
    return net.matmul(net("mul", net.softmax(scores(net, q, k), 3), 0.5), v)


def transposed_probabilities(net: Net) -> Value:
    q, k, v = parts(net, queries=KEYS)
    return net.matmul(net.transpose(net.softmax(scores(net, q, k), 3), (0, 1, 3, 2)), v)


def no_maximum(net: Net) -> Value:
    """The exponentials of the scores as they are: not what the kernel computes where they overflow."""
    q, k, v = parts(net)
    e = net("exp", scores(net, q, k))
    return net.matmul(net("div", e, net.spread(net.reduce("sum", e, [3], True), e)), v)


def another_maximum(net: Net) -> Value:
    """Shifted by the maximum of something else."""
    q, k, v = parts(net)
    x = scores(net, q, k)
    e = net("exp", net("sub", x, net.spread(net.reduce("max", net("abs", x), [3], True), x)))
    return net.matmul(net("div", e, net.spread(net.reduce("sum", e, [3], True), e)), v)


def another_sum(net: Net) -> Value:
    """Divided by the sum of something else."""
    q, k, v = parts(net)
    x = scores(net, q, k)
    e = net("exp", net("sub", x, net.spread(net.reduce("max", x, [3], True), x)))
    return net.matmul(net("div", e, net.spread(net.reduce("sum", net("add", e, 0.01), [3], True), e)), v)


def no_scores(net: Net) -> Value:
    """Weights that are no product of queries and keys."""
    _, _, v = parts(net)
    return net.matmul(net.softmax(net.input("x", float16, (BATCH, HEADS, QUERIES, KEYS)), 3), v)


def part_of_the_keys(net: Net) -> Value:
    """Only the first few columns of the probabilities are used."""
    q, k, v = parts(net)
    p = net.softmax(scores(net, q, k), 3)
    return net.matmul(net.slice_axis(p, 3, 0, 4), net.slice_axis(v, 2, 0, 4))


def in_float32(net: Net) -> Value:
    q, k, v = parts(net, float32)
    return net.matmul(net.softmax(scores(net, q, k), 3), v)


def of_odd_width(net: Net) -> Value:
    q, k, v = parts(net, width=12)
    return net.matmul(net.softmax(scores(net, q, k), 3), v)


def wide_probabilities(net: Net) -> Value:
    """Probabilities in float32 are not rounded to float16 before they weigh the values."""
    q, k, v = parts(net)
    p = net.softmax(net.cast(scores(net, q, k), float32), 3)
    return net.cast(net.matmul(p, net.cast(v, float32)), float16)


BLOCKED = (
    softmax_over_queries, scaled_between, transposed_probabilities, no_maximum, another_maximum, another_sum, no_scores,
    part_of_the_keys, in_float32, of_odd_width, wide_probabilities,
)  # fmt: skip


@pytest.mark.parametrize("make", BLOCKED, ids=lambda make: make.__name__)
def test_what_is_no_attention_is_left_alone_and_right(make):
    graph, _ = built(make)
    space, found = attention_programs(graph)
    assert not found
    Oracle(graph).check(space.best().program, MODEL)


def test_probabilities_that_others_want_too_are_still_stored():
    def make(net: Net):
        q, k, v = parts(net)
        p = net.softmax(scores(net, q, k), 3)
        return p, merged(net, net.matmul(p, v))

    graph, _ = built(make)
    space, found = attention_programs(graph)
    oracle = Oracle(graph)
    oracle.check(space.best().program, MODEL)
    for candidate in found:
        oracle.check(space.forced(candidate), MODEL)


def test_layers_keep_their_own_queries_and_values():
    graph = encoder(layers=3, width=16, heads=2, dtype=float16)
    best = space_of(graph).best()
    assert best.report.kernels[ATTENTION] == 3
    assert sorted(best.report.labels.values()).count("attention") == 3
    Oracle(graph).check(best.program, MODEL)


def test_random_programs_with_attention_equal_the_interpreter():
    graph = encoder(layers=2, width=16, heads=2, dtype=float16)
    space, oracle = space_of(graph), Oracle(graph)
    programs = list(filter(None, (space.random(seed) for seed in range(40))))
    used = [program for program in programs if any(getattr(k, "schedule", "") == ATTENTION for k in program.kernels)]
    assert len(programs) >= 35 and len(used) >= 5
    for program in programs:
        oracle.check(program, MODEL)


def test_the_kernel_names_all_nodes_that_it_covers():
    net = Net("origins")
    q, k, v = parts(net)
    net.origin = ("scores",)
    x = scores(net, q, k)
    net.origin = ("scale",)
    x = net("mul", x, 0.5)
    net.origin = ("softmax",)
    p = net.softmax(x, 3)
    net.origin = ("values",)
    y = net.matmul(p, v)
    net.origin = ("merge",)
    net.output("y", merged(net, y))
    (kernel,) = space_of(net.graph).best().program.kernels
    assert set(kernel.origin) >= {"scores", "scale", "softmax", "values"}


def test_without_the_rules_there_is_no_attention():
    graph, _ = built(plain)
    for rule in ("ask-attention", "attention"):
        space = space_of(graph, without=(rule,))
        assert not any(candidate.schedule == ATTENTION for candidate in space.candidates)
    space = space_of(graph, without=("attention-reordered",))
    assert sum(space.best().report.kernels.values()) == 2
    assert np.isfinite(space.best().report.cost)
