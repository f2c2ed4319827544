"""A hand-made artifact through `InferenceSession` on the CPU: results, feeds and their errors, threads, memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import handmade_artifact as handmade
import numpy as np
import pytest
import tolerances
from luminal_onnx.plan.errors import InvalidArtifact, InvalidInput, NoDevice
from luminal_onnx.runtime.session import InferenceSession

F, C = handmade.FEATURES, handmade.CLASSES


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return handmade.write(tmp_path_factory.mktemp("session") / "model.luminal")


@pytest.fixture(scope="module")
def session(path):
    with InferenceSession(path, device="cpu") as session:
        yield session


def check(outputs, x, wanted=range(5)):
    for output, position in zip(outputs, wanted, strict=True):
        assert isinstance(output, np.ndarray)
        tolerances.assert_close(output, handmade.expected(x)[position], tolerances.REDUCTION, vacuous_ok=not x.size)


@pytest.mark.parametrize("batch", [4, 1, 7, 64, 0])
def test_outputs_are_right_at_every_batch(session, batch):
    x = handmade.feed(batch)
    outputs = session.run(None, {"x": x})
    check(outputs, x)
    assert [output.shape for output in outputs] == [(batch, C), (batch, 1), (), (batch * F,), (F, C)]
    assert [output.dtype for output in outputs] == [np.float32, np.float32, np.int64, np.float32, np.float32]


def test_named_outputs_come_in_the_order_asked_for(session):
    x = handmade.feed(3)
    check(session.run(["count", "y"], {"x": x}), x, (2, 0))
    twice = session.run(["y", "y"], {"x": x})
    check(twice, x, (0, 0))
    assert not np.shares_memory(*twice)
    check(session.run([], {"x": x}), x)
    with pytest.raises(InvalidInput, match="Invalid output name: z; the model's outputs are y, total, count"):
        session.run(["z"], {"x": x})
    with pytest.raises(InvalidInput, match="must be a list, got the string 'y'"):
        session.run("y", {"x": x})


def test_outputs_are_the_callers_own(session):
    x = handmade.feed(4)
    first = session.run(None, {"x": x})
    kept = [output.copy() for output in first]
    session.run(None, {"x": handmade.feed(4, 1)})
    for output, copy in zip(first, kept):
        np.testing.assert_array_equal(output, copy)
        assert output.flags.writeable and not np.shares_memory(output, x)
        output[...] = 7
    check(session.run(None, {"x": x}), x)


class OnlyDLPack:
    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_every_kind_of_array_is_fed(session):
    x = handmade.feed(6)
    wide = np.zeros((12, 2 * F), np.float32)
    wide[::2, ::2] = x
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    unaligned[...] = x
    readonly = x.copy()
    readonly.flags.writeable = False
    for feed in (
        np.asfortranarray(x),
        wide[::2, ::2],
        x[::-1][::-1],
        unaligned,
        readonly,
        x.astype(">f4"),
        OnlyDLPack(x),
    ):
        check(session.run(None, {"x": feed}), x)


WRONG_FEEDS = [
    ({}, r"Required inputs \(\['x'\]\) are missing from input feed \(\[\]\)"),
    ({"x": handmade.feed(2), "z": 1}, "Invalid input name: z; the model's inputs are x"),
    ({"x": handmade.feed(2)[0]}, "Invalid rank for input: x Got: 1 Expected: 2"),
    ({"x": np.float32(1)}, "Invalid rank for input: x Got: 0 Expected: 2"),
    ({"x": handmade.feed(2).astype(np.float64)}, r"data type for input: x. Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)"),
    ({"x": np.zeros((2, F), np.int64)}, r"Actual: \(tensor\(int64\)\)"),
    ({"x": np.zeros((2, F), np.complex64)}, r"Actual: \(complex64\) , expected: \(tensor\(float\)\)"),
    ({"x": np.full((2, F), "a")}, r"Actual: \(<U1\)"),
    ({"x": [[1.0] * F]}, r"Actual: \(tensor\(double\)\)"),
    ({"x": [[1.0] * F, [1.0]]}, "input 'x' of type list cannot be read as an array"),
    ({"x": None}, "input 'x' is None"),
    ({"x": np.zeros((2, F - 1), np.float32)}, rf"Got invalid dimensions for input: x .*\n index: 1 Expected: {F} Got: {F - 1}"),
    ({"x": np.zeros((65, F), np.float32)}, r"index: 0 Expected: batch in 0\.\.64 Got: 65\n .*--dim batch=MIN:OPT:MAX"),
]  # fmt: skip


@pytest.mark.parametrize("feeds, message", WRONG_FEEDS)
def test_a_wrong_feed_is_told_in_familiar_words(session, feeds, message):
    with pytest.raises(InvalidInput, match=message):
        session.run(None, feeds)


def test_feeds_must_be_a_mapping(session):
    with pytest.raises(InvalidInput, match="feeds must map input names to arrays, got list"):
        session.run(None, [handmade.feed(2)])


def test_the_signature_reads_as_onnxruntime_has_it(session):
    (x,) = session.get_inputs()
    assert (x.name, x.shape, x.type) == ("x", ["batch", F], "tensor(float)")
    assert [(o.name, o.shape, o.type) for o in session.get_outputs()] == [
        ("y", ["batch", C], "tensor(float)"),
        ("total", ["batch", 1], "tensor(float)"),
        ("count", [], "tensor(int64)"),
        ("x_again", [f"{F}*batch"], "tensor(float)"),
        ("w_again", [F, C], "tensor(float)"),
    ]
    assert session.get_providers() == ["LuminalExecutionProvider"]
    assert session.get_modelmeta().graph_name == "handmade"
    assert session.device == "cpu"
    report = session.report()
    assert (report["steps"], report["kernels"], report["library_calls"], report["arch"]) == (4, 3, 1, "sm_90")
    memory = session.memory_bytes()
    assert memory["weights"] == (F * C + C) * 4 and memory["total"] == sum(memory.values()) - memory["total"]


def test_providers_of_others_only_warn(path):
    with pytest.warns(UserWarning, match="CUDAExecutionProvider, CPUExecutionProvider change nothing"):
        InferenceSession(path, None, ["CUDAExecutionProvider", ("CPUExecutionProvider", {})], device="cpu").close()


def test_a_closed_session_says_so(path):
    session = InferenceSession(path.read_bytes(), device="cpu", arch="sm_80")
    assert session.report()["arch"] == "sm_80"
    session.close()
    session.close()
    with pytest.raises(InvalidInput, match="the session is closed"):
        session.run(None, {"x": handmade.feed(1)})


def test_without_sources_the_cpu_cannot_run(tmp_path):
    stripped = handmade.write(
        tmp_path / "stripped.luminal", sources={}, ptx=dict.fromkeys(handmade.SOURCES, "// no source")
    )
    with pytest.raises(InvalidArtifact, match=r"source of kernel elementwise:scale_shift is missing .*--strip-sources"):
        InferenceSession(stripped, device="cpu")


def test_without_a_gpu_cuda_is_refused(path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoDevice, match='name device="cpu"'):
        InferenceSession(path)


def test_the_checker_finds_nothing_in_right_kernels(path):
    with InferenceSession(path, device="cpu", check_kernels=True) as checked:
        x = handmade.feed(5)
        check(checked.run(None, {"x": x}), x)


def test_eight_threads_get_right_results(session):
    barrier = threading.Barrier(8)

    def work(seed):
        feeds = [handmade.feed(1 + (seed + turn) % 5, seed) for turn in range(5)]
        wanted = [handmade.expected(x)[0] for x in feeds]
        barrier.wait()
        for turn in range(125):
            (y,) = session.run(["y"], {"x": feeds[turn % 5]})
            tolerances.assert_close(y, wanted[turn % 5], tolerances.REDUCTION)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert session.report()["contexts"] <= 8


def test_memory_after_many_runs_is_memory_after_some(path):
    with InferenceSession(path, device="cpu") as session:
        feeds = [handmade.feed(batch) for batch in (1, 5, 64, 3)]

        def run(times):
            for turn in range(times):
                session.run(None, {"x": feeds[turn % 4]})
            gc.collect()

        run(100)
        held = session.memory_bytes()
        tracemalloc.start()
        run(20)
        grown = []
        for _ in range(6):
            before = tracemalloc.get_traced_memory()[0]
            run(300)
            grown.append(tracemalloc.get_traced_memory()[0] - before)
        tracemalloc.stop()
        # A leak grows every time; tables and free lists of the interpreter do so only until they are full.
        assert min(grown) < 5_000, f"300 runs took {grown} bytes more"
        assert session.memory_bytes() == held


def test_running_imports_nothing_of_the_compiler(path):
    program = (
        "import sys, numpy as np; from luminal_onnx import InferenceSession; "
        f"s = InferenceSession(sys.argv[1], device='cpu'); s.run(None, {{'x': np.ones((2, {F}), np.float32)}}); "
        "print(' '.join(sorted(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True).stdout
    loaded = {name.split(".")[0] for name in loaded.split()}
    assert not {"onnx", "egglog", "scipy", "sympy", "onnxruntime", "torch", "nvmath", "google"} & loaded
