"""Our side: compile the exported model, and run the artifact with its inputs on the device."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

ARCH = "sm_90"


def compile_model(onnx: Path, artifact: Path, arch: str = ARCH) -> dict[str, Any]:
    """Write the artifact and return the seconds of each phase, counts of kernels, and what the compiler warns of."""
    import luminal_onnx

    started = time.perf_counter()
    compiled = luminal_onnx.compile(onnx, verify=False, arches=[arch])
    seconds = time.perf_counter() - started
    compiled.save(artifact)
    manifest = compiled.manifest
    return {
        "seconds": round(seconds, 2),
        "phases": manifest["seconds"],
        "estimate_ms": manifest["search"]["estimate_us"] / 1e3,
        "statistics": manifest["statistics"],
        "warnings": manifest["warnings"],
    }


class Ours:
    """An artifact bound to one set of inputs."""

    def __init__(self, artifact: Path, feeds: dict[str, np.ndarray]) -> None:
        from luminal_onnx import InferenceSession

        self.session = InferenceSession(str(artifact))
        self.bound = self.session.bind(feeds)

    def sample(self, count: int) -> float:
        """Return the mean milliseconds of `count` replays in a row, by events."""
        return self.bound.time_replay(count, 1) * 1e3

    def outputs(self) -> list[np.ndarray]:
        self.bound.launch()
        return [np.asarray(value, np.float32) for value in self.bound.outputs()]
