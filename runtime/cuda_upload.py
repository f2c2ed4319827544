"""Copies the weights to a GPU."""

from __future__ import annotations

import ctypes

import numpy as np

from .cuda_driver import Driver, destroy_quietly

CHUNK_BYTES = 16 << 20


class Uploader:
    """Copies arrays to the device through two pinned buffers: one is filled while the other is sent."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._stream = driver.call("cuStreamCreate", 1)
        self._events = [driver.call("cuEventCreate", 2) for _ in range(2)]  # without timing
        self._buffers = [int(driver.call("cuMemHostAlloc", CHUNK_BYTES, 0)) for _ in range(2)]
        self._views = [
            np.frombuffer((ctypes.c_uint8 * CHUNK_BYTES).from_address(buffer), np.uint8) for buffer in self._buffers
        ]
        self._turn = 0
        self._fill = 0  # bytes of the present buffer that are taken
        self._waits = [False, False]

    def copy(self, address: int, data: np.ndarray) -> None:
        """Enqueue a copy of `data`, whose bytes are read before this returns."""
        for begin in range(0, data.nbytes, CHUNK_BYTES):
            piece = data[begin : begin + CHUNK_BYTES]
            if self._fill + piece.nbytes > CHUNK_BYTES:
                self._next_buffer()
            if self._fill == 0 and self._waits[self._turn]:
                self._driver.call("cuEventSynchronize", self._events[self._turn])
            place = self._fill
            self._views[self._turn][place : place + piece.nbytes] = piece
            source = self._buffers[self._turn] + place
            self._driver.call("cuMemcpyHtoDAsync", address + begin, source, piece.nbytes, self._stream)
            self._fill += piece.nbytes

    def _next_buffer(self) -> None:
        self._driver.call("cuEventRecord", self._events[self._turn], self._stream)
        self._waits[self._turn] = True
        self._turn = 1 - self._turn
        self._fill = 0

    def finish(self) -> None:
        """Wait until every copy is done."""
        self._driver.call("cuStreamSynchronize", self._stream)

    def close(self) -> None:
        destroy_quietly(self.finish)
        for event in self._events:
            destroy_quietly(lambda event=event: self._driver.call("cuEventDestroy", event))
        for buffer in self._buffers:
            destroy_quietly(lambda buffer=buffer: self._driver.call("cuMemFreeHost", buffer))
        destroy_quietly(lambda: self._driver.call("cuStreamDestroy", self._stream))
