"""One set of kernel texts and weights for the plans of several buckets: what is equal is kept once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..plan.records import Plan
from .lowering import Lowered


@dataclass(frozen=True)
class Joined:
    """A plan for each bucket, the text of every kernel by its SHA-256, and the weights by the names in the plans."""

    plans: tuple[Plan, ...]
    sources: dict[str, str]
    weights: dict[str, np.ndarray]


def join(parts: Sequence[Lowered]) -> Joined:
    """Return the plans with names for weights that hold in all of them; weights of equal contents are one."""
    if len(parts) == 1:
        return Joined((parts[0].plan,), parts[0].sources, parts[0].weights)
    names: dict[tuple, str] = {}
    weights: dict[str, np.ndarray] = {}
    plans = []
    for part in parts:
        renamed = {}
        for name, array in part.weights.items():
            renamed[name] = names.setdefault(_content(array), f"w{len(names)}")
            weights.setdefault(renamed[name], array)
        buffers = tuple(
            replace(buffer, name=renamed[buffer.name]) if buffer.kind == "weight" else buffer
            for buffer in part.plan.buffers
        )
        plans.append(replace(part.plan, buffers=buffers))
    sources = {source: text for part in parts for source, text in part.sources.items()}
    return Joined(tuple(plans), sources, weights)


def _content(array: np.ndarray) -> tuple:
    return array.dtype, array.shape, hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).reshape(-1)).digest()
