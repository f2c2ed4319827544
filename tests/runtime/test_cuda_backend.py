"""The GPU road's bookkeeping on a fake driver: graphs, arenas, weights, code choice, errors, and nothing left behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import handmade_artifact as handmade
import numpy as np
import pytest
import tolerances
from fake_gpu import FakeDriver, Status, array_at, install
from lt_cases import make_case, sweep
from luminal_onnx.plan.errors import InvalidArtifact, InvalidInput, MissingDependency, NoDevice
from luminal_onnx.runtime.arch import choose_arch
from luminal_onnx.runtime.cublaslt import LtLibrary
from luminal_onnx.runtime.session import InferenceSession

F, C = handmade.FEATURES, handmade.CLASSES


def scale_shift(out, x, n):
    n &= 0xFFFFFFFF
    array_at(out, n, np.float32)[:] = array_at(x, n, np.float32) * np.float32(2) + np.float32(1)


def relu_total(y, total, x, rows, width):
    values = np.maximum(array_at(x, rows * width, np.float32), 0)
    array_at(y, rows * width, np.float32)[:] = values
    array_at(total, rows, np.float32)[:] = values.reshape(rows, width).sum(axis=1)


def count_positive(count, total, rows):
    rows &= 0xFFFFFFFF
    array_at(count, 1, np.int64)[0] = (array_at(total, rows, np.float32) > 0).sum() if rows else 0


KERNELS = {"scale_shift": (scale_shift, 3), "relu_total": (relu_total, 5), "count_positive": (count_positive, 3)}


def codes(prefix: str) -> dict[str, bytes]:
    return {source: f"{prefix} {source}".encode() for source in handmade.SOURCES}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    cubins = {arch: codes(f"cubin {arch}") for arch in handmade.ARCHES}
    return handmade.write(
        tmp_path_factory.mktemp("cuda") / "model.luminal", cubins=cubins, ptx=codes("ptx"), sources={}
    )


@pytest.fixture
def gpu(monkeypatch):
    driver = FakeDriver(KERNELS)
    driver.library = install(monkeypatch, driver)
    yield driver
    assert not driver.contexts, "a context is still current"
    assert not driver.live, f"left on the device: {driver.live}"
    assert not driver.library.things, "left in cuBLASLt"


def check(outputs, x, wanted=range(5)):
    for output, position in zip(outputs, wanted, strict=True):
        expected = handmade.expected(x)[position]
        assert isinstance(output, np.ndarray)
        tolerances.assert_close(output, expected, tolerances.REDUCTION, vacuous_ok=True)


def test_graphs_are_built_once_for_each_shape_and_replayed(path, gpu):
    with InferenceSession(path) as session:
        assert session.device == "cuda:0"
        for batch in (4, 9, 4, 4, 9, 0, 1):
            x = handmade.feed(batch, batch)
            check(session.run(None, {"x": x}), x)
        report = session.report()
        assert report["graphs_built"] == 4 + 1  # the growth from 4 to 9 took the first graph with it
        assert report["graph_replays"] == 7 and report["single_launches"] == 0 and report["runs"] == 7
        assert report["host_ops"] == 0 and report["steps"] == 4
        assert report["arch"] == "sm_90" and report["gpu"] == "Fake GPU"
        assert gpu.calls["cuGraphLaunch"] == 7
        check(session.run(["count", "y"], {"x": x}), x, (2, 0))
    assert all(image.startswith(b"cubin sm_90 ") for image in gpu.loaded) and len(gpu.loaded) == 3


def test_without_graphs_every_kernel_is_launched_by_itself(path, gpu):
    with InferenceSession(path, cuda_graph=False) as session:
        x = handmade.feed(6)
        for _ in range(3):
            check(session.run(None, {"x": x}), x)
        assert session.report()["single_launches"] == 3 * 4
        assert "cuGraphLaunch" not in gpu.calls


def test_memory_is_flat_and_graphs_are_bounded(path, gpu):
    with InferenceSession(path) as session:
        session.run(None, {"x": handmade.feed(64)})
        for batch in range(60):
            session.run(None, {"x": handmade.feed(batch)})
        settled = session.memory_bytes()
        live = len(gpu.live)
        for turn in range(3):
            for batch in range(60):
                session.run(None, {"x": handmade.feed(batch, turn)})
        assert session.memory_bytes() == settled and len(gpu.live) == live
        assert settled["total"] == settled["weights"] + settled["activations"] + settled["workspace"]


def test_every_thread_has_its_own_context(path, gpu):
    with InferenceSession(path) as session:
        barrier = threading.Barrier(4)

        def work(seed):
            barrier.wait()
            for turn in range(40):
                x = handmade.feed(1 + (seed + turn) % 5, seed)
                check(session.run(None, {"x": x}), x)
            return True

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(4)))
        assert 1 <= session.report()["contexts"] <= 4


def test_a_bound_run_replays_without_copies(path, gpu):
    with InferenceSession(path) as session:
        x = handmade.feed(5)
        with session.bind({"x": x}) as bound:
            copies = gpu.calls["cuMemcpyHtoDAsync"]
            assert bound.nodes == 4
            for _ in range(3):
                bound.launch()
            assert bound.time_replay(10, 2) == pytest.approx(5.0 / 1e3 / 10)
            assert gpu.calls["cuMemcpyHtoDAsync"] == copies
            check(bound.outputs(), x)
            y = handmade.feed(3)
            check(session.run(None, {"x": y}), y)
            assert session.report()["contexts"] == 2
        with pytest.raises(InvalidInput, match="closed; bind again"):
            bound.launch()
        late = session.bind({"x": x})
        assert session.report()["contexts"] == 2
        assert session.time_replay({"x": x}, 10) > 0
    late.close()


def test_large_tensors_are_copied_without_staging(path, gpu, monkeypatch):
    monkeypatch.setattr("luminal_onnx.runtime.cuda_context.STAGED_AT_MOST", 100)
    monkeypatch.setattr("luminal_onnx.runtime.cuda_upload.CHUNK_BYTES", 64)
    with InferenceSession(path) as session:
        for batch in (3, 8):
            x = handmade.feed(batch)
            check(session.run(None, {"x": x}), x)


@pytest.mark.parametrize(
    "capability, expected",
    [((9, 0), "sm_90"), ((8, 0), "sm_80"), ((8, 9), "sm_80"), ((10, 3), "sm_100"), ((12, 0), "sm_100")],
)
def test_the_nearest_plan_is_chosen(capability, expected):
    assert choose_arch(["sm_80", "sm_90", "sm_100"], capability, True) == expected


def test_an_arch_without_code_is_told():
    assert choose_arch(["sm_80", "sm_86", "sm_90a"], (9, 0), False) == "sm_90a"
    with pytest.raises(
        InvalidArtifact, match=r"holds sm_80, sm_90a, which a GPU of sm_100 cannot run; .*--arch=sm_100"
    ):
        choose_arch(["sm_80", "sm_90a"], (10, 0), False)
    with pytest.raises(InvalidArtifact, match="sm_75 cannot run"):
        choose_arch(["sm_80", "sm_90"], (7, 5), True)


@pytest.mark.parametrize("capability, arch, prefix", [((12, 0), None, b"ptx "), ((9, 0), "sm_80", b"ptx ")])
def test_a_newer_gpu_takes_the_ptx_road(path, gpu, capability, arch, prefix):
    gpu.capability = capability
    x = handmade.feed(4)
    with InferenceSession(path, arch=arch) as session:
        check(session.run(None, {"x": x}), x)
    assert all(image.startswith(prefix) for image in gpu.loaded)


def test_missing_and_foreign_code_is_told(gpu, tmp_path):
    bare = handmade.write(tmp_path / "bare.luminal", cubins={"sm_80": codes("cubin")})
    with pytest.raises(InvalidArtifact, match="kernel elementwise:scale_shift has no code for Fake GPU"):
        InferenceSession(bare)
    foreign = handmade.write(tmp_path / "foreign.luminal", cubins={"sm_90": codes("elf")})
    with pytest.raises(
        InvalidArtifact, match="the cubin of kernel .* cannot be loaded on Fake GPU: .*NO_BINARY_FOR_GPU"
    ):
        InferenceSession(foreign)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"init": "missing"}, r"no NVIDIA driver was found .*install driver 580 or newer, or name device=\"cpu\""),
        ({"init": Status.CUDA_ERROR_NO_DEVICE}, r"sees no GPU .*CUDA_VISIBLE_DEVICES.*device=\"cpu\""),
        ({"version": 12080}, r"driver is for CUDA 12.8, the artifact needs CUDA 13.0; install driver 580"),
        ({"gpus": 0}, r"device_id is 0, but the driver sees 0 GPU"),
    ],
)
def test_without_a_usable_gpu_the_remedy_is_named(path, gpu, change, message):
    for name, value in change.items():
        setattr(gpu, name, value)
    with pytest.raises(NoDevice, match=message):
        InferenceSession(path)


def test_device_numbers_are_taken_from_either_place(path, gpu):
    with pytest.raises(NoDevice, match="device_id is 3, but the driver sees 1"):
        InferenceSession(path, device_id=3)
    with pytest.raises(NoDevice, match="device_id is 1"):
        InferenceSession(path, device="cuda:1")
    with pytest.raises(InvalidInput, match='device is \'gpu\'; expected "cuda", "cuda:N" or "cpu"'):
        InferenceSession(path, device="gpu")


def test_too_little_memory_is_told_and_survived(path, gpu):
    gpu.memory = 32 << 20
    message = "GPU 0 .* has 12,345 of .* bytes free, cuBLASLt's workspace need"
    with InferenceSession(path) as session, pytest.raises(NoDevice, match=message):
        session.run(None, {"x": handmade.feed(64)})


def test_a_missing_library_is_told(path, gpu, monkeypatch):
    def missing():
        raise RuntimeError("libcublasLt.so.13 not found")

    monkeypatch.setattr(gpu.library, "create", missing)
    with pytest.raises(MissingDependency, match=r"calls cuBLASLt, which cannot be loaded .*luminal-onnx\[gpu\]"):
        InferenceSession(path)


def test_library_records_reach_the_library_whole(gpu):
    """Descriptors, set one by one, describe the very product: the fake computes from them alone."""
    library = LtLibrary()
    gpu.contexts.append("context")
    workspace = gpu.cuMemAlloc(1 << 16)[1]
    cases = sweep()
    for number, arguments in enumerate(cases[:: max(1, len(cases) // 120)]):
        case = make_case(number, **arguments)
        buffers = [gpu.cuMemAlloc(array.nbytes)[1] for array in (case.before, *case.operands)]
        for address, array in zip(buffers, (case.before, *case.operands)):
            array_at(address, array.size, array.dtype)[:] = array
        for _ in range(2):
            library.run(case.record, buffers[0], buffers[1:], 0, workspace)
            if case.record.beta == 0.0:
                continue
            break
        out = array_at(buffers[0], case.before.size, case.before.dtype)
        tolerances.assert_close(out.copy(), case.after, tolerances.REDUCTION)
        for address in buffers:
            gpu.cuMemFree(address)
    gpu.cuMemFree(workspace)
    gpu.contexts.clear()
    library.close()


def test_library_plans_are_made_once_for_each_record_and_alignment(gpu):
    library = LtLibrary()
    gpu.contexts.append("context")
    case = make_case(1, bias=True)
    address = gpu.cuMemAlloc(1 << 16)[1]
    places = [address, address + 4096, address + 8192, address + 12288]
    for _ in range(3):
        library.run(case.record, places[0], places[1:], 0, address)
    assert gpu.library.heuristics == 1
    library.run(case.record, places[0], [places[1] + 4, *places[2:]], 0, address)
    assert gpu.library.heuristics == 2
    gpu.cuMemFree(address)
    gpu.contexts.clear()
    library.close()
