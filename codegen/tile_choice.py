"""Which tile a matrix product gets, and into how many runs its terms are split: a small model of one GPU's latencies.

Only speed depends on it. The numbers are an H200's, rounded; other GPUs rank tiles much the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..plan.dims import Dim, Ranges, evaluate, symbols

MULTIPROCESSORS = 132
STEP_LATENCY = 0.5e-6  # seconds from asking memory for a small slice to having multiplied it
FETCH_BANDWIDTH = 70e9  # bytes a second that one multiprocessor gets from the cache
RESIDENT = 3  # blocks of a multiprocessor that wait for memory at the same time
FINISH = 2.5e-6  # a further kernel, launched in a graph
CACHE_BANDWIDTH = 4e12
PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
LEAST_TERMS = 192  # of one part


class AnyTile(Protocol):
    """What the model needs to know of a tile: its extents and the share of the peak rate that it can reach."""

    m: int
    n: int
    k: int
    efficiency: float


@dataclass(frozen=True)
class Size:
    """A batched product's extents."""

    batch: int
    m: int
    n: int
    k: int

    def split(self, parts: int) -> Size:
        return Size(self.batch * parts, self.m, self.n, -(-self.k // parts))


@dataclass(frozen=True)
class Arithmetic:
    """What computes: operations a second of one multiprocessor, and bytes of a factor's element in shared memory."""

    rate: float
    element_bytes: int


def seconds(tile: AnyTile, size: Size, arithmetic: Arithmetic) -> float:
    """Estimate the kernel's time."""
    blocks = -(-size.m // tile.m) * -(-size.n // tile.n) * size.batch
    rounds = -(-blocks // MULTIPROCESSORS)
    steps = max(1, -(-size.k // tile.k))
    work = 2.0 * tile.m * tile.n * tile.k / (arithmetic.rate * tile.efficiency)
    fetch = (tile.m + tile.n) * tile.k * arithmetic.element_bytes / FETCH_BANDWIDTH
    waiting = math.ceil(rounds / RESIDENT) * STEP_LATENCY + fetch
    return (steps + 1) * max(rounds * work, rounds * fetch, waiting)


def choose_tile(tiles: Sequence[AnyTile], size: Size, arithmetic: Arithmetic) -> AnyTile:
    """Return the tile with the least estimated time; the first of equals."""
    return min(tiles, key=lambda tile: seconds(tile, size, arithmetic))


def choose_parts(tiles: Sequence[AnyTile], size: Size, arithmetic: Arithmetic, divisor: int) -> int:
    """Return into how many parts, a divisor of `divisor`, the terms should be split; 1 for not at all."""

    def total(parts: int) -> float:
        piece = size.split(parts)
        time = seconds(choose_tile(tiles, piece, arithmetic), piece, arithmetic)
        if parts == 1:
            return time
        return time + FINISH + 8.0 * piece.batch * size.m * size.n / CACHE_BANDWIDTH

    fitting = [parts for parts in PARTS if divisor % parts == 0 and (parts == 1 or size.k >= parts * LEAST_TERMS)]
    return min(fitting, key=total)


def typical(size: Dim, ranges: Ranges | None) -> int:
    """Return a size at the dims' usual values, 1024 for each dim that has no range; at least 1."""
    known = {name: ranges[name].opt if ranges and name in ranges else 1024 for name in symbols(size)}
    return max(1, evaluate(size, known))
