"""What every kernel stands on, compiled once into the cache: the runtime library and the precompiled header."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from ...plan.errors import KernelFault
from ..cache import is_sealed, publish, seal, temporary_name
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


def kernel_flags(check: bool) -> tuple[str, ...]:
    """The compiler's flags for kernels, with or without the checker."""
    machine = () if check else toolchain().machine_flags  # 16 bytes are the widest access the checker knows
    return (*_COMMON_FLAGS, *(_CHECK_FLAGS if check else _FAST_FLAGS), *machine, *_include_flags())


def key(*parts: str) -> str:
    """Return the cache key of something compiled from `parts`: it also covers the compiler and the shim."""
    text = "\0".join((*parts, toolchain().identity, _shim_hash()))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def run_tool(what: str, *command: str) -> None:
    """Run the compiler or linker; KernelFault with its first errors if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        every = done.stderr.splitlines()
        errors = [line for line in every if "error" in line or "undefined" in line] or every
        raise KernelFault("\n".join((f"{what} does not compile for the CPU:", *errors[:12])))


@cache
def runtime_library(folder: Path) -> Path:
    """Return the shared library that plays the machine, compiling it unless a valid one is in `folder`."""
    tools = toolchain()
    flags = (*_LIBRARY_FLAGS, *tools.machine_flags, *_include_flags())
    target = folder / f"libluminal_host_{key('runtime library', *flags)}.so"
    if is_sealed(target):
        return target
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        unit, linked = Path(scratch) / "library.cpp", Path(scratch) / "library.so"
        unit.write_text("".join(f'#include "{part}"\n' for part in _LIBRARY_PARTS))
        name = f"-Wl,-soname,{target.name}"
        run_tool("the runtime library", tools.compiler, *flags, "-shared", name, str(unit), "-o", str(linked))
        publish(linked, target)
    return target


@cache
def precompiled_header(prelude: str, check: bool, folder: Path) -> Path:
    """Return a header whose precompiled form, in `folder`, holds `luminal_host.h` and the prelude."""
    flags = kernel_flags(check)
    target = folder / f"header_{key(prelude, *flags)}"
    header = target / "prelude.h"
    if _is_whole(target):
        os.utime(target)
        return header
    _sweep(folder)
    scratch = temporary_name(target)
    scratch.mkdir(mode=0o700)
    try:
        text, compiled = scratch / header.name, scratch / f"{header.name}.gch"
        text.write_text(f'#include "luminal_host.h"\n#line 1 "prelude.cuh"\n{prelude}')
        run_tool("the prelude", toolchain().compiler, *flags, "-x", "c++-header", str(text), "-o", str(compiled))
        (scratch / "seal").write_text(_digest(compiled))
        seal(scratch / "seal")
        _replace_folder(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return header


def _sweep(folder: Path) -> None:
    """Remove what nobody needs: headers (some 35 MB each) of a week without use, and what killed processes left."""
    for pattern, days in (("header_*", 7), (".*", 1)):
        for path in folder.glob(pattern):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > days * 86400:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_whole(folder: Path) -> bool:
    mark, compiled = folder / "seal", folder / "prelude.h.gch"
    return is_sealed(mark) and compiled.is_file() and mark.read_bytes().startswith(_digest(compiled).encode())


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace_folder(finished: Path, target: Path) -> None:
    """Rename a finished folder to its name; a damaged one that stands there is moved out of the way first."""
    if target.exists() and not _is_whole(target):
        broken = temporary_name(target)
        with suppress(OSError):
            target.rename(broken)
        shutil.rmtree(broken, ignore_errors=True)
    try:
        finished.rename(target)
    except OSError:
        if not target.is_dir():  # another process that finished first is as good
            raise


def _include_flags() -> tuple[str, ...]:
    return (f"-I{_FOLDER}", *(f"-isystem{folder}" for folder in toolchain().include))


@cache
def _shim_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(_FOLDER.iterdir()):
        if path.suffix in (".h", ".cpp") or path.name in ("build.py", "source.py", Path(__file__).name):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
