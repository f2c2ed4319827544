"""The cache: found again, rebuilt when damaged, shared by processes, private."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from luminal_onnx.plan.errors import MissingDependency, UnfitEnvironment
from luminal_onnx.runtime import cache
from luminal_onnx.runtime.cpu import compile_host, compile_many, support, toolchain


def _constant(prelude: str, value: int) -> str:
    return f'{prelude}extern "C" __global__ void fill(int* o) {{ o[threadIdx.x] = {value}; }}\nLUMINAL_EXPORT(fill)\n'


def _result(kernel) -> int:
    out = np.zeros(4, np.int32)
    kernel.launch((1, 1, 1), (4, 1, 1), 0, [out])
    assert (out == out[0]).all()
    return int(out[0])


def _files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def _new_object(folder: Path, before: dict[str, int]) -> Path:
    (fresh,) = (folder / name for name in _files(folder) if name not in before and name.endswith(".so"))
    return fresh


def test_second_time_nothing_is_compiled(prelude, host_cache):
    texts = [_constant(prelude, value) for value in range(100, 110)]
    compile_host(texts[0], "fill", cache_dir=host_cache)
    compile_many([(text, "fill") for text in texts], cache_dir=host_cache)
    before = _files(host_cache)
    kernels = compile_many([(text, "fill") for text in texts], cache_dir=host_cache)
    assert [_result(kernel) for kernel in kernels] == list(range(100, 110))
    assert _files(host_cache) == before


@pytest.mark.parametrize("damage", ["truncated", "altered", "emptied"])
def test_a_damaged_object_is_rebuilt(damage, prelude, host_cache):
    before = _files(host_cache)
    value = 200 + ["truncated", "altered", "emptied"].index(damage)
    text = _constant(prelude, value)
    compile_host(text, "fill", cache_dir=host_cache)
    path = _new_object(host_cache, before)
    data = bytearray(path.read_bytes())
    path.unlink()  # the loaded object keeps the old file
    if damage == "altered":
        data[len(data) // 2] ^= 1
    path.write_bytes({"truncated": data[:-100], "altered": data, "emptied": b""}[damage])
    assert not cache.is_sealed(path)
    assert _result(compile_host(text, "fill", cache_dir=host_cache)) == value
    assert cache.is_sealed(path)


def test_a_damaged_batch_or_link_is_rebuilt(prelude, host_cache):
    texts = [(_constant(prelude, value), "fill") for value in range(300, 320)]
    before = _files(host_cache)
    compile_many(texts, cache_dir=host_cache)
    fresh = [host_cache / name for name in _files(host_cache) if name not in before]
    objects = [path for path in fresh if path.suffix == ".so"]
    links = [path for path in fresh if path.suffix == ".link"]
    assert objects and len(links) == 20
    for path in (objects[0], links[-1]):
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:-1])
    kernels = compile_many(texts, cache_dir=host_cache)
    assert [_result(kernel) for kernel in kernels] == list(range(300, 320))


def test_a_damaged_precompiled_header_is_rebuilt(prelude, tmp_path):
    folder = tmp_path / "host"
    header = support.precompiled_header(prelude, False, cache.private_folder(folder))
    compiled = header.with_name("prelude.h.gch")
    compiled.write_bytes(compiled.read_bytes()[:5000])
    support.precompiled_header.cache_clear()
    assert support.precompiled_header(prelude, False, folder) == header
    assert compiled.stat().st_size > 5000
    assert sorted(path.name for path in folder.iterdir()) == [header.parent.name]  # nothing left behind


def test_old_headers_and_leftovers_are_swept(prelude, tmp_path):
    folder = cache.private_folder(tmp_path / "host")
    for name, days in (("header_old", 8), ("header_recent", 3), (".build-killed", 2), (".build-running", 0)):
        (folder / name).mkdir()
        moment = time.time() - days * 86400
        os.utime(folder / name, (moment, moment))
    header = support.precompiled_header(prelude, False, folder)
    assert {path.name for path in folder.iterdir()} == {header.parent.name, "header_recent", ".build-running"}


_TWO_PROCESSES = """
import sys, numpy as np
from pathlib import Path
from luminal_onnx.runtime.cpu import compile_many
prelude = Path(sys.argv[1]).read_text()
kernel = 'extern "C" __global__ void fill(int* o) {{ o[0] = {}; }}\\nLUMINAL_EXPORT(fill)\\n'
texts = [prelude + kernel.format(value) for value in range(6)]
out = np.zeros(1, np.int32)
seen = []
for kernel in compile_many([(text, "fill") for text in texts], cache_dir=Path(sys.argv[2])):
    kernel.launch((1, 1, 1), (1, 1, 1), 0, [out])
    seen.append(int(out[0]))
print(seen)
"""


def test_two_processes_fill_one_cache(prelude, tmp_path):
    (tmp_path / "prelude.cuh").write_text(prelude)
    command = [sys.executable, "-c", _TWO_PROCESSES, str(tmp_path / "prelude.cuh"), str(tmp_path / "host")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in running:
        assert process.communicate(timeout=60)[0].strip() == "[0, 1, 2, 3, 4, 5]"
        assert process.returncode == 0
    assert not [path for path in (tmp_path / "host").iterdir() if path.name.startswith(".")]


def test_the_key_covers_flags_compiler_and_source(prelude, monkeypatch):
    keys = {support.key(prelude), support.key(prelude + " "), support.key(prelude, *support.kernel_flags(True))}
    tools = toolchain.toolchain()
    other = toolchain.Toolchain(**{**vars(tools), "identity": tools.identity + " newer"})
    monkeypatch.setattr(support, "toolchain", lambda: other)
    keys.add(support.key(prelude))
    monkeypatch.setattr(support, "_shim_hash", lambda: "another shim")
    keys.add(support.key(prelude))
    assert len(keys) == 5


def test_the_folder_is_private_and_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "chosen" / "here"))
    folder = cache.cache_dir()
    assert folder == tmp_path / "chosen" / "here"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    monkeypatch.delenv(cache.ENVIRONMENT_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_dir() == tmp_path / "xdg" / "luminal-onnx"


def test_a_folder_that_others_may_write_to_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    os.chmod(folder, 0o777)
    with pytest.raises(UnfitEnvironment, match="others may write to the cache .*chmod go-w"):
        cache.private_folder(folder)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UnfitEnvironment, match="cannot use .* as the cache"):
        cache.private_folder(blocked / "folder")


def test_missing_tools_are_named(monkeypatch, tmp_path):
    toolchain.toolchain.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency, match=r"needs g\+\+"):
        toolchain.toolchain()
    monkeypatch.undo()
    monkeypatch.setattr(toolchain, "_header_roots", lambda: [tmp_path])
    with pytest.raises(MissingDependency, match="pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"):
        toolchain.toolchain()
    monkeypatch.undo()
    assert toolchain.toolchain().include
