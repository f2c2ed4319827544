"""The memory plan: where in one arena each temporary buffer lives, so that buffers never needed together share bytes."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

ALIGNMENT = 256


@dataclass(frozen=True)
class MemoryPlan:
    """`offsets` by buffer, the arena's size, and the most bytes that are alive at one step: no plan can be smaller."""

    offsets: Mapping[int, int]
    peak_bytes: int
    lower_bound: int


def plan_memory(
    sizes: Mapping[int, int], lifetimes: Mapping[int, tuple[int, int]], alignment: int = ALIGNMENT
) -> MemoryPlan:
    """Give each buffer an offset that is a multiple of `alignment`.

    `sizes` are bytes; a lifetime is (first step, last step), both included: two buffers whose lifetimes share a step never
    overlap. Of two orders of placing, by time and by size, the one with the smaller peak is taken; equal arguments give
    equal plans.
    """
    rounded = {buffer: padded(size, alignment) for buffer, size in sizes.items() if size > 0}
    bound = _lower_bound(rounded, lifetimes)
    offsets, peak = _by_time(rounded, lifetimes)
    if peak > bound:
        other, other_peak = _by_size(rounded, lifetimes)
        if other_peak < peak:
            offsets, peak = other, other_peak
    return MemoryPlan({buffer: offsets.get(buffer, 0) for buffer in sizes}, peak, bound)


def padded(size: int, alignment: int = ALIGNMENT) -> int:
    """Return the least multiple of `alignment` that is at least `size`."""
    return -(-size // alignment) * alignment


def _lower_bound(sizes: Mapping[int, int], lifetimes: Mapping[int, tuple[int, int]]) -> int:
    changes: dict[int, int] = {}
    for buffer, size in sizes.items():
        first, last = lifetimes[buffer]
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    alive = most = 0
    for step in sorted(changes):
        alive += changes[step]
        most = max(most, alive)
    return most


def _by_time(sizes: Mapping[int, int], lifetimes: Mapping[int, tuple[int, int]]) -> tuple[dict[int, int], int]:
    """Place buffers in the order of their first step, each into the smallest hole that fits, else at the top."""
    holes: list[tuple[int, int]] = []  # (offset, size), sorted, never adjacent
    top = peak = 0
    offsets: dict[int, int] = {}
    expiring: list[tuple[int, int]] = []  # (last step, buffer)
    for buffer in sorted(sizes, key=lambda b: (lifetimes[b][0], -sizes[b], b)):
        first, last = lifetimes[buffer]
        while expiring and expiring[0][0] < first:
            _, dead = heappop(expiring)
            top = _free(holes, offsets[dead], sizes[dead], top)
        size = sizes[buffer]
        fitting = [(hole[1], hole[0]) for hole in holes if hole[1] >= size]
        if fitting:
            hole_size, offset = min(fitting)
            holes.remove((offset, hole_size))
            if hole_size > size:
                insort(holes, (offset + size, hole_size - size))
        else:
            offset, top = top, top + size
        offsets[buffer] = offset
        peak = max(peak, top)
        heappush(expiring, (last, buffer))
    return offsets, peak


def _free(holes: list[tuple[int, int]], offset: int, size: int, top: int) -> int:
    """Add a hole, merged with its neighbours; a hole at the top lowers the top, which is returned."""
    for hole in list(holes):
        if hole[0] + hole[1] == offset:
            holes.remove(hole)
            offset, size = hole[0], size + hole[1]
        elif hole[0] == offset + size:
            holes.remove(hole)
            size += hole[1]
    if offset + size == top:
        return offset
    insort(holes, (offset, size))
    return top


def _by_size(sizes: Mapping[int, int], lifetimes: Mapping[int, tuple[int, int]]) -> tuple[dict[int, int], int]:
    """Place the largest buffers first, each into the smallest gap between those alive at the same time."""
    placed: list[tuple[int, int, int, int]] = []  # (offset, end, first, last), sorted by offset
    offsets: dict[int, int] = {}
    peak = 0
    for buffer in sorted(sizes, key=lambda b: (-sizes[b], lifetimes[b], b)):
        first, last = lifetimes[buffer]
        size = sizes[buffer]
        free = 0  # where the space after everything met so far begins
        best = None
        best_gap = 0
        for offset, end, other_first, other_last in placed:
            if other_first > last or other_last < first:
                continue
            gap = offset - free
            if gap >= size and (best is None or gap < best_gap):
                best, best_gap = free, gap
            free = max(free, end)
        if best is None:
            best = free
        offsets[buffer] = best
        insort(placed, (best, best + size, first, last))
        peak = max(peak, best + size)
    return offsets, peak
