"""Buckets: taking one away, telling a partition from what has a gap or an overlap, finding where sizes lie."""

from __future__ import annotations

import random
from itertools import product

import pytest
from luminal_onnx.plan.buckets import (
    bucket_of,
    clipped,
    cover_problem,
    describe,
    disjoint,
    grid,
    halves,
    hull,
    without,
)
from luminal_onnx.plan.dims import Range

WHOLE = {"batch": Range(1, 2, 9), "length": Range(0, 3, 7)}


def box(batch, length):
    return {name: Range(low, low, high) for name, (low, high) in (("batch", batch), ("length", length))}


def points(bucket):
    return set(product(*(range(known.min, known.max + 1) for known in bucket.values())))


def random_partition(generator, pieces):
    """Cut the whole range at random places."""
    buckets = [dict(WHOLE)]
    while len(buckets) < pieces:
        bucket = buckets.pop(generator.randrange(len(buckets)))
        wide = [name for name, known in bucket.items() if known.min < known.max]
        if wide:
            name = generator.choice(wide)
            buckets.extend(halves(bucket, name, generator.randint(bucket[name].min + 1, bucket[name].max)))
        else:
            buckets.append(bucket)
    generator.shuffle(buckets)
    return buckets


@pytest.mark.parametrize("seed", range(20))
def test_a_partition_is_one_and_with_a_piece_changed_it_is_not(seed):
    generator = random.Random(seed)
    buckets = random_partition(generator, 1 + seed % 9)
    assert cover_problem(WHOLE, buckets) is None
    for sizes in points(WHOLE):
        found = [number for number, bucket in enumerate(buckets) if sizes in points(bucket)]
        assert [bucket_of(dict(zip(WHOLE, sizes)), buckets)] == found
    victim = generator.randrange(len(buckets))
    rest = buckets[:victim] + buckets[victim + 1 :]
    assert "no bucket holds" in cover_problem(WHOLE, rest)
    assert "two buckets hold" in cover_problem(WHOLE, [*buckets, buckets[victim]])


def test_one_size_that_is_missing_or_held_twice_is_found_and_named():
    good = [box((1, 1), (0, 7)), box((2, 9), (0, 4)), box((2, 9), (5, 7))]
    assert cover_problem(WHOLE, good) is None
    assert cover_problem(WHOLE, [good[0], box((2, 9), (0, 3)), good[2]]) == "no bucket holds batch 2..9, length 4"
    assert cover_problem(WHOLE, [*good[:2], box((2, 9), (4, 7))]) == "two buckets hold batch 2..9, length 4"
    assert "out of range" in cover_problem(WHOLE, [*good[:2], box((2, 9), (5, 8))])
    assert "bounds batch, the range batch, length" in cover_problem(WHOLE, [{"batch": WHOLE["batch"]}])
    assert "no bucket holds" in cover_problem(WHOLE, [])
    assert cover_problem({}, [{}]) is None and "two buckets" in cover_problem({}, [{}, {}])


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_without_a_box_is_exact(seed):
    generator = random.Random(seed)

    def some_box():
        ends = [sorted(generator.sample(range(10), 2)) for _ in range(2)]
        return box(*ends)

    bucket, hole = some_box(), some_box()
    left = without(bucket, hole)
    assert sum(len(points(piece)) for piece in left) == len(points(bucket) - points(hole))
    assert set().union(*map(points, left)) == points(bucket) - points(hole)
    shared = clipped(bucket, hole)
    assert (points(shared) if shared else set()) == points(bucket) & points(hole)
    boxes = [some_box() for _ in range(4)]
    apart = disjoint(boxes)
    assert sum(map(len, map(points, apart))) == len(set().union(*map(points, boxes)))
    assert set().union(*map(points, apart)) == set().union(*map(points, boxes))


def test_opts_stay_inside_and_the_largest_bucket_gives_the_hulls():
    below, above = halves(WHOLE, "batch", 5)
    assert (below["batch"], above["batch"]) == (Range(1, 2, 4), Range(5, 5, 9))
    assert hull([below, above])["batch"] == Range(1, 5, 9)
    assert hull([box((1, 1), (0, 7)), WHOLE]) == WHOLE
    cells = grid({"batch": [Range(1, 1, 1), Range(2, 8, 9)], "length": [Range(0, 3, 7)]})
    assert cover_problem(WHOLE, cells) is None
    assert describe(cells[0]) == "batch 1, length 0..7"
