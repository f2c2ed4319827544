"""Which kernels the GPU road lets start early, on a fake driver: only kernels that wait, behind kernels that wait."""

from __future__ import annotations

from pathlib import Path

import handmade_artifact as handmade
import numpy as np
import pytest
import tolerances
from fake_gpu import FakeDriver, array_at, install
from luminal_onnx.codegen.artifact import write_artifact
from luminal_onnx.plan.dims import evaluate, symbol
from luminal_onnx.plan.dtypes import float32
from luminal_onnx.plan.lt import LtMatmul
from luminal_onnx.plan.records import Buffer, KernelRecord, KernelStep, LtStep, Plan, Port, Segment
from luminal_onnx.runtime.artifact import Artifact
from luminal_onnx.runtime.session import InferenceSession

N = symbol("n")
NAMES = ("k0", "k1", "k2", "k3")


def add_one(out, x, n):
    n &= 0xFFFFFFFF
    array_at(out, n, np.float32)[:] = array_at(x, n, np.float32) + np.float32(1)


def kernel(name: str, *, waits: bool = True, grid=1) -> KernelRecord:
    return KernelRecord(name, handmade.sha(name), name, (grid, 1, 1), (32, 1, 1), 0, 1, 1, (N,), waits=waits)


def product(k) -> LtMatmul:
    return LtMatmul(
        m=1, n=N, k=k, transpose_a=False, transpose_b=False, order_a="col", order_b="col", order_d="col",
        lda=1, ldb=1, ldd=1, batch=1, stride_a=0, stride_b=0, stride_d=0,
        type_a=float32, type_b=float32, type_d=float32, epilogue="default",
    )  # fmt: skip


def chain(steps, arch="sm_90") -> Plan:
    """Every record reads what the one before wrote; a product has a scalar weight as its other factor."""
    buffers = [Buffer(0, "x", "input", float32, (N,)), Buffer(1, "w", "weight", float32, (1, 1))]
    listed = []
    for number, record in enumerate(steps, 2):
        buffers.append(Buffer(number, f"b{number}", "temporary", float32, (N,)))
        last = number - 1 if number > 2 else 0
        if isinstance(record, LtMatmul):
            listed.append(LtStep(record, (number,), (1, last)))
        else:
            listed.append(KernelStep(record, (number,), (last,)))
    ports = (Port("x", float32, (N,), 0),), (Port("y", float32, (N,), len(buffers) - 1),)
    return Plan(arch, tuple(buffers), *ports, Segment(tuple(listed)))


@pytest.fixture
def gpu(monkeypatch):
    driver = FakeDriver({name: (add_one, 3) for name in NAMES})
    library = install(monkeypatch, driver)
    yield driver
    assert not driver.contexts and not driver.live and not library.things


@pytest.fixture
def session(tmp_path, gpu):
    """Return a function that writes a plan with code of some kinds and opens it."""

    def opened(steps, *, arch="sm_90", machine_code=NAMES, **options):
        codes = {kind: {handmade.sha(name): f"{kind} {name}".encode() for name in NAMES} for kind in ("cubin", "ptx")}
        chosen = {handmade.sha(name): codes["cubin"][handmade.sha(name)] for name in machine_code}
        path = tmp_path / "chain.luminal"
        write_artifact(
            path,
            manifest_info={"model": {"name": "chain", "sha256": ""}},
            plans={arch: chain(steps, arch)},
            cubins={arch: chosen},
            ptx=codes["ptx"],
            sources={},
            weights={"w": np.full((1, 1), 2, np.float32)},
        )
        return InferenceSession(path, **options)

    return opened


def started_early(gpu, opened, n=5) -> list[bool]:
    """Run once; return for each kernel of the run, as it was captured or launched last, whether it might start early."""
    with opened:
        x = np.arange(n, dtype=np.float32)
        (y,) = opened.run(None, {"x": x})
        values = x
        for step in opened.plan.steps():
            if isinstance(step, LtStep):
                values = values * (2 if evaluate(step.matmul.k, {"n": n}) else 0)
            else:
                values = values + 1
        tolerances.assert_close(y, values, tolerances.REDUCTION)
        turns = 2 if opened.report()["graphs_built"] else 1  # a graph's launches are first tried outside of the capture
    per_run, rest = divmod(len(gpu.launches), turns)
    assert rest == 0 and gpu.launches == gpu.launches[:per_run] * turns
    return [early for _, early in gpu.launches[:per_run]]


FOUR = [kernel(name) for name in NAMES]


@pytest.mark.parametrize("cuda_graph", [True, False])
def test_every_waiting_kernel_but_the_first_starts_early(gpu, session, cuda_graph):
    assert started_early(gpu, session(FOUR, cuda_graph=cuda_graph)) == [False, True, True, True]
    assert gpu.calls.get("cuGraphLaunch", 0) == cuda_graph


def test_the_option_turns_it_off(gpu, session):
    assert started_early(gpu, session(FOUR, programmatic_launch=False)) == [False] * 4
    assert "cuLaunchKernelEx" not in gpu.calls


def test_a_kernel_that_does_not_wait_starts_late_and_so_does_the_next(gpu, session):
    steps = [kernel("k0"), kernel("k1", waits=False), kernel("k2"), kernel("k3")]
    assert started_early(gpu, session(steps)) == [False, False, False, True]


@pytest.mark.parametrize("terms", [1, N - 5], ids=["library", "memset"])
def test_a_kernel_behind_a_library_call_starts_late(gpu, session, terms):
    steps = [kernel("k0"), kernel("k1"), product(terms), kernel("k2"), kernel("k3")]
    assert started_early(gpu, session(steps)) == [False, True, False, True]


def test_a_kernel_that_is_not_launched_does_not_count(gpu, session):
    gpu.kernels["k1"] = (lambda *_: pytest.fail("an empty grid was launched"), 3)
    with session([kernel("k0"), kernel("k1", grid=N - 5), kernel("k2")]) as opened:
        opened.run(None, {"x": np.ones(5, np.float32)})
    assert gpu.launches == [("k0", False), ("k2", True)] * 2


@pytest.mark.parametrize(
    "capability, arch, expected",
    [((8, 0), "sm_80", False), ((9, 0), "sm_90", True), ((9, 0), "sm_90a", True), ((10, 0), "sm_100", True)],
)
def test_only_machine_code_that_can_wait_starts_early(gpu, session, capability, arch, expected):
    gpu.capability = capability
    assert started_early(gpu, session(FOUR, arch=arch)) == [False] + [expected] * 3
    assert all(image.startswith(b"cubin") for image in gpu.loaded)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nothing_starts_early_on_the_ptx_road(gpu, session, arch):
    gpu.capability = (12, 0)
    assert started_early(gpu, session(FOUR, arch=arch)) == [False] * 4
    assert all(image.startswith(b"ptx") for image in gpu.loaded)


def test_one_kernel_by_ptx_starts_late_and_so_does_the_next(gpu, session):
    assert started_early(gpu, session(FOUR, machine_code=("k0", "k1", "k3"))) == [False, True, False, False]


def test_records_of_older_artifacts_do_not_wait():
    with Artifact.open(Path(__file__).parent / "data" / "format_v1.luminal") as artifact:
        steps = list(artifact.plan("sm_90").steps())
    kernels = [step.kernel for step in steps if isinstance(step, KernelStep)]
    assert kernels and not any(record.waits for record in kernels)


def test_waiting_survives_the_file():
    plan = chain(FOUR)
    assert Plan.from_json(plan.to_json()) == plan
    assert all(step.kernel.waits for step in Plan.from_json(plan.to_json()).steps())
