"""Fixtures of the CPU road's tests: kernels are files in `kernels/`, compiled behind the prelude into one cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import luminal_onnx.codegen.cuda
from luminal_onnx.runtime.cpu import HostKernel, compile_host

_KERNELS = Path(__file__).parent / "kernels"
_PRELUDE = (Path(luminal_onnx.codegen.cuda.__path__[0]) / "prelude.cuh").read_text()


@pytest.fixture(scope="session")
def host_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for compiled kernels that all tests of the session share."""
    return tmp_path_factory.mktemp("host")


@pytest.fixture(scope="session")
def prelude() -> str:
    return _PRELUDE


@pytest.fixture(scope="session")
def kernel_text() -> Callable[[str], str]:
    """The full text of a kernel file, given its name without ending (`faults/misaligned`)."""
    return lambda name: _PRELUDE + (_KERNELS / f"{name}.cu").read_text()


@pytest.fixture(scope="session")
def compile_file(host_cache: Path, kernel_text: Callable[[str], str]) -> Callable[..., HostKernel]:
    """Compile a kernel file; its kernel bears the file's name."""

    def compile_named(name: str, check: bool = False) -> HostKernel:
        return compile_host(kernel_text(name), name.split("/")[-1], check=check, cache_dir=host_cache)

    return compile_named
