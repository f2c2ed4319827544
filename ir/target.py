"""What a GPU can do, in the few numbers that the cost model needs."""

from __future__ import annotations

from dataclasses import dataclass

from ..plan.dtypes import DType, bfloat16, float16, float64
from ..plan.errors import InvalidInput


@dataclass(frozen=True)
class Target:
    """Rates of one architecture: bytes and floating-point operations a second that well-made kernels reach.

    `launch` is the time of a kernel that does nothing, inside a CUDA graph; `library` the least time of a library call.
    `half_flops` is for float16 and bfloat16 on tensor cores, `f32_flops` and `f64_flops` without them.
    """

    name: str
    bandwidth: float
    cache_bandwidth: float
    cache_bytes: float
    f32_flops: float
    f64_flops: float
    half_flops: float
    multiprocessors: int
    launch: float
    library: float
    memory: float

    def library_flops(self, dtype: DType) -> float:
        if dtype in (float16, bfloat16):
            return self.half_flops
        return self.f64_flops if dtype is float64 else self.f32_flops

    def scalar_flops(self, dtype: DType) -> float:
        """Without tensor cores; 16-bit floats are computed in float32."""
        return self.f64_flops / 2 if dtype is float64 else self.f32_flops


TARGETS = {
    target.name: target
    for target in (
        Target("sm_80", 1.75e12, 2.2e12, 40e6, 19e12, 9.5e12, 260e12, 108, 1.3e-6, 3.5e-6, 80e9),
        Target("sm_90", 4.5e12, 4.5e12, 50e6, 50e12, 30e12, 760e12, 132, 0.9e-6, 2.8e-6, 140e9),
        Target("sm_100", 7.2e12, 8e12, 120e6, 75e12, 37e12, 1600e12, 148, 0.9e-6, 2.6e-6, 180e9),
    )
}


def target(name: str) -> Target:
    """Return the target of that name; variants such as `sm_90a` are judged as their base."""
    base = name.rstrip("af")
    if base not in TARGETS:
        raise InvalidInput(f"no rates are known for the architecture {name!r}; known: {', '.join(TARGETS)}")
    return TARGETS[base]
