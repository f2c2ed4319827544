"""Compiles kernels, and what they stand on, into the cache: a runtime library, precompiled headers, shared objects."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...plan.errors import KernelFault
from ..cache import cache_dir, is_sealed, private_folder, publish, seal, temporary_name
from .toolchain import toolchain

_FOLDER = Path(__file__).parent
_LIBRARY_PARTS = (
    "scheduler.cpp", "collectives.cpp", "tensor_core.cpp", "async_copy.cpp", "checker.cpp", "launch.cpp",
)  # fmt: skip

# Kernels rely on wrapping integers and on views of one buffer as several types; on nothing that -ffast-math changes.
_COMMON_FLAGS = (
    "-std=c++17", "-fPIC", "-w", "-DLUMINAL_HOST", "-fno-strict-aliasing", "-ffp-contract=off", "-fwrapv",
    "-fno-math-errno", "-fno-trapping-math", "-fno-exceptions", "-fno-asynchronous-unwind-tables",
    "-fvisibility=hidden", "-fno-gnu-unique",
)  # fmt: skip
_FAST_FLAGS = ("-O2",)
# The sanitizer's instrumentation without its runtime: the hooks are in checker.cpp.
_CHECK_FLAGS = ("-O1", "-g1", "-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0")
_LIBRARY_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-w", "-DLUMINAL_HOST", "-fno-strict-aliasing", "-ffp-contract=off")

_PRELUDE = re.compile(r"^#ifndef LUMINAL_PRELUDE\n.*?^#endif  // LUMINAL_PRELUDE\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class KernelSource:
    """One emitted text, the name of its kernel, and whether its memory accesses are to be checked."""

    text: str
    entry: str
    check: bool = False

    @property
    def prelude(self) -> str:
        """The part that all kernels share, which is compiled ahead; empty if the text has none."""
        match = _PRELUDE.search(self.text)
        return match.group() if match else ""

    @property
    def body_line(self) -> int:
        """The first line after the prelude."""
        match = _PRELUDE.search(self.text)
        return self.text.count("\n", 0, match.end()) + 1 if match else 1


def host_folder(cache_folder: Path | None) -> Path:
    """Where compiled kernels are kept: `cache_folder`, or `host` in the cache."""
    return private_folder(cache_folder or cache_dir() / "host")


def build_kernel(source: KernelSource, folder: Path) -> Path:
    """Return the shared object of a kernel in `folder`, compiling it unless a valid one is there."""
    target = folder / f"{_key(source.text, source.entry, *_kernel_flags(source.check))}.so"
    if is_sealed(target):
        return target
    library = runtime_library(folder)
    header = _precompiled_header(source.prelude, source.check, folder)
    tools = toolchain()
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        text, code, linked = (Path(scratch) / f"{source.entry}.{ending}" for ending in ("cu", "o", "so"))
        text.write_text(source.text)
        _run(source.entry, tools.compiler, *_kernel_flags(source.check), "-include", str(header), "-x", "c++", "-c", str(text),
             "-o", str(code))  # fmt: skip
        _run(source.entry, tools.linker, "-shared", "--no-undefined", "-o", str(linked), str(code), str(library), *tools.libraries)
        publish(linked, target)
    return target


@cache
def runtime_library(folder: Path) -> Path:
    """Return the shared library that plays the machine, compiling it unless a valid one is in `folder`."""
    tools = toolchain()
    flags = (*_LIBRARY_FLAGS, *tools.machine_flags, *_include_flags())
    target = folder / f"libluminal_host_{_key('runtime library', '', *flags)}.so"
    if is_sealed(target):
        return target
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        unit, linked = Path(scratch) / "library.cpp", Path(scratch) / "library.so"
        unit.write_text("".join(f'#include "{part}"\n' for part in _LIBRARY_PARTS))
        _run("runtime library", tools.compiler, *flags, "-shared", f"-Wl,-soname,{target.name}", str(unit), "-o", str(linked))
        publish(linked, target)
    return target


@cache
def _precompiled_header(prelude: str, check: bool, folder: Path) -> Path:
    """Return a header whose precompiled form holds `luminal_host.h` and the prelude."""
    flags = _kernel_flags(check)
    target = folder / f"header_{_key(prelude, 'precompiled header', *flags)}"
    header = target / "prelude.h"
    if is_sealed(target / "seal") and _matches_seal(target):
        return header
    scratch = temporary_name(target)
    scratch.mkdir(mode=0o700)
    try:
        (scratch / header.name).write_text(f'#include "luminal_host.h"\n#line 1 "prelude.cuh"\n{prelude}')
        compiled = scratch / f"{header.name}.gch"
        _run("prelude", toolchain().compiler, *flags, "-x", "c++-header", str(scratch / header.name), "-o", str(compiled))
        (scratch / "seal").write_text(_digest(compiled))
        seal(scratch / "seal")
        _replace_folder(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return header


def _matches_seal(folder: Path) -> bool:
    compiled = folder / "prelude.h.gch"
    return compiled.is_file() and (folder / "seal").read_bytes().startswith(_digest(compiled).encode())


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace_folder(finished: Path, target: Path) -> None:
    """Rename a finished folder to its name; a damaged one that stands there is moved out of the way first."""
    if target.exists() and not (is_sealed(target / "seal") and _matches_seal(target)):
        broken = temporary_name(target)
        with suppress(OSError):
            target.rename(broken)
        shutil.rmtree(broken, ignore_errors=True)
    try:
        finished.rename(target)
    except OSError:
        if not target.is_dir():  # another process that finished first is as good
            raise


def _kernel_flags(check: bool) -> tuple[str, ...]:
    machine = () if check else toolchain().machine_flags  # 16 bytes are the widest access the checker knows
    return (*_COMMON_FLAGS, *(_CHECK_FLAGS if check else _FAST_FLAGS), *machine, *_include_flags())


def _include_flags() -> tuple[str, ...]:
    return (f"-I{_FOLDER}", *(f"-isystem{folder}" for folder in toolchain().include))


def _key(*parts: str) -> str:
    text = "\0".join((*parts, toolchain().identity, _shim_hash()))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


@cache
def _shim_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(_FOLDER.iterdir()):
        if path.suffix in (".h", ".cpp") or path.name == Path(__file__).name:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _run(what: str, *command: str) -> None:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line or "undefined" in line] or done.stderr.splitlines()
        shown = "\n".join(lines[:12])
        raise KernelFault(f"kernel {what} does not compile for the CPU:\n{shown}")
