"""Loops, branches and sizes on the GPU road, with a fake driver: what is captured, read back and copied, and that results
stay right whatever ran before."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tolerances
from control_cases import CASES
from control_plans import GPU_KERNELS, write
from fake_gpu import FakeDriver, install
from luminal_onnx.runtime.session import InferenceSession


@pytest.fixture
def gpu(monkeypatch):
    driver = FakeDriver(GPU_KERNELS)
    driver.library = install(monkeypatch, driver)
    yield driver
    assert not driver.contexts, "a context is still current"
    assert not driver.live, f"left on the device: {driver.live}"
    assert not driver.library.things, "left in cuBLASLt"


def check(outputs, expected):
    assert len(outputs) == len(expected)
    for output, wanted in zip(outputs, expected):
        tolerances.assert_close(output, wanted, tolerances.REDUCTION, vacuous_ok=not np.asarray(wanted).size)


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "launches"])
@pytest.mark.parametrize("name", CASES)
def test_runs_are_right_whatever_ran_before(name, graphs, gpu, tmp_path):
    case = CASES[name]()
    with InferenceSession(write(tmp_path / "m.luminal", case, gpu=True), cuda_graph=graphs) as session:
        reads = 0
        for feeds in [*case.feeds, *reversed(case.feeds), case.feeds[0]]:
            check(session.run(None, feeds), case.expected(**feeds))
            reads += case.read_backs(**feeds)
            report = session.report()
            assert report["read_backs"] == reads and report["host_ops"] == 0
        if not graphs:
            assert report["graphs_built"] == report["graph_replays"] == 0
        elif not reads:
            assert report["graph_replays"] == report["runs"] and report["single_launches"] == 0


@pytest.mark.parametrize("name", ["recurrence_with_rows", "branch_in_a_loop", "sizes_of_sizes_in_a_loop"])
def test_eight_threads_get_right_results(name, gpu, tmp_path):
    case = CASES[name]()
    with InferenceSession(write(tmp_path / "m.luminal", case, gpu=True)) as session:
        barrier = threading.Barrier(8)

        def work(seed):
            barrier.wait()
            for turn in range(25):
                feeds = case.feeds[(seed + turn) % len(case.feeds)]
                check(session.run(None, feeds), case.expected(**feeds))
            return True

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(8)))
        assert 1 <= session.report()["contexts"] <= 8
