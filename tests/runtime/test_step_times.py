"""Timing runs and steps, on a fake driver: what is chained, what is rotated, and that nothing changes or stays behind."""

from __future__ import annotations

import json

import handmade_artifact as handmade
import numpy as np
import pytest
import tolerances
from fake_gpu import FakeDriver, array_at, install
from luminal_onnx.bench import bench, format_bench, summary
from luminal_onnx.profile import Rates, format_profile, profile
from luminal_onnx.runtime import step_times
from luminal_onnx.runtime.session import InferenceSession

seen: list[tuple[str, int]] = []


def scale_shift(out, x, n):
    seen.append(("scale_shift", x))
    n &= 0xFFFFFFFF
    array_at(out, n, np.float32)[:] = array_at(x, n, np.float32) * np.float32(2) + np.float32(1)


def relu_total(y, total, x, rows, width):
    seen.append(("relu_total", x))
    values = np.maximum(array_at(x, rows * width, np.float32), 0)
    array_at(y, rows * width, np.float32)[:] = values
    array_at(total, rows, np.float32)[:] = values.reshape(rows, width).sum(axis=1)


def count_positive(count, total, rows):
    rows &= 0xFFFFFFFF
    array_at(count, 1, np.int64)[0] = (array_at(total, rows, np.float32) > 0).sum() if rows else 0


@pytest.fixture
def gpu(monkeypatch):
    driver = FakeDriver(
        {"scale_shift": (scale_shift, 3), "relu_total": (relu_total, 5), "count_positive": (count_positive, 3)}
    )
    driver.library = install(monkeypatch, driver)
    seen.clear()
    yield driver
    assert not driver.contexts and not driver.live and not driver.library.things


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    codes = {source: f"cubin {source}".encode() for source in handmade.SOURCES}
    folder = tmp_path_factory.mktemp("steps")
    return handmade.write(folder / "model.luminal", cubins={arch: codes for arch in handmade.ARCHES}, sources={})


def chain_addresses(name: str) -> list[int]:
    """Addresses of the longest unbroken series of calls of one kernel."""
    longest: list[int] = []
    run: list[int] = []
    for kernel, address in seen:
        run = [*run, address] if kernel == name else []
        longest = max(longest, run, key=len)
    return longest


def test_steps_are_timed_alone_and_results_stay_right(path, gpu):
    x = handmade.feed(6)
    with InferenceSession(path) as session:
        with session.bind({"x": x}) as bound:
            times = bound.time_steps()
            assert [time.launch.origin[0] for time in times] == ["mul", "gemm", "relu", "count"]
            chained = step_times.CHAINED * step_times.REPLAYS
            assert all(time.seconds == pytest.approx(5.0 / 1e3 / chained) for time in times)
            bound.launch()
            outputs = bound.outputs()
        for output, expected in zip(outputs, handmade.expected(x), strict=True):
            tolerances.assert_close(output, expected, tolerances.REDUCTION)


def test_inputs_and_weights_are_rotated_and_activations_are_not(path, gpu):
    with InferenceSession(path) as session, session.bind({"x": handmade.feed(6)}) as bound:
        bound.time_steps()
        assert len(set(chain_addresses("scale_shift"))) >= step_times.CHAINED
        assert len(set(chain_addresses("relu_total"))) == 1
        seen.clear()
        bound.time_steps(cold=True)
        assert len(set(chain_addresses("relu_total"))) >= step_times.CHAINED


def test_the_profile_adds_up(path, gpu):
    with InferenceSession(path) as session, session.bind({"x": handmade.feed(6)}) as bound:
        found = profile(bound.bound_plan, bound.time_steps(), Rates(1e12, 1e14, 1e13, 1e13), 1e-3)
    assert found["launches"] == 4 and found["run_us"] == pytest.approx(1e3)
    assert found["sum_us"] == pytest.approx(sum(row["total_us"] for row in found["kernels"]))
    assert found["sum_us"] == pytest.approx(sum(row["us"] for row in found["families"].values()))
    assert set(found["families"]) == {"elementwise", "cublaslt", "row_warp", "row_thread"}
    (product,) = (row for row in found["kernels"] if row["family"] == "cublaslt")
    features, classes = handmade.FEATURES, handmade.CLASSES
    assert product["flops"] == 2 * 6 * features * classes
    assert product["bytes"] == 4 * (6 * features + features * classes + 6 * classes + classes)
    assert product["nodes"] == [["gemm"]] and product["bound_by"] == "bytes"
    text = format_profile(found)
    assert "cublaslt" in text and "gemm" in text
    json.dumps(found)


def test_bench_reports_latency_and_throughput(path, gpu):
    with InferenceSession(path) as session:
        found = bench(session, {"x": handmade.feed(6)}, 20, 0.0, profiled=True)
    assert found["latency_ms"]["median"] == pytest.approx(5.0)
    assert found["throughput_per_s"] == pytest.approx(20 / 5e-3)
    assert found["launches"] == 4 and found["dims"] == {"batch": 6} and len(found["profile"]["kernels"]) == 4
    assert "4 in one CUDA graph" in format_bench(found)


def test_percentiles_are_values_that_a_share_of_runs_does_not_exceed():
    found = summary(list(range(100, 0, -1)))
    assert found == {"min": 1, "median": 50.5, "mean": 50.5, "p90": 90, "p95": 95, "p99": 99, "max": 100}
    assert set(summary([3.0]).values()) == {3.0}
