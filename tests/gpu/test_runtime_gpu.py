"""The runtime on a real GPU: the same artifact, the same results, graphs replayed, nothing computed on the host."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import handmade_artifact as handmade
import numpy as np
import pytest
import tolerances
from lt_cases import make_case, sweep
from luminal_onnx.plan.errors import NoDevice
from luminal_onnx.runtime.cublaslt import WORKSPACE_BYTES, LtLibrary
from luminal_onnx.runtime.cuda_driver import Driver
from luminal_onnx.runtime.session import InferenceSession

pytestmark = pytest.mark.gpu
pytest.importorskip("nvmath", reason="cuBLASLt calls need nvmath-python")

BATCHES = (4, 1, 7, 64, 0)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return handmade.write_compiled(tmp_path_factory.mktemp("gpu") / "model.luminal")


@pytest.fixture(scope="module")
def session(path):
    with InferenceSession(path) as session:
        yield session


def check(outputs, x, wanted=range(5)):
    for output, position in zip(outputs, wanted, strict=True):
        assert isinstance(output, np.ndarray)
        tolerances.assert_close(output, handmade.expected(x)[position], tolerances.REDUCTION, vacuous_ok=not x.size)


@pytest.mark.parametrize("batch", BATCHES)
def test_outputs_are_right_at_every_batch(session, batch):
    for turn in range(3):
        x = handmade.feed(batch, turn)
        check(session.run(None, {"x": x}), x)


def test_the_cpu_gives_the_same_results(path, session):
    if shutil.which("g++") is None:
        pytest.skip("the CPU road needs g++")
    with InferenceSession(path, device="cpu") as host:
        for batch in BATCHES:
            x = handmade.feed(batch, 1)
            for got, expected in zip(session.run(None, {"x": x}), host.run(None, {"x": x}), strict=True):
                tolerances.assert_close(got, expected, tolerances.REDUCTION, vacuous_ok=not x.size)


def test_graphs_are_replayed_and_nothing_runs_on_the_host(path):
    with InferenceSession(path) as session:
        for _ in range(10):
            for batch in (64, 3):
                x = handmade.feed(batch)
                check(session.run(None, {"x": x}), x)
        report = session.report()
        assert report["graphs_built"] == 2 and report["graph_replays"] == 20 and report["single_launches"] == 0
        assert report["host_ops"] == 0 and report["steps"] == report["kernels"] + report["library_calls"] == 4
        with session.bind({"x": x}) as bound:
            assert bound.nodes >= 4
            bound.launch()
            check(bound.outputs(), x)
            assert 0 < bound.time_replay(50, 5) < 0.1


def test_without_graphs_the_results_are_the_same(path, session):
    with InferenceSession(path, cuda_graph=False) as plain:
        for batch in BATCHES:
            x = handmade.feed(batch, 2)
            for got, expected in zip(plain.run(None, {"x": x}), session.run(None, {"x": x}), strict=True):
                np.testing.assert_array_equal(got, expected)
        assert plain.report()["graph_replays"] == 0


def test_ptx_runs_where_no_machine_code_fits(path):
    major = Driver().capability[0]
    foreign = "sm_80" if major != 8 else "sm_90"
    if foreign == "sm_90":
        pytest.skip("this GPU is older than every other plan's PTX may be")
    with InferenceSession(path, arch=foreign) as session:
        for batch in BATCHES:
            x = handmade.feed(batch)
            check(session.run(None, {"x": x}), x)


def test_eight_threads_get_right_results(session):
    barrier = threading.Barrier(8)

    def work(seed):
        feeds = [handmade.feed(1 + (seed + turn) % 5, seed) for turn in range(5)]
        wanted = [handmade.expected(x)[0] for x in feeds]
        barrier.wait()
        for turn in range(1000):
            (y,) = session.run(["y"], {"x": feeds[turn % 5]})
            tolerances.assert_close(y, wanted[turn % 5], tolerances.REDUCTION)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert session.report()["contexts"] <= 8


def test_memory_after_many_runs_is_memory_after_some(path):
    driver = Driver()
    with InferenceSession(path) as session:

        def run(times):
            for turn in range(times):
                session.run(None, {"x": handmade.feed(1 + turn % 50)})
            with driver.current():
                return driver.call("cuMemGetInfo")[0]

        free = run(200)
        held = session.memory_bytes()
        assert run(900) >= free - (2 << 20)
        assert session.memory_bytes() == held


def test_large_tensors_take_the_unstaged_road(path, monkeypatch):
    monkeypatch.setattr("luminal_onnx.runtime.cuda_context.STAGED_AT_MOST", 100)
    monkeypatch.setattr("luminal_onnx.runtime.cuda_upload.CHUNK_BYTES", 64)
    with InferenceSession(path) as session:
        for batch in BATCHES:
            x = handmade.feed(batch)
            check(session.run(None, {"x": x}), x)


def test_an_artifact_of_the_first_format_still_runs():
    with InferenceSession(Path(__file__).parents[1] / "runtime" / "data" / "format_v1.luminal") as session:
        x = handmade.feed(5)
        check(session.run(None, {"x": x}), x)


def test_a_gpu_that_is_not_there_is_told(path):
    with pytest.raises(NoDevice, match="device_id is 99, but the driver sees"):
        InferenceSession(path, device_id=99)


def test_every_library_record_gives_what_its_definition_says():
    driver = Driver()
    failures = []
    with driver.current():
        library = LtLibrary()
        workspace = driver.allocate(WORKSPACE_BYTES, "the workspace")
        cases = sweep()
        for number, arguments in enumerate(cases):
            try:
                run_case(driver, library, workspace, make_case(number, **arguments))
            except Exception as error:  # noqa: BLE001 - every record is tried, and all that fail are told at once
                failures.append(f"{arguments}: {str(error)[:300]}")
        driver.free(workspace)
        library.close()
    driver.release()
    assert not failures, f"{len(failures)} of {len(cases)} records fail:\n" + "\n".join(failures[:20])


def run_case(driver, library, workspace, case):
    """Run one product on the device, and compare all of D's buffer, between and behind its columns too."""
    arrays = [case.before, *case.operands]
    addresses = [driver.allocate(array.nbytes, "a matrix") for array in arrays]
    try:
        for address, array in zip(addresses, arrays):
            driver.call("cuMemcpyHtoD", address, array.ctypes.data, array.nbytes)
        library.run(case.record, addresses[0], addresses[1:], 0, workspace)
        out = np.empty_like(case.before)
        driver.call("cuMemcpyDtoH", out.ctypes.data, addresses[0], out.nbytes)
        tolerances.assert_close(out, case.after, tolerances.REDUCTION)
    finally:
        for address in addresses:
            driver.free(address)
