"""Kernels of generated graphs under the checker (races, bounds, uninitialised reads), and in the opposite order."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz.batches import failures_of, graph_case
from fuzz.failures import Ways
from fuzz.generate import generate
from fuzz.road import Road, compile_together
from luminal_onnx.runtime.cpu import HostKernel

FIRST = 5000
TOGETHER = 6
PROGRAMS = 36
BATCHES = [
    pytest.param(first, id=str(first), marks=[pytest.mark.slow] if first > FIRST else [])
    for first in range(FIRST, FIRST + PROGRAMS, TOGETHER)
]


@pytest.mark.parametrize("first", BATCHES)
def test_kernels_are_clean(first: int) -> None:
    ways = Ways(randoms=0, drawn=1, check_kernels=True)
    found = list(failures_of(graph_case, range(first, first + TOGETHER), ways))
    assert not found, f"{len(found)} failures\n\n" + "\n\n".join(found)


@pytest.mark.parametrize("first", BATCHES)
def test_the_order_of_threads_changes_no_bit(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [generate(seed) for seed in range(first, first + TOGETHER)]
    roads = [(case, Road.of(case.graph)) for case in cases]
    compile_together(road for _, road in roads)
    forwards = [road.run(binding.feeds) for case, road in roads for binding in case.bindings]
    launch = HostKernel.launch
    monkeypatch.setattr(HostKernel, "launch", lambda *args, **options: launch(*args, **{**options, "reverse": True}))
    backwards = [road.run(binding.feeds) for case, road in roads for binding in case.bindings]
    for one, other in zip(forwards, backwards):
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))
