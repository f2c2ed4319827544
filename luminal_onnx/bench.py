"""Time one artifact on the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import median
from typing import Any

import numpy as np

from luminal_onnx.runtime.session import InferenceSession

PERCENTILES = (90, 95, 99)


def bench(
    session: InferenceSession,
    feeds: Mapping[str, np.ndarray],
    iterations: int = 100,
    warmup_seconds: float = 0.2,
    profiled: bool = False,
) -> dict[str, Any]:
    """Return latencies in milliseconds and runs a second, with the inputs on the device and no copies of outputs.

    The latency of a run is the time between events before and after it; the throughput is that of `iterations` runs in
    a row. With `profiled` the result also has the table of `profile.profile`.
    """
    with session.bind(dict(feeds)) as bound:
        times = bound.run_times(iterations, warmup_seconds)
        in_a_row = bound.time_replay(iterations, 3)
        found: dict[str, Any] = {
            "device": session.report().get("gpu", session.device),
            "dims": dict(bound.bound_plan.dims),
            "iterations": iterations,
            "latency_ms": summary([seconds * 1e3 for seconds in times]),
            "in_a_row_ms": in_a_row * 1e3,
            "throughput_per_s": 1.0 / in_a_row,
            "launches": len(bound.launches),
            "read_backs": bound.read_backs,
            "graphs": bound.graphs,
            "memory": session.memory_bytes(),
        }
        if profiled:
            from luminal_onnx.profile import profile, rates_of

            plan = bound.bound_plan
            found["profile"] = profile(plan, bound.time_steps(), rates_of(plan.plan.arch), in_a_row)
    return found


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return the least, median, mean, greatest and some percentiles: p90 is what 90 % of the values do not exceed."""
    ordered = sorted(values)
    shares = {f"p{share}": ordered[ceil(share / 100 * len(ordered)) - 1] for share in PERCENTILES}
    mean = sum(ordered) / len(ordered)
    return {"min": ordered[0], "median": median(ordered), "mean": mean, **shares, "max": ordered[-1]}


def format_bench(found: Mapping[str, Any]) -> str:
    """Return the result as text."""
    latency = ", ".join(f"{name} {value:.4f}" for name, value in found["latency_ms"].items())
    dims = ", ".join(f"{name}={value}" for name, value in found["dims"].items())
    return "\n".join(
        [
            f"device      {found['device']}" + (f", {dims}" if dims else ""),
            f"latency     {latency} ms ({found['iterations']} runs)",
            f"in a row    {found['in_a_row_ms']:.4f} ms a run, {found['throughput_per_s']:.1f} runs a second",
            f"launches    {found['launches']} {_how(found)}",
            f"memory      {found['memory']['total'] / 2**20:.1f} MiB on the device",
        ]
    )


def _how(found: Mapping[str, Any]) -> str:
    graphs, read_backs = found["graphs"], found["read_backs"]
    text = "in one CUDA graph" if graphs == 1 else f"with {graphs} CUDA graphs"
    return text + (f", {read_backs} scalars read back to decide what comes next" if read_backs else "")
