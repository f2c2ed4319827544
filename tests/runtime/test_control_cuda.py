"""Loops, branches and sizes on the GPU road, with a fake driver: what is captured, read back and copied, and that results
stay right whatever ran before."""

from __future__ import annotations

import threading
from dataclasses import replace
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tolerances
from control_cases import CASES
from control_plans import GPU_KERNELS, write
from fake_gpu import FakeDriver, install
from luminal_onnx.bench import bench, format_bench
from luminal_onnx.plan.errors import InvalidInput
from luminal_onnx.plan.records import Sequence
from luminal_onnx.profile import Rates, format_profile, profile
from luminal_onnx.runtime.artifact import Artifact
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


def opened(name, tmp_path, **options):
    case = CASES[name]()
    return case, InferenceSession(write(tmp_path / "m.luminal", case, gpu=True), **options)


def test_a_counted_loop_is_one_graph(gpu, tmp_path):
    case, session = opened("recurrence_with_rows", tmp_path)
    with session:
        feeds = case.feeds[0]
        for _ in range(3):
            check(session.run(None, feeds), case.expected(**feeds))
        report = session.report()
        assert (report["graphs_built"], report["graph_replays"], report["single_launches"]) == (1, 3, 0)
        assert report["read_backs"] == 0 and report["steps"] == 2
        with session.bind(feeds) as bound:
            trips = len(feeds["x"])
            assert (
                bound.nodes == len(bound.launches) == 3 * trips and bound.read_backs == 0
            )  # one of the rows is copied


def test_parts_between_decisions_are_captured_when_they_come_again(gpu, tmp_path):
    case, session = opened("branch_in_a_loop", tmp_path)
    with session:
        feeds = case.feeds[-1]
        trips = len(feeds["x"])
        for _ in range(4):
            check(session.run(None, feeds), case.expected(**feeds))
        report = session.report()
        assert report["read_backs"] == 4 * trips
        assert report["graphs_built"] == 0 and report["graph_replays"] == 0  # each part is one launch or one copy
    case, session = opened("loop_with_a_condition_and_a_limit", tmp_path)
    with session:
        feeds = case.feeds[0]
        made = case.read_backs(**feeds) - 1
        for run in range(4):
            check(session.run(None, feeds), case.expected(**feeds))
            report = session.report()
            assert report["graphs_built"] == (0 if run == 0 else made)
            assert report["graph_replays"] == run * made
        assert report["single_launches"] == 2 * made + 4  # the first run, and the step after the loop each time


