"""Generated graphs through the whole road, and random programs of the same search, against the interpreter."""

from __future__ import annotations

import pytest
from fuzz.batches import failures_of, graph_case
from fuzz.failures import Ways, as_text
from fuzz.generate import generate
from fuzz.oracle import expect

TOGETHER = 40  # graphs whose kernels are compiled together
QUICK = 40
SLOW = 1000
LEAST_SHARE = 0.9  # of all elements compared, over a batch: what rounding rules is left out


BATCHES = [
    pytest.param(first, id=str(first), marks=[pytest.mark.slow] if first >= QUICK else [])
    for first in range(0, SLOW, TOGETHER)
]


@pytest.mark.parametrize("first", BATCHES)
def test_no_graph_differs(first: int) -> None:
    found = list(failures_of(graph_case, range(first, first + TOGETHER), Ways(drawn=first >= QUICK)))
    assert not found, f"{len(found)} failures\n\n" + "\n\n".join(found)


def test_comparisons_tell() -> None:
    shares = []
    for seed in range(QUICK):
        case = generate(seed)
        for binding in case.bindings:
            found = expect(case.graph, binding.feeds, binding.dims)
            assert any(expected.values.size for expected in found) or 0 in binding.dims.values()
            shares += [expected.share for expected in found]
    assert sum(shares) / len(shares) > LEAST_SHARE


def test_a_seed_is_one_case() -> None:
    first, second = generate(7), generate(7)
    assert as_text(first.graph, first.bindings[0]) == as_text(second.graph, second.bindings[0])
