"""The cache of bounded size: what was used last stays, by number or by weight."""

from __future__ import annotations

from luminal_onnx.runtime.pool import BoundedCache


def test_what_was_used_last_stays():
    dropped: list[str] = []
    cache: BoundedCache[int, str] = BoundedCache(2, dropped.append)
    for key in (1, 2, 1, 3):
        assert cache.get(key, lambda key=key: f"made {key}") == f"made {key}"
    assert dropped == ["made 2"] and cache.values() == ["made 1", "made 3"]
    assert cache.get(2, lambda: "again") == "again" and dropped == ["made 2", "made 1"]
    cache.clear()
    assert len(cache) == 0 and dropped == ["made 2", "made 1", "made 3", "again"]


def test_a_weighed_cache_holds_as_much_as_the_limit_and_always_the_last():
    dropped: list[int] = []
    cache: BoundedCache[int, int] = BoundedCache(10, dropped.append, weigh=lambda key, value: value)
    for key, weight in enumerate((4, 4, 2, 5)):
        cache.get(key, lambda weight=weight: weight)
    assert cache.values() == [2, 5] and dropped == [4, 4]
    cache.get(9, lambda: 50)
    assert cache.values() == [50]
    cache.get(10, lambda: 1)
    assert cache.values() == [1] and dropped == [4, 4, 2, 5, 50]
    cache.clear()
    for key in range(5):
        cache.get(key, lambda: 2)
    assert len(cache) == 5
