"""What the CPU road needs from the machine: a C++ compiler, a linker, and CUDA's headers."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...plan.errors import MissingDependency

_HEADER_WHEELS = "nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"


@dataclass(frozen=True)
class Toolchain:
    """The programs and folders, and `identity`: a text that changes when compiled code could."""

    compiler: str
    linker: str
    include: tuple[str, ...]
    libraries: tuple[str, ...]
    machine_flags: tuple[str, ...]
    identity: str


@cache
def toolchain() -> Toolchain:
    """Find the tools once a process. MissingDependency names what to install."""
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("g++")
    if compiler is None:
        raise MissingDependency(
            "running kernels on the CPU needs g++ 11 or later; install it (Debian: apt-get install g++)"
        )
    version = _ask(compiler, "--version").splitlines()[0]
    target = _ask(compiler, "-dumpmachine")
    include = cuda_include()
    flags = _machine_flags()
    return Toolchain(
        compiler=compiler,
        linker=shutil.which(_ask(compiler, "-print-prog-name=ld")) or "ld",
        include=include,
        libraries=tuple(_ask(compiler, f"-print-file-name={name}") for name in ("libm.so", "libc.so", "libgcc.a")),
        machine_flags=flags,
        identity="\n".join((version, target, *include, *flags)),
    )


def _ask(compiler: str, question: str) -> str:
    done = subprocess.run([compiler, question], capture_output=True, text=True)
    if done.returncode:
        raise MissingDependency(
            f"{compiler} {question} fails, install a working g++ 11 or later: {done.stderr.strip()}"
        )
    return done.stdout.strip()


def cuda_include() -> tuple[str, ...]:
    """Return the folders that hold cuda_runtime.h and nv/target."""
    for root in _header_roots():
        if (root / "cuda_fp16.h").is_file() and (root / "cuda_runtime.h").is_file():
            folders = [folder for folder in (root, root / "cccl") if (folder / "nv" / "target").is_file()]
            if folders and (root / "crt" / "host_config.h").is_file():
                return tuple(dict.fromkeys((str(root), *map(str, folders))))
    raise MissingDependency(
        f"running kernels on the CPU needs CUDA's headers: run `pip install {_HEADER_WHEELS}`, or install a CUDA "
        "toolkit and name its folder in $CUDA_HOME"
    )


def _header_roots() -> list[Path]:
    wheels = [Path(place) / "nvidia" / "cu13" / "include" for place in (*sys.path, *site.getsitepackages()) if place]
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return wheels + [Path(place) / "include" for place in toolkits if place]


def _machine_flags() -> tuple[str, ...]:
    """Fused multiply-add and 16-bit conversions in hardware: the same bits as without, several times faster."""
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return ()
    wanted = {"avx2": "-mavx2", "fma": "-mfma", "f16c": "-mf16c"}
    return tuple(wanted.values()) if words.issuperset(wanted) else ()
