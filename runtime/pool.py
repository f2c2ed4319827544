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
    """The `limit` values used last, by key; `drop` is called with each value that leaves.

    With `weigh`, a weight from 0 on by key and value, the limit is of the sum of weights; the value used last always stays.
    """

    def __init__(
        self,
        limit: int,
        drop: Callable[[Thing], None] = lambda thing: None,
        weigh: Callable[[Key, Thing], int] = lambda key, thing: 1,
    ) -> None:
        self.limit = limit
        self._drop = drop
        self._weigh = weigh
        self._weight = 0
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
            if key not in self._values:
                self._values[key] = made
                self._weight += self._weigh(key, made)
            value = self._values[key]
            self._values.move_to_end(key)
            leaving = [made] if value is not made else []
            while self._weight > self.limit and len(self._values) > 1:
                old_key, old = self._values.popitem(last=False)
                self._weight -= self._weigh(old_key, old)
                leaving.append(old)
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
            self._weight = 0
        for value in values:
            self._drop(value)

    def __len__(self) -> int:
        return len(self._values)
