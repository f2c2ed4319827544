"""NVRTC: one kernel's text to a cubin or to PTX. Needs no driver and no GPU."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from ..plan.errors import LuminalError, MissingDependency

STANDARD = "--std=c++17"
_NEEDED_HEADER = "crt/host_defines.h"  # of another wheel than most headers, so the one that may be missing
_TOOLKIT = "/usr/local/cuda"


def compile_cubin(text: str, arch: str) -> bytes:
    """Return the machine code of a kernel for `arch`, such as "sm_90"."""
    return _compile(text, arch, ptx=False)


def compile_ptx(text: str, arch: str) -> str:
    """Return the PTX of a kernel for a virtual architecture, such as "compute_80"."""
    return _compile(text, arch, ptx=True).rstrip(b"\0").decode("ascii")


def options(arch: str) -> tuple[str, ...]:
    """Return the options that change what NVRTC makes of a text. Division, square root and denormals are exact (its defaults)."""
    return (f"--gpu-architecture={arch}", STANDARD)


@cache
def version() -> str:
    """Return NVRTC's version, such as "13.0"; MissingDependency if it is not installed."""
    nvrtc = _nvrtc()
    return ".".join(map(str, _checked(nvrtc.nvrtcVersion())))


@cache
def include_paths() -> tuple[str, ...]:
    """Return the folders of CUDA's headers, of the wheels that hold them, else of an installed CUDA toolkit."""
    try:
        import nvidia

        bases = [Path(base) for base in nvidia.__path__]
    except ImportError:
        bases = []
    folders = {header.parent for base in bases for header in base.glob("*/include/cuda_fp16.h")}
    if not any((folder / _NEEDED_HEADER).is_file() for folder in folders):
        toolkits = [Path(os.environ.get(name) or _TOOLKIT) / "include" for name in ("CUDA_HOME", "CUDA_PATH")]
        folders = {folder for folder in toolkits if (folder / _NEEDED_HEADER).is_file()}
    if not folders:
        raise _missing("the CUDA headers")
    return tuple(sorted(map(str, folders)))


def _compile(text: str, arch: str, ptx: bool) -> bytes:
    nvrtc = _nvrtc()
    arguments = [*options(arch), *(f"--include-path={path}" for path in include_paths())]
    program = _checked(nvrtc.nvrtcCreateProgram(text.encode("utf-8"), b"kernel.cu", 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [item.encode() for item in arguments])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise LuminalError(f"NVRTC rejected a kernel for {arch}:\n{_log(nvrtc, program)}\n{_numbered(text)}")
        size, read = (
            (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if ptx else (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        )
        code = bytearray(_checked(size(program)))
        _checked(read(program, code))
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _nvrtc():
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise _missing("NVRTC", str(error)) from error
    return nvrtc


def _missing(what: str, why: str = "not found") -> MissingDependency:
    return MissingDependency(f"compiling for a GPU needs {what} ({why}). Install: pip install 'luminal-onnx[compile]'")


def _checked(answer: tuple):
    status, *values = answer
    if int(status):
        raise LuminalError(f"NVRTC failed with {status!r}")
    return values[0] if len(values) == 1 else values


def _log(nvrtc, program) -> str:
    log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0").decode("utf-8", "replace")


def _numbered(text: str) -> str:
    """Return the generated part of a kernel with the numbers that the compiler's messages use."""
    lines = text.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith("using Index")), 0)
    return "\n".join(f"{number:5} {line}" for number, line in enumerate(lines[start:], start + 1))
