"""Two small containers that threads share: a pool of contexts, and a cache of bounded size."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Thing = TypeVar("Thing")
Key = TypeVar("Key", bound=Hashable)


class Pool(Generic[Thing]):
    """Things that only one thread may use at a time; there are never more than threads that used one at once."""

    def __init__(self, make: Callable[[], Thing]) -> None:
        self._make = make
        self._free: list[Thing] = []
        self._all: list[Thing] = []
        self._lock = threading.Lock()

    @contextmanager
    def lease(self) -> Iterator[Thing]:
        """Lend a thing that nobody uses, the one given back last if there are several, until the block ends."""
        thing = self.take()
        try:
            yield thing
        finally:
            self.give_back(thing)

    def take(self) -> Thing:
        with self._lock:
            if self._free:
                return self._free.pop()
        thing = self._make()
        with self._lock:
            self._all.append(thing)
        return thing

    def give_back(self, thing: Thing) -> None:
        with self._lock:
            self._free.append(thing)

    def everything(self) -> list[Thing]:
        """Return every thing made so far, lent or not."""
        with self._lock:
            return list(self._all)

    def clear(self) -> list[Thing]:
        """Forget every thing, and return them."""
        with self._lock:
            things, self._all, self._free = self._all, [], []
        return things


class BoundedCache(Generic[Key, Thing]):
    """The `limit` values used last, by key; `drop` is called with each value that leaves."""

    def __init__(self, limit: int, drop: Callable[[Thing], None] = lambda thing: None) -> None:
        self.limit = limit
        self._drop = drop
        self._values: OrderedDict[Key, Thing] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key, make: Callable[[], Thing]) -> Thing:
        """Return the value under `key`, made first if it is not there. Two threads may make it at once; one wins."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        with self._lock:
            value = self._values.setdefault(key, made)
            self._values.move_to_end(key)
            leaving = [made] if value is not made else []
            while len(self._values) > self.limit:
                leaving.append(self._values.popitem(last=False)[1])
        for old in leaving:
            self._drop(old)
        return value

    def values(self) -> list[Thing]:
        """Return every value, the one that was used last at the end."""
        with self._lock:
            return list(self._values.values())

    def clear(self) -> None:
        """Drop every value."""
        with self._lock:
            values = list(self._values.values())
            self._values.clear()
        for value in values:
            self._drop(value)

    def __len__(self) -> int:
        return len(self._values)
