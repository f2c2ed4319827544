"""What a session needs from a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..plan.records import Plan
from .binding import BoundPlan


class Backend(Protocol):
    """Runs bound plans of one artifact on one device. `run` may be called by several threads at once.

    `plans` has a plan for each bucket of the artifact, all for the same arch.
    """

    plans: tuple[Plan, ...]
    device: str

    def run(self, bound: BoundPlan, feeds: Sequence[np.ndarray], wanted: Sequence[int]) -> list[np.ndarray]:
        """Run once; `wanted` are positions of outputs."""
        ...

    def bind(self, bound: BoundPlan, feeds: Sequence[np.ndarray]) -> Any:
        """Return a run whose feeds lie on the device."""
        ...

    def memory_bytes(self) -> dict[str, int]:
        """Return bytes held, by use."""
        ...

    def report(self) -> dict[str, Any]:
        """Return counts of what is run."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...