def test_parts_that_never_come_again_are_not_captured(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr("luminal_onnx.runtime.cuda_program.NODES_KEPT", 6)
    case, session = opened("loop_with_a_condition_and_a_limit", tmp_path)
    with session:
        feeds = case.feeds[-2]
        assert case.read_backs(**feeds) > 5
        live = None
        for _ in range(4):
            check(session.run(None, feeds), case.expected(**feeds))
            assert live in (None, len(gpu.live))
            live = len(gpu.live)
        assert session.report()["graphs_built"] == 0


def test_memory_is_flat_however_often_a_run_decides_anew(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr("luminal_onnx.runtime.walk.LAUNCHES_KEPT", 20)
    monkeypatch.setattr("luminal_onnx.runtime.cuda_program.NODES_KEPT", 20)
    case, session = opened("everything_at_once", tmp_path)

    def runs(seeds):
        for seed in seeds:
            feeds = {"x": np.random.default_rng(seed).standard_normal(13).astype(np.float32), "go": np.array(True)}
            check(session.run(None, feeds), case.expected(**feeds))

    with session:
        runs(range(30))
        held, live = session.memory_bytes(), len(gpu.live)
        runs(range(90))
        assert session.memory_bytes() == held and len(gpu.live) <= live + 10
        assert session.report()["graphs_built"] > 0


def test_a_bound_run_decides_again_each_time(gpu, tmp_path):
    case, session = opened("loop_with_a_condition_and_a_limit", tmp_path)
    feeds = case.feeds[0]
    reads = case.read_backs(**feeds)
    with session:
        with session.bind(feeds) as bound:
            with pytest.raises(InvalidInput, match="nothing was launched yet"):
                bound.outputs()
            copies = gpu.calls["cuMemcpyHtoDAsync"]
            for _ in range(3):
                bound.launch()
                assert bound.read_backs == reads and len(bound.launches) == 2 * (reads - 1) + 1
            check(bound.outputs(), case.expected(**feeds))
            assert bound.time_replay(4, 1) > 0 and len(bound.run_times(3, 0.0)) == 3
            assert gpu.calls["cuMemcpyHtoDAsync"] == copies
            times = bound.time_steps()
            assert [time.launch for time in times] == bound.launches
            bound.launch()
            check(bound.outputs(), case.expected(**feeds))
            found = profile(bound.bound_plan, times, Rates(1e12, 1e14, 1e13, 1e13), 1e-3)
            assert found["launches"] == len(times) and "mix" in format_profile(found)
        told = format_bench(bench(session, feeds, 3, 0.0, profiled=True))
        assert f"launches    {2 * (reads - 1) + 1} with {reads - 1} CUDA graphs, {reads} scalars read back" in told


def test_trips_of_a_loop_are_timed_once_and_copies_too(gpu, tmp_path):
    case, session = opened("recurrence_with_rows", tmp_path)
    with session, session.bind(case.feeds[3]) as bound:  # odd rows are copied
        times = bound.time_steps()
        found = profile(bound.bound_plan, times, Rates(1e12, 1e14, 1e13, 1e13), 1e-3)
        trips = len(case.feeds[3]["x"])
        rows = sorted((row["name"], row["count"]) for row in found["kernels"])
        assert rows == [("20 bytes", 3 * trips), ("mix", trips), ("mix", trips)] and len(times) == 5 * trips
        assert found["families"]["copy"]["launches"] == 3 * trips
        bound.launch()
        check(bound.outputs(), case.expected(**case.feeds[3]))


def test_trips_of_growing_sizes_are_timed_by_powers_of_two(gpu, tmp_path):
    case, session = opened("growing_temporary", tmp_path)
    feeds = {"x": np.arange(64, dtype=np.float32), "h": np.ones(64, np.float32)}
    with session, session.bind(feeds) as bound:
        times = bound.time_steps()
        found = profile(bound.bound_plan, times, Rates(1e12, 1e14, 1e13, 1e13), 1e-3)
        assert len(times) == 3 * 64
        counts = sorted(row["count"] for row in found["kernels"])
        assert counts == [32, 32, 32, 32, 64]  # grids of one and of two blocks; the mix of the whole state


def test_a_size_out_of_bounds_is_told_and_survived(gpu, tmp_path):
    case = CASES["size_then_a_kernel_and_an_output_of_it"]()
    narrow = replace(case.plan.root.children[1], most=2)
    children = (case.plan.root.children[0], narrow, *case.plan.root.children[2:])
    case.plan = replace(case.plan, root=Sequence(children))
    few, many = np.array([1, -1, 2, -3], np.float32), np.array([1, -1, 2, 3], np.float32)
    with InferenceSession(write(tmp_path / "m.luminal", case, gpu=True)) as session:
        for _ in range(2):
            check(session.run(None, {"x": few}), case.expected(few))
            with pytest.raises(
                InvalidInput, match=r"size 's', known only when the model runs, is 3: expected 0..2 for n=4"
            ):
                session.run(None, {"x": many})


def test_more_trips_than_there_is_room_for_are_told_and_survived(gpu, tmp_path):
    case, session = opened("loop_counted_up_to_a_range", tmp_path)
    with session:
        endless = {**case.feeds[0], "x": np.full((12, 4), -100, np.float32)}
        for feeds in case.feeds:
            with pytest.raises(
                InvalidInput, match="loop over 't' makes more trips than the 9 that it was compiled for"
            ):
                session.run(None, endless)
            check(session.run(None, feeds), case.expected(**feeds))


def test_an_artifact_with_control_flow_needs_a_newer_reader(tmp_path):
    for name, version in (("recurrence_with_rows", 2), ("branches_both_ways_and_nested", 2)):
        case = CASES[name]()
        with Artifact.open(write(tmp_path / "m.luminal", case)) as artifact:
            assert artifact.manifest["version"] == version
            assert artifact.plan("sm_90") == case.plan
            artifact.check()


@pytest.mark.parametrize("most", [1, 7, 40])
@pytest.mark.parametrize(
    "name", ["nested_loops", "recurrence_with_rows", "matrix_products_in_a_loop", "outputs_that_share"]
)
def test_loops_too_long_for_one_graph_run_trip_by_trip(name, most, gpu, tmp_path, monkeypatch):
    monkeypatch.setattr("luminal_onnx.runtime.binding.LONGEST_PASSAGE", most)
    case, session = opened(name, tmp_path)
    with session:
        for feeds in [*case.feeds, *reversed(case.feeds), *case.feeds]:
            check(session.run(None, feeds), case.expected(**feeds))
        report = session.report()
        assert report["read_backs"] == 0 and (report["single_launches"] > 0 or most == 40)
