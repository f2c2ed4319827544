"""Buckets: the boxes that a compiled range is cut into, each with a plan of its own.

A bucket gives every symbol a range. The buckets of a model do not meet, and together they are its whole range:
`cover_problem` proves it, by taking one bucket after another away until nothing is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from .dim_bounds import Range, Ranges

Bucket = Mapping[str, Range]

MOST_BUCKETS = 16


def bucket_of(dims: Mapping[str, int], buckets: Sequence[Bucket]) -> int | None:
    """Return the number of the bucket that these sizes lie in, None if they lie in none."""
    for number, bucket in enumerate(buckets):
        if all(known.min <= dims[name] <= known.max for name, known in bucket.items()):
            return number
    return None


def clipped(bucket: Bucket, limits: Ranges) -> dict[str, Range] | None:
    """Return the part of a bucket that lies within limits, its opts moved into it; None if there is none."""
    inside = dict(bucket)
    for name, limit in limits.items():
        known = bucket[name]
        low, high = max(known.min, limit.min), min(known.max, limit.max)
        if low > high:
            return None
        inside[name] = Range(low, min(max(known.opt, low), high), high)
    return inside


def halves(bucket: Bucket, name: str, value: int) -> tuple[dict[str, Range], dict[str, Range]]:
    """Return the part of a bucket where a symbol is less than `value`, and the rest; neither may be empty."""
    known = bucket[name]
    below = Range(known.min, min(known.opt, value - 1), value - 1)
    return {**bucket, name: below}, {**bucket, name: Range(value, max(known.opt, value), known.max)}


def without(bucket: Bucket, hole: Bucket) -> list[dict[str, Range]]:
    """Return boxes that do not meet and together are what is left of a bucket where it lies outside of `hole`."""
    if clipped(bucket, hole) is None:
        return [dict(bucket)]
    rest, left = dict(bucket), []
    for name, known in hole.items():
        if rest[name].min < known.min:
            below, rest = halves(rest, name, known.min)
            left.append(below)
        if rest[name].max > known.max:
            rest, above = halves(rest, name, known.max + 1)
            left.append(above)
    return left


def cover_problem(whole: Ranges, buckets: Sequence[Bucket]) -> str | None:
    """Return None if the buckets are a partition of the whole range, else what keeps them from being one."""
    for bucket in buckets:
        if set(bucket) != set(whole):
            return f"a bucket bounds {', '.join(sorted(bucket)) or 'nothing'}, the range {', '.join(sorted(whole))}"
        outside = without(bucket, whole)
        if outside:
            return f"a bucket holds {describe(outside[0])}, which is out of range"
    for number, bucket in enumerate(buckets):
        for other in buckets[:number]:
            shared = clipped(bucket, other)
            if shared is not None:
                return f"two buckets hold {describe(shared)}"
    left = [dict(whole)]
    for bucket in buckets:
        left = [piece for box in left for piece in without(box, bucket)]
    return f"no bucket holds {describe(left[0])}" if left else None


def hull(buckets: Sequence[Bucket]) -> dict[str, Range]:
    """Return the least box that holds all buckets; each opt is that of the bucket with the most sizes, the last of several."""
    widest = max(reversed(buckets), key=sizes_in)
    return {
        name: Range(min(b[name].min for b in buckets), widest[name].opt, max(b[name].max for b in buckets))
        for name in buckets[0]
    }


def disjoint(buckets: Iterable[Bucket]) -> list[dict[str, Range]]:
    """Return boxes that do not meet and together hold what the buckets do; where some meet, the first keeps its sizes."""
    kept: list[dict[str, Range]] = []
    for bucket in buckets:
        pieces = [dict(bucket)]
        for earlier in kept:
            pieces = [rest for piece in pieces for rest in without(piece, earlier)]
        kept += pieces
    return kept


def grid(parts: Mapping[str, Sequence[Range]]) -> list[dict[str, Range]]:
    """Return a bucket for every choice of one part for each symbol."""
    return [dict(zip(parts, choice)) for choice in product(*parts.values())]


def sizes_in(bucket: Bucket) -> int:
    """Return how many combinations of sizes a bucket holds."""
    count = 1
    for known in bucket.values():
        count *= known.max - known.min + 1
    return count


def moved_to(bucket: Bucket, opt: Mapping[str, int]) -> dict[str, Range]:
    """Return the bucket with the opts that lie nearest to these."""
    return {
        name: replace(known, opt=min(max(opt.get(name, known.opt), known.min), known.max))
        for name, known in bucket.items()
    }


def describe(bucket: Bucket) -> str:
    """Return the sizes of a bucket as text: `batch 2..8, sequence 1`."""
    return ", ".join(
        f"{name} {known.min}" if known.min == known.max else f"{name} {known.min}..{known.max}"
        for name, known in bucket.items()
    )
