"""Choosing among overlapping boxes: NonMaxSuppression."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.graph import Value
from ...plan.dims import Dim, index_symbol, product
from ...plan.dtypes import int64
from ..context import NodeBuilder
from ..registry import onnx_op
from ..selection import places_of

MOST_TRIPS = 64


@onnx_op("NonMaxSuppression", 10, 11)
def non_max_suppression(
    b: NodeBuilder,
    boxes: Value,
    scores: Value,
    most: Value | None = None,
    iou_threshold: Value | None = None,
    score_threshold: Value | None = None,
    *,
    center_point_box: int,
) -> Value:
    """Of each class of each batch, pick the best box, drop those that overlap it by more than the threshold, and go on.

    Each trip picks one box of every class. Of equal scores the first counts as better, as in onnxruntime; a score that is
    NaN is never picked.
    """
    batch, classes, count = scores.shape
    alive = b.b("equal", scores, scores)
    if score_threshold is not None:
        alive = b.b("and", alive, b.b("greater", scores, b.reshape(score_threshold, ())))
    threshold = b.scalar(0, boxes.dtype) if iou_threshold is None else b.reshape(iou_threshold, ())
    trips = _trips(b, most, count)
    if type(trips) is not int or trips > MOST_TRIPS:
        b.fail(f"it picks up to {trips} boxes of a class, more than the {MOST_TRIPS} that are written out")
    corners = _Corners.of(b, boxes, bool(center_point_box))
    picked, is_pick = [], []
    for _ in range(trips):
        found, place, alive = _pick(b, scores, alive, corners, threshold)
        picked.append(b.unsqueeze(place, [2]))
        is_pick.append(b.unsqueeze(found, [2]))
    if not picked:
        return b.expand(b.scalar(0, int64), (0, 3))
    return _listed(b, b.concat(picked, 2), b.concat(is_pick, 2))


def _trips(b: NodeBuilder, most: Value | None, count: Dim) -> Dim:
    """Return how many boxes of a class may be picked: as many as are wanted, no more than there are."""
    if most is None:
        return 0
    wanted = b.b("max", b.cast(b.reshape(most, ()), int64), 0)
    return b.data_size(b.b("min", wanted, b.dim_value(count)), "the number of boxes to pick from a class", count)


@dataclass(frozen=True)
class _Corners:
    """Boxes by their least and greatest coordinate along either axis, each of one shape."""

    low: tuple[Value, Value]
    high: tuple[Value, Value]

    @classmethod
    def of(cls, b: NodeBuilder, boxes: Value, by_center: bool) -> _Corners:
        one, two, three, four = (b.reshape(b.slice_axis(boxes, 2, k, 1), boxes.shape[:2]) for k in range(4))
        if by_center:
            half = [b.b("div", extent, 2) for extent in (three, four)]
            low = [b.b("sub", middle, size) for middle, size in zip((one, two), half)]
            high = [b.b("add", middle, size) for middle, size in zip((one, two), half)]
        else:  # any two opposite corners
            low = [b.b("min", *pair) for pair in ((one, three), (two, four))]
            high = [b.b("max", *pair) for pair in ((one, three), (two, four))]
        return cls(tuple(low), tuple(high))

    def sizes(self, b: NodeBuilder) -> list[Value]:
        return [b.b("sub", high, low) for low, high in zip(self.low, self.high)]

    def each(self, function) -> _Corners:
        return _Corners(tuple(map(function, self.low)), tuple(map(function, self.high)))


def _pick(
    b: NodeBuilder, scores: Value, alive: Value, corners: _Corners, threshold: Value
) -> tuple[Value, Value, Value]:
    """Return for each class whether a box is left, the place of the best one, and which boxes are left after it."""
    batch, classes, count = scores.shape
    best = b.reduce("max", b.b("where", alive, scores, float("-inf")), [2], True)
    place = b.iota_along(scores.shape, 2)
    is_best = b.b("and", alive, b.b("equal", scores, best))
    first = b.reduce("min", b.b("where", is_best, place, b.dim_value(count)), [2])
    row = b.iota((batch, classes), index_symbol(0) * count)
    own = corners.each(lambda side: b.unsqueeze(b.gather_flat(side, b.b("add", row, first)), [2]))
    others = corners.each(lambda side: b.unsqueeze(side, [1]))
    overlaps = b.b("greater", _overlap(b, own, others), threshold)
    kept = b.b("and", b.b("not", overlaps), b.b("not_equal", place, b.unsqueeze(first, [2])))
    return b.b("less", first, b.dim_value(count)), first, b.b("and", alive, kept)


def _overlap(b: NodeBuilder, one: _Corners, other: _Corners) -> Value:
    """Return the shared area of boxes over the area that they cover together; -1 where there is none."""
    low = [b.b("max", a, c) for a, c in zip(one.low, other.low)]
    high = [b.b("min", a, c) for a, c in zip(one.high, other.high)]
    shared = b.b("mul", *_Corners(tuple(low), tuple(high)).sizes(b))
    meets = b.b("and", *(b.b("less", a, c) for a, c in zip(low, high)))
    areas = [b.b("mul", *box.sizes(b)) for box in (one, other)]
    union = b.b("sub", b.b("add", *areas), shared)
    for area in (shared, *areas, union):
        meets = b.b("and", meets, b.b("greater", area, 0))
    return b.b("where", meets, b.b("div", shared, union), -1)


def _listed(b: NodeBuilder, picked: Value, is_pick: Value) -> Value:
    """Return (batch, class, box) of every pick, from what each trip picked of every class, [batch, classes, trips]."""
    batch, classes, trips = picked.shape
    places = places_of(b, b.reshape(is_pick, (product(is_pick.shape),)))
    box = b.gather_flat(picked, places)
    row = b.b("div", places, b.dim_value(trips))
    columns = [b.b("div", row, b.dim_value(classes)), b.b("floor_mod", row, b.dim_value(classes)), box]
    return b.concat([b.unsqueeze(column, [1]) for column in columns], 1)
