"""What this machine has of what luminal-onnx needs: driver, GPUs, compilers, headers and Python packages."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

_NEEDED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)(?:;.*extra\s*==\s*['\"](\w+)['\"])?")
_ORDER = {"run": 0, "compile": 1, "gpu": 2, "test": 3}


def describe() -> dict[str, Any]:
    """Return what was found, what is required and, where something is amiss, a "problem" that says what to do.

    Never raises: whatever cannot be found out is told as such.
    """
    return {
        "luminal-onnx": _version("luminal-onnx"),
        "python": {"found": platform.python_version(), "required": ">=3.11"},
        "platform": platform.platform(),
        "driver": _told(_driver, "13.0 (driver 580 or newer)"),
        "gpus": _told(_gpus, "compute capability 8.0 or newer"),
        "nvrtc": _told(_nvrtc, "13.0"),
        "cublaslt": _told(_cublaslt, ">=13.1,<13.2"),
        "cuda_headers": _told(_headers, "13.0"),
        "c++": _told(_compiler, "g++ 11 or newer"),
        "cache": _told(_cache, "a folder of the user's own"),
        "packages": _packages(),
    }


def _told(find: Callable[[], Any], required: str) -> dict[str, Any]:
    try:
        found = find()
    except Exception as error:  # noqa: BLE001 - a report must not fail because of what it reports
        return {"found": None, "required": required, "problem": f"{error}" or type(error).__name__}
    return {"found": found, "required": required}


def _loaded_driver() -> Any:
    from .cuda_driver import bindings

    driver = bindings()
    try:
        driver.cuDriverGetVersion()
    except Exception as error:
        raise RuntimeError(f'no NVIDIA driver ({error}); install driver 580 or newer, or use device="cpu"') from error
    return driver


def _driver() -> str:
    status, version = _loaded_driver().cuDriverGetVersion()
    if int(status) != 0:
        raise RuntimeError(f"the driver does not tell its version ({status})")
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


def _gpus() -> list[dict[str, Any]]:
    driver = _loaded_driver()
    (status,) = driver.cuInit(0)
    if int(status) != 0:
        raise RuntimeError(f'no GPU ({getattr(status, "name", status)}); check nvidia-smi, or use device="cpu"')
    attribute = driver.CUdevice_attribute
    found = []
    for number in range(driver.cuDeviceGetCount()[1]):
        device = driver.cuDeviceGet(number)[1]
        major = driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)[1]
        minor = driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)[1]
        name = driver.cuDeviceGetName(256, device)[1].split(b"\0")[0].decode()
        total = driver.cuDeviceTotalMem(device)[1]
        found.append(
            {"device": f"cuda:{number}", "name": name, "arch": f"sm_{major}{minor}", "memory_bytes": int(total)}
        )
    return found


def _nvrtc() -> str:
    from cuda.bindings import nvrtc

    status, major, minor = nvrtc.nvrtcVersion()
    if int(status) != 0:
        raise RuntimeError(f"NVRTC failed: {status}")
    return f"{major}.{minor}"


def _cublaslt() -> str:
    if _version("nvmath-python") is None:
        raise RuntimeError("nvmath-python is not installed: pip install 'luminal-onnx[gpu]'")
    from cuda.pathfinder import load_nvidia_dynamic_lib

    try:
        library = load_nvidia_dynamic_lib("cublasLt")
    except Exception as error:
        raise RuntimeError("libcublasLt was not found: pip install 'luminal-onnx[gpu]'") from error
    return f"{_version('nvidia-cublas') or 'unknown version'} in {library.abs_path}"


def _headers() -> str:
    from .cpu.toolchain import cuda_include

    folder = Path(cuda_include()[0])
    wheel = _version("nvidia-cuda-runtime") if "nvidia" in folder.parts else None
    return f"{wheel} in {folder}" if wheel else str(folder)


def _compiler() -> str:
    from .cpu.toolchain import toolchain

    tools = toolchain()
    return f"{tools.compiler}: {tools.identity.splitlines()[0]}"


def _cache() -> str:
    from .cache import cache_dir

    return str(cache_dir())


def _packages() -> dict[str, dict[str, Any]]:
    """Every package that luminal-onnx names, with what it is for: run, or the extra that asks for it."""
    try:
        needed = metadata.requires("luminal-onnx") or []
    except Exception:  # noqa: BLE001 - it may run from a source tree that was never installed
        needed = []
    packages: dict[str, dict[str, Any]] = {}
    for line in needed:
        match = _NEEDED.match(line)
        if match is None or match[1] == "luminal-onnx":
            continue
        name, required, extra = match[1], match[2].strip(), match[3] or "run"
        packages[name] = {"found": _version(name), "required": required, "for": extra}
        if packages[name]["found"] is None:
            target = "luminal-onnx" if extra == "run" else f"luminal-onnx[{extra}]"
            packages[name]["problem"] = f"pip install '{target}'"
    return dict(sorted(packages.items(), key=lambda item: (_ORDER.get(item[1]["for"], 9), item[0])))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except Exception:  # noqa: BLE001 - broken metadata counts as not installed
        return None
