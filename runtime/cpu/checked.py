"""Buffers of a checked launch: each is moved into memory of its own, so that running over its end hits no neighbour."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...plan.errors import InvalidInput

_GUARD = 64 << 10
_ALIGNMENT = 256
_POISON = np.uint16(0x7FFF)  # NaN in every float format


@dataclass(frozen=True)
class CheckedBuffer:
    """Memory that a checked kernel may use.

    Not `initialised`: bytes must be written before they are read. `fully_written`: the launch must write every byte.
    The array is C-contiguous. Threads that share an element of it (up to 4 bytes) count as racing.
    """

    name: str
    array: np.ndarray
    initialised: bool = True
    read_only: bool = False
    fully_written: bool = False


@dataclass
class Region:
    """One guarded copy; arrays that overlap share one."""

    name: str
    start: int
    end: int
    granule: int
    initialised: bool
    read_only: bool
    must_start: int  # from here to `must_end` every byte must be written
    must_end: int
    address: int = 0

    @property
    def bytes(self) -> int:
        return self.end - self.start


class GuardedCopies:
    """Copies of the buffers between wide guards. Addresses keep their alignment."""

    def __init__(self, buffers: Sequence[CheckedBuffer]) -> None:
        self._arrays = [buffer.array for buffer in buffers if not buffer.read_only]
        self.regions = _merge([_region(buffer) for buffer in buffers if buffer.array.nbytes])
        self._storage = [_copy_in(region, buffers) for region in self.regions]

    def translate(self, address: int) -> int:
        """Return where the copy of the byte at `address` is; an address outside all buffers stays as it is."""
        for region in self.regions:
            if region.start <= address < region.end:
                return region.address + address - region.start
        return address

    def copy_back(self) -> None:
        """Write the results into the arrays that are not read-only."""
        for array in self._arrays:
            if array.nbytes:
                copy = _memory(self.translate(array.ctypes.data), array.nbytes)
                _bytes_of(array)[:] = copy


def _region(buffer: CheckedBuffer) -> Region:
    array = buffer.array
    if not array.flags.c_contiguous:
        raise InvalidInput(f"checked buffer {buffer.name!r} is not C-contiguous")
    granule = {1: 1, 2: 2}.get(array.itemsize, 4)
    start = array.ctypes.data
    end = start + array.nbytes
    must = (start, end) if buffer.fully_written else (start, start)
    return Region(buffer.name, start, end, granule, buffer.initialised, buffer.read_only, *must)


def _merge(regions: list[Region]) -> list[Region]:
    merged: list[Region] = []
    for region in sorted(regions, key=lambda region: region.start):
        last = merged[-1] if merged else None
        if last is None or region.start >= last.end:
            merged.append(region)
            continue
        if region.name not in last.name.split(" = "):
            last.name = f"{last.name} = {region.name}"
        last.end = max(last.end, region.end)
        last.granule = min(last.granule, region.granule)
        last.initialised |= region.initialised
        last.read_only &= region.read_only
        if last.must_start == last.must_end:
            last.must_start, last.must_end = region.must_start, region.must_end
        elif region.must_start < region.must_end:
            last.must_end = max(last.must_end, region.must_end)
    return merged


def _copy_in(region: Region, buffers: Sequence[CheckedBuffer]) -> np.ndarray:
    storage = np.empty(region.bytes + 2 * _GUARD + 2 * _ALIGNMENT, np.uint8)
    base = storage.ctypes.data + _GUARD
    offset = _GUARD + (region.start - base) % _ALIGNMENT
    region.address = storage.ctypes.data + offset
    content = storage[offset : offset + region.bytes]
    content[: region.bytes // 2 * 2].view(np.uint8).reshape(-1, 2)[:] = np.array([_POISON]).view(np.uint8)
    for buffer in buffers:
        start = buffer.array.ctypes.data
        if buffer.initialised and region.start <= start < region.end and buffer.array.nbytes:
            content[start - region.start : start - region.start + buffer.array.nbytes] = _bytes_of(buffer.array)
    return storage


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _memory(address: int, count: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_uint8 * count).from_address(address), np.uint8)
