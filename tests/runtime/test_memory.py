"""The memory planner: buffers alive together never overlap, and the arena is close to the least possible."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from luminal_onnx.runtime.memory import plan_memory


def assert_sound(sizes, lifetimes, plan, alignment=256):
    assert set(plan.offsets) == set(sizes)
    live = [b for b in sizes if sizes[b] > 0]
    for b in live:
        assert plan.offsets[b] % alignment == 0
        assert 0 <= plan.offsets[b] and plan.offsets[b] + sizes[b] <= plan.peak_bytes
    for i, a in enumerate(live):
        for b in live[i + 1 :]:
            together = lifetimes[a][0] <= lifetimes[b][1] and lifetimes[b][0] <= lifetimes[a][1]
            apart = plan.offsets[a] + sizes[a] <= plan.offsets[b] or plan.offsets[b] + sizes[b] <= plan.offsets[a]
            assert apart or not together, f"buffers {a} and {b} overlap"
    assert plan.peak_bytes >= plan.lower_bound


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12)), max_size=40))
def test_buffers_alive_together_never_overlap(rows):
    sizes = {i: size for i, (size, _, _) in enumerate(rows)}
    lifetimes = {i: (first, first + length) for i, (_, first, length) in enumerate(rows)}
    plan = plan_memory(sizes, lifetimes)
    assert_sound(sizes, lifetimes, plan)
    assert plan == plan_memory(dict(reversed(sizes.items())), lifetimes)


def transformer(layers: int, tokens: int, hidden: int, heads: int):
    """Lifetimes of a decoder's intermediate tensors: a residual stream, attention and a wide feed-forward part."""
    sizes, lifetimes = {}, {}

    def add(size: int, first: int, last: int) -> None:
        sizes[len(sizes)] = size
        lifetimes[len(lifetimes)] = (first, last)

    step = 0
    for _ in range(layers):
        row = tokens * hidden * 4
        add(row, step, step + 3)  # normalised input
        for _ in range(3):
            add(row, step + 1, step + 4)  # q, k, v
        add(heads * tokens * tokens * 4, step + 4, step + 5)  # scores
        add(row, step + 5, step + 6)  # attention output
        add(row, step + 6, step + 10)  # residual
        add(row, step + 7, step + 8)  # normalised again
        add(4 * row, step + 8, step + 9)  # feed-forward
        add(row, step + 10, step + 16)  # residual, until the next layer's
        step += 10
    return sizes, lifetimes


@pytest.mark.parametrize("tokens", [1, 7, 128, 512])
@pytest.mark.parametrize("hidden, heads", [(768, 12), (1024, 16), (64, 3)])
def test_transformers_need_little_more_than_what_is_alive(tokens, hidden, heads):
    sizes, lifetimes = transformer(12, tokens, hidden, heads)
    plan = plan_memory(sizes, lifetimes)
    assert_sound(sizes, lifetimes, plan)
    assert plan.peak_bytes <= 1.1 * plan.lower_bound
    assert plan.peak_bytes < sum(sizes.values()) / 4


def test_five_hundred_buffers_are_planned_quickly():
    generator = random.Random(5)
    sizes = {i: generator.choice([256, 4096, 65536, 3 * 65536]) * generator.randint(1, 4) for i in range(500)}
    lifetimes = {i: (i, i + generator.choice([1, 1, 1, 2, 3, 12])) for i in range(500)}
    best = min(_seconds(sizes, lifetimes) for _ in range(5))
    plan = plan_memory(sizes, lifetimes)
    assert_sound(sizes, lifetimes, plan)
    assert best < 0.1, f"{best * 1e3:.1f} ms"


def _seconds(sizes, lifetimes) -> float:
    begin = time.perf_counter()
    plan_memory(sizes, lifetimes)
    return time.perf_counter() - begin


def test_empty_buffers_take_no_bytes():
    plan = plan_memory({1: 0, 2: 10}, {1: (0, 3), 2: (0, 3)})
    assert plan.peak_bytes == 256 and plan.offsets == {1: 0, 2: 0}
    assert plan_memory({}, {}).peak_bytes == 0
