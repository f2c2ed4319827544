"""What this GPU reaches today: read, write and copy bandwidth, and the rates of large matrix products."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

ELEMENTS = 2**30


def measure_rates() -> dict[str, float]:
    """Return terabytes a second of reads, writes and copies, and tera-operations a second of matrix products."""
    torch.backends.cuda.matmul.allow_tf32 = False
    return {name: round(value, 2) for name, value in (bandwidths() | matrix_rates()).items()}


def bandwidths() -> dict[str, float]:
    values = torch.randn(ELEMENTS, device="cuda")
    other = torch.empty_like(values)
    return {
        "read_tbps": 4 * ELEMENTS / milliseconds(reader(values)) / 1e9,
        "copy_tbps": 8 * ELEMENTS / milliseconds(lambda: other.copy_(values)) / 1e9,
        "write_tbps": 4 * ELEMENTS / milliseconds(lambda: values.fill_(1.0)) / 1e9,
    }


def matrix_rates(size: int = 8192) -> dict[str, float]:
    found = {}
    for dtype in (torch.float16, torch.float32):
        a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
        rate = 2 * size**3 / milliseconds(lambda a=a, b=b: a @ b, 8) / 1e9
        found[f"{str(dtype).removeprefix('torch.')}_tflops"] = rate
    return found


def reader(values: torch.Tensor) -> Callable[[], object]:
    """Return a callable that reads all of `values` once."""
    try:
        from benchmarks.read_kernel import read

        run = read(values)
        run()
    except Exception:  # no Triton, or one that cannot compile here: torch's own sum comes close
        return values.sum
    return run


def milliseconds(run: Callable[[], object], count: int = 15) -> float:
    """Return the median time of a callable that runs for long, by events."""
    times = []
    for number in range(count + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        if number >= 3:
            times.append(begin.elapsed_time(end))
    return median(times)


def machine() -> dict[str, str]:
    """Return the GPU, the driver and the versions that results depend on."""
    import importlib.metadata
    import subprocess

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = (
            subprocess.run(query, check=True, capture_output=True, text=True, timeout=20).stdout.strip().splitlines()[0]
        )
    except (OSError, IndexError, subprocess.SubprocessError):
        driver = "unknown"
    found = {"gpu": torch.cuda.get_device_name(), "driver": driver, "cuda": str(torch.version.cuda)}
    for package in (
        "torch",
        "triton",
        "transformers",
        "torchvision",
        "onnx",
        "nvmath-python",
        "cuda-bindings",
        "egglog",
    ):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
