"""Loops, branches and sizes on a real GPU: right on every run, replayed from graphs, and as fast as their launches."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tolerances
from control_cases import CASES, STEPS, N, T, values
from control_plans import SOURCES, Case, Maker, block, mix, write
from luminal_onnx.plan.dims import Range
from luminal_onnx.plan.records import Carried, Loop, Row
from luminal_onnx.runtime.session import InferenceSession

pytestmark = pytest.mark.gpu
pytest.importorskip("nvmath", reason="cuBLASLt calls need nvmath-python")


@pytest.fixture(scope="module")
def binaries():
    from luminal_onnx.codegen import compile_sources

    return compile_sources(SOURCES, ("sm_90",))


def check(outputs, expected):
    for output, wanted in zip(outputs, expected, strict=True):
        tolerances.assert_close(output, wanted, tolerances.REDUCTION, vacuous_ok=not np.asarray(wanted).size)


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "launches"])
@pytest.mark.parametrize("name", CASES)
def test_runs_are_right_whatever_ran_before(name, graphs, binaries, tmp_path):
    case = CASES[name]()
    with InferenceSession(write(tmp_path / "m.luminal", case, binaries=binaries), cuda_graph=graphs) as session:
        reads = 0
        for feeds in [*case.feeds, *reversed(case.feeds), *case.feeds]:
            check(session.run(None, feeds), case.expected(**feeds))
            reads += case.read_backs(**feeds)
        report = session.report()
        assert report["read_backs"] == reads and report["host_ops"] == 0
        assert graphs or report["graph_replays"] == 0


@pytest.mark.parametrize("name", ["recurrence_with_rows", "branch_in_a_loop", "sizes_of_sizes_in_a_loop"])
def test_eight_threads_get_right_results(name, binaries, tmp_path):
    case = CASES[name]()
    with InferenceSession(write(tmp_path / "m.luminal", case, binaries=binaries)) as session:
        barrier = threading.Barrier(8)

        def work(seed):
            barrier.wait()
            for turn in range(12):
                feeds = case.feeds[(seed + turn) % len(case.feeds)]
                check(session.run(None, feeds), case.expected(**feeds))
            return True

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(8)))


def test_a_long_loop_is_one_graph_of_small_kernels(binaries, tmp_path):
    """A thousand trips of two launches, replayed: far below what launching them one by one takes."""
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    state, half, new, last = (m.temp(N) for _ in range(4))
    rows = m.temp(STEPS, N)
    body = block([mix(half, state, x, N, at_b=T * N, t=T), mix(new, half, half, N)])
    loop = Loop("t", STEPS, body, (Carried(h, state, new, last),), (Row(new, rows),))
    case = Case(m.plan(loop, [rows, last], steps=Range(0, 4, 4096), n=Range(0, 4, 64)), {}, [], list)
    feeds = {"x": values(1000, 64), "h": values(64, seed=1)}
    with InferenceSession(write(tmp_path / "m.luminal", case, binaries=binaries)) as session:
        session.run(None, feeds)
        with session.bind(feeds) as bound:
            assert bound.nodes == 2000
            seconds = bound.time_replay(20, 5)
    assert seconds < 0.02, f"{seconds * 1e3:.2f} ms"
