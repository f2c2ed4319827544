"""The table of one row's kernels: each one's time, bytes and operations, and which ONNX nodes it covers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.models import build
from benchmarks.ours import Ours
from benchmarks.rows import Row


def profile(
    row: Row, artifact: Path, rates: Mapping[str, float], cold: bool, save: Callable[[dict[str, Any]], None]
) -> None:
    """Measure every step of our artifact on the row's inputs."""
    from luminal_onnx.profile import Rates, format_profile, rates_of
    from luminal_onnx.profile import profile as tabulate

    workload = build(row)
    contender = Ours(artifact, {name: value.numpy() for name, value in workload.inputs.items()})
    bound = contender.bound
    run_seconds = min(bound.time_replay(30, 10) for _ in range(3))
    steps = bound.time_steps(cold)
    usual = rates_of(bound.bound_plan.plan.arch)
    measured = Rates(
        rates["read_tbps"] * 1e12, rates["float16_tflops"] * 1e12, rates["float32_tflops"] * 1e12, usual.f64_flops
    )
    found = tabulate(bound.bound_plan, steps, measured, run_seconds)
    save({**found, "cold": cold, "text": format_profile(found)})
