"""Every template through NVRTC for every architecture, the cache's keys and checks, and parallel compilation."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys

import pytest
from luminal_onnx.codegen import compile_sources, kernel_cache, lower_region, lower_scatter, nvrtc
from luminal_onnx.codegen.kernel_text import source_hash
from luminal_onnx.ir.graph import TensorType
from luminal_onnx.ir.program import ScatterKernel
from luminal_onnx.ir.schedule import schedules
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import ALL, bfloat16, float16, float32, float64, int8, int64
from luminal_onnx.plan.errors import LuminalError
from regions import attention_scores, bias_gelu, conv2d, embedding, layer_norm, matmul, pool2d, softmax

ARCHES = ("sm_80", "sm_90", "sm_100")
N = symbol("n")
RANGES = {"n": Range(1, 64, 1024)}


def sources_of(*regions, ranges=None):
    found = {}
    for region in regions:
        for schedule in schedules(region, ranges):
            record, text = lower_region(region, schedule, ranges)
            found[record.source] = text
    return found


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("LUMINAL_ONNX_CACHE", str(folder))
    return folder


@pytest.mark.slow
def test_every_schedule_compiles_for_every_architecture():
    sources = sources_of(
        bias_gelu((128, 96), float16), softmax((4,), (1000,)), softmax((4,), (3, N), bfloat16, RANGES), layer_norm((4,), 768, float16),
        matmul(65, 70, 90, bfloat16), conv2d(2, 4, (9, 8), 6, (3, 3), pad=1, residual=True), pool2d("max", 1, 3, (9, 9), (3, 3), 2, 1),
        embedding((3,), 10, 8), ranges=RANGES,
    )  # fmt: skip
    types = [TensorType(float32, (5,)), TensorType(int64, (3,)), TensorType(float32, (3,))]
    for step in lower_scatter(ScatterKernel("add", (0, 1, 2), (3,)), types).steps:
        sources[step.record.source] = step.text
    binaries = compile_sources(sources, ARCHES)
    assert set(binaries.cubins) == set(ARCHES)
    for cubins in binaries.cubins.values():
        assert set(cubins) == set(sources)
        assert all(cubin.startswith(b"\x7fELF") for cubin in cubins.values())
    assert all(".target sm_80" in ptx for ptx in binaries.ptx.values())


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_dtype_compiles(dtype):
    from regions import reduction

    fn = "max" if dtype.kind == "b" else "sum"
    for schedule in ("row_block", "row_warp"):
        _, text = lower_region(reduction(fn, (4,), (300,), dtype), schedule, None)
        assert nvrtc.compile_cubin(text, "sm_90").startswith(b"\x7fELF")


@pytest.mark.parametrize("dtype", [float64, int64, int8], ids=str)
@pytest.mark.parametrize("sizes", [(4096, 4096), (40, 600), (600, 40), (40, 40)], ids=str)
def test_products_compile_for_other_accumulators(dtype, sizes):
    _, text = lower_region(matmul(*sizes, 512, dtype), "matmul_tiled", None)
    assert nvrtc.compile_cubin(text, "sm_80").startswith(b"\x7fELF")


def test_vectors_become_wide_instructions():
    _, text = lower_region(bias_gelu((1024, 1024), float16), "elementwise", None)
    ptx = nvrtc.compile_ptx(text, "compute_80")
    assert "ld.global.nc.v4" in ptx or "ld.global.v4" in ptx
    assert "st.global.v4" in ptx


def test_a_text_that_does_not_compile_is_shown_with_the_message():
    _, text = lower_region(bias_gelu((4, 4)), "elementwise", None)
    broken = text.replace("const UIndex chunk", "const Uindex chunk")
    with pytest.raises(LuminalError, match="Uindex"):
        nvrtc.compile_cubin(broken, "sm_90")


def test_the_cache_answers_the_second_time():
    sources = sources_of(softmax((4,), (100,)))
    first = compile_sources(sources, ("sm_90",), ptx=None)
    second = compile_sources(sources, ("sm_90",), ptx=None)
    assert (first.compiled, first.cached) == (len(sources), 0)
    assert (second.compiled, second.cached) == (0, len(sources))
    assert first.cubins == second.cubins
    assert compile_sources(sources, ("sm_90",), ptx=None, cache=False).compiled == len(sources)


def test_damaged_entries_are_compiled_again(own_cache):
    sources = sources_of(bias_gelu((4, 4)))
    first = compile_sources(sources, ("sm_90",), ptx=None)
    (entry,) = [path for path in (own_cache / "kernels").rglob("*") if path.is_file()]
    for damage in (b"", entry.read_bytes()[:-1], entry.read_bytes()[:-1] + b"x", b"x" * 100):
        entry.write_bytes(damage)
        again = compile_sources(sources, ("sm_90",), ptx=None)
        assert again.compiled == 1
        assert again.cubins == first.cubins


def test_an_entry_under_another_key_is_not_believed(own_cache):
    kernel_cache.store("a" * 64, b"code")
    path = own_cache / "kernels" / "aa" / ("a" * 64)
    other = own_cache / "kernels" / "bb" / ("b" * 64)
    other.parent.mkdir(parents=True)
    os.replace(path, other)
    assert kernel_cache.load("b" * 64) is None


def test_the_key_holds_everything_that_the_code_depends_on(monkeypatch):
    keys = {
        kernel_cache.kernel_key("text", "cubin", "sm_90"),
        kernel_cache.kernel_key("other", "cubin", "sm_90"),
        kernel_cache.kernel_key("text", "ptx", "sm_90"),
        kernel_cache.kernel_key("text", "cubin", "sm_80"),
    }
    monkeypatch.setattr(nvrtc, "STANDARD", "--std=c++20")
    keys.add(kernel_cache.kernel_key("text", "cubin", "sm_90"))
    monkeypatch.undo()
    monkeypatch.setattr(nvrtc, "version", lambda: "99.9")
    keys.add(kernel_cache.kernel_key("text", "cubin", "sm_90"))
    monkeypatch.undo()
    monkeypatch.setattr(kernel_cache, "SCHEMA", kernel_cache.SCHEMA + 1)
    keys.add(kernel_cache.kernel_key("text", "cubin", "sm_90"))
    assert len(keys) == 7


def test_the_cache_is_private(own_cache):
    compile_sources(sources_of(bias_gelu((4, 4))), ("sm_90",), ptx=None)
    folder = own_cache / "kernels"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_cache_that_cannot_be_written_is_no_error(own_cache, monkeypatch):
    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    assert compile_sources(sources_of(bias_gelu((4, 4))), ("sm_90",), ptx=None).compiled == 1
    assert not [path for path in own_cache.rglob("*") if path.is_file()]


def test_workers_give_the_same_code_as_one_process(monkeypatch):
    monkeypatch.setattr("luminal_onnx.codegen.binaries.LEAST_SHARED_JOBS", 2)
    sources = sources_of(bias_gelu((4, 4)), softmax((4,), (100,)))
    apart = compile_sources(sources, ("sm_90",), jobs=2, cache=False)
    alone = compile_sources(sources, ("sm_90",), jobs=1, cache=False)
    assert apart.cubins == alone.cubins
    assert apart.ptx == alone.ptx


def test_two_processes_may_fill_one_cache(own_cache):
    sources = sources_of(bias_gelu((4, 4)), softmax((4,), (30,)))
    program = (
        "import sys, pickle\n"
        "from luminal_onnx.codegen import compile_sources\n"
        "sources = pickle.load(sys.stdin.buffer)\n"
        "for _ in range(2): result = compile_sources(sources, ('sm_90',), ptx=None, jobs=1)\n"
        "assert result.cached == len(sources), result\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) for _ in range(2)]
    for process in running:
        process.communicate(pickle.dumps(sources), timeout=60)
    assert [process.returncode for process in running] == [0, 0]
    assert compile_sources(sources, ("sm_90",), ptx=None).cached == len(sources)
    assert not [path for path in own_cache.rglob(".*") if path.is_file()]


def test_an_error_in_a_worker_arrives(monkeypatch):
    monkeypatch.setattr("luminal_onnx.codegen.binaries.LEAST_SHARED_JOBS", 2)
    with pytest.raises(LuminalError, match="NVRTC rejected"):
        compile_sources({"a": "nonsense", "b": "more nonsense"}, ("sm_90",), ptx=None)


def test_sources_are_named_by_their_hash():
    record, text = lower_region(attention_scores(2, 4, 2, N, 8, ranges=RANGES), "matmul_tiled", RANGES)
    assert record.source == source_hash(text)
    assert f"LUMINAL_EXPORT({record.entry})" in text
