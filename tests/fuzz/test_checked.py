"""Kernels of generated graphs under the checker (races, bounds, uninitialised reads), and in the opposite order."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz.failures import failures, search_for, told
from fuzz.generate import Case, generate
from fuzz.road import Road, compile_together
from luminal_onnx.runtime.cpu import HostKernel

FIRST = 5000
TOGETHER = 6
PROGRAMS = 36
BATCHES = [
    pytest.param(first, id=str(first), marks=[pytest.mark.slow] if first > FIRST else [])
    for first in range(FIRST, FIRST + PROGRAMS, TOGETHER)
]


def roads_from(first: int) -> list[tuple[Case, Road]]:
    found = []
    for seed in range(first, first + TOGETHER):
        case = generate(seed)
        road, failure = search_for(case.graph)
        assert failure is None, told(case, case.bindings[0], failure)
        found.append((case, road))
    return found


@pytest.mark.parametrize("first", BATCHES)
def test_kernels_are_clean(first: int) -> None:
    roads = roads_from(first)
    compile_together([road for _, road in roads], check_kernels=True)
    for case, road in roads:
        for binding in case.bindings:
            for failure in failures(road, binding, randoms=0, check_kernels=True):
                pytest.fail(told(case, binding, failure))


@pytest.mark.parametrize("first", BATCHES)
def test_the_order_of_threads_changes_no_bit(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    roads = roads_from(first)
    compile_together(road for _, road in roads)
    forwards = [road.run(binding.feeds) for case, road in roads for binding in case.bindings]
    launch = HostKernel.launch
    monkeypatch.setattr(HostKernel, "launch", lambda *args, **options: launch(*args, **{**options, "reverse": True}))
    backwards = [road.run(binding.feeds) for case, road in roads for binding in case.bindings]
    for one, other in zip(forwards, backwards):
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))
