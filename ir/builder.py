"""The builder: what models compute, written with the primitives. The importer and tests build graphs with it.

Every method that takes values checks their types and returns a `Value`; nothing is computed but shapes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..plan import view as views
from ..plan.dims import Dim, as_dim, floor_div, index_symbol, product, simplify
from ..plan.dtypes import DType, bool_, int64
from ..plan.errors import LuminalError
from ..plan.view import Bound, Fill, View
from .builder_core import BuilderCore, Number
from .graph import Value
from .scalars import highest, lowest


class Builder(BuilderCore):
    """Builds a graph: `Builder(name, ranges)`, then methods, then `.graph`. `builder("add", x, y)` is `elementwise`."""

    # Sizes and places

    def dim_value(self, dim: Dim) -> Value:
        """Return a dim as a rank-0 int64 tensor."""
        dim = as_dim(dim)
        return self.scalar(dim, int64) if type(dim) is int else self.iota((), dim)

    def size_value(self, dim: Dim, dtype: DType) -> Value:
        """Return a dim as a rank-0 tensor of `dtype`."""
        dim = as_dim(dim)
        return self.scalar(dim, dtype) if type(dim) is int else self.cast(self.dim_value(dim), dtype)

    def iota_along(self, shape: Sequence[Dim], axis: int) -> Value:
        """Return the int64 tensor that holds each element's place along one axis."""
        return self.iota(shape, index_symbol(self._axis(axis, len(shape))))

    # Views

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Return x's elements in row-major order in another shape of as many."""
        return self.view(x, views.reshape(x.shape, shape, self.ranges))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """Return x with its axis `perm[k]` as axis k."""
        return self.view(x, views.transpose(x.shape, perm, self.ranges))

    def slice(self, x: Value, starts: Sequence[Dim], steps: Sequence[Dim], sizes: Sequence[Dim]) -> Value:
        """Return `sizes[k]` elements along each axis k: the one at `starts[k]`, then every `steps[k]`-th."""
        return self.view(x, views.slice_(x.shape, starts, steps, sizes, self.ranges))

    def slice_axis(self, x: Value, axis: int, start: Dim, size: Dim, step: Dim = 1) -> Value:
        """Return `size` elements along one axis, all of the others."""
        axis = self._axis(axis, x.type.rank)
        starts, steps, sizes = [0] * x.type.rank, [1] * x.type.rank, list(x.shape)
        starts[axis], steps[axis], sizes[axis] = start, step, size
        return self.slice(x, starts, steps, sizes)

    def pad(self, x: Value, before: Sequence[Dim], after: Sequence[Dim], fill: Number) -> Value:
        """Return x with `fill` around it; negative amounts crop."""
        return self.view(x, views.pad(x.shape, before, after, _fill(fill, x.dtype), self.ranges))

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Return x with axes of extent 1 added at these positions of the result."""
        found = self._axes(axes, x.type.rank + len(axes))
        return self.view(x, views.insert_axes(x.shape, found, self.ranges))

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Return x without these axes; LuminalError if one is not known to have extent 1."""
        found = self._axes(axes, x.type.rank)
        for axis in found:
            if not self._equal(x.shape[axis], 1):
                raise LuminalError(f"cannot squeeze axis {axis} of {x.type}: its extent is not known to be 1")
        return self.view(x, views.drop_axes(x.shape, found, self.ranges))

    def split(self, x: Value, sizes: Sequence[Dim], axis: int) -> list[Value]:
        """Return consecutive pieces of x along an axis, of these sizes."""
        axis = self._axis(axis, x.type.rank)
        total = simplify(sum(sizes), self.ranges)
        if not self._equal(total, x.shape[axis]):
            raise LuminalError(f"cannot split axis {axis} of {x.type} into pieces of {', '.join(map(str, sizes))}")
        pieces, start = [], 0
        for size in sizes:
            pieces.append(self.slice_axis(x, axis, start, size))
            start = start + size
        return pieces

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Return the values one after another along an axis."""
        if not values:
            raise LuminalError("concat needs at least one value")
        axis = self._axis(axis, values[0].type.rank)
        rest = [extent for k, extent in enumerate(values[0].shape) if k != axis]
        for value in values:
            same = value.type.rank == len(rest) + 1 and all(
                self._equal(a, b) for a, b in zip(rest, [d for k, d in enumerate(value.shape) if k != axis])
            )
            if not same or value.dtype is not values[0].dtype:
                raise LuminalError(f"cannot concatenate along axis {axis}: {', '.join(str(v.type) for v in values)}")
        values = [value for value in values if value.shape[axis] != 0] or values[:1]
        if len(values) == 1:
            return values[0]
        ends, total = [], 0
        for value in values:
            total = simplify(total + value.shape[axis], self.ranges)
            ends.append(total)
        shape = (*values[0].shape[:axis], total, *values[0].shape[axis + 1 :])
        padded = []
        for value, end in zip(values, ends, strict=True):
            before, after = [0] * len(shape), [0] * len(shape)
            before[axis], after[axis] = end - value.shape[axis], total - end
            padded.append(self.expand(self.pad(value, before, after, False), shape))
        return self._choose(padded, ends, self.iota_along(shape, axis))

    def _choose(self, padded: Sequence[Value], ends: Sequence[Dim], place: Value) -> Value:
        """Return, at each place, the value whose span it is in. A balanced tree, so that many values stay shallow."""
        if len(padded) == 1:
            return padded[0]
        half = len(padded) // 2
        is_left = self("less", place, self.dim_value(ends[half - 1]))
        left = self._choose(padded[:half], ends[:half], place)
        return self("where", is_left, left, self._choose(padded[half:], ends[half:], place))

    # Reductions

    def mean(self, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        """Return the mean of floats over the axes: the sum divided by the count, in float32 or wider."""
        if not x.dtype.is_float:
            raise LuminalError(f"mean needs floats, not {x.type}")
        wide = self.cast(x, x.dtype.compute)
        count = product(x.shape[axis] for axis in self._axes(axes, x.type.rank))
        total = self.reduce("sum", wide, axes, keepdims)
        return self.cast(self("div", total, self.size_value(count, wide.dtype)), x.dtype)

    def argmax(self, x: Value, axis: int, keepdims: bool = False, select_last: bool = False) -> Value:
        """Return the int64 place of the first (or last) greatest element along an axis; NaN counts as greatest."""
        return self._arg("max", x, axis, keepdims, select_last)

    def argmin(self, x: Value, axis: int, keepdims: bool = False, select_last: bool = False) -> Value:
        """Return the int64 place of the first (or last) least element along an axis; NaN counts as least."""
        return self._arg("min", x, axis, keepdims, select_last)

    def _arg(self, fn: str, x: Value, axis: int, keepdims: bool, select_last: bool) -> Value:
        is_best = self("equal", x, self.reduce(fn, x, [axis], True))
        if x.dtype.is_float:  # a NaN among the elements makes the extreme NaN, which equals nothing
            is_best = self("or", is_best, self("isnan", x))
        place = self.iota_along(x.shape, axis)
        if select_last:
            return self.reduce("max", self("where", is_best, place, -1), [axis], keepdims)
        return self.reduce("min", self("where", is_best, place, highest(int64)), [axis], keepdims)

    def softmax(self, x: Value, axis: int) -> Value:
        """Return exp(x - max) / sum(exp(x - max)) along an axis, computed in float32 or wider."""
        axis = self._axis(axis, x.type.rank)
        last = x.type.rank - 1
        order = [k for k in range(x.type.rank) if k != axis] + [axis]
        rows = self.cast(self.transpose(x, order), x.dtype.compute)
        powers = self("exp", self("sub", rows, self.reduce("max", rows, [last], True)))
        result = self.cast(self("div", powers, self.reduce("sum", powers, [last], True)), x.dtype)
        return self.transpose(result, [order.index(k) for k in range(x.type.rank)])

    # Indexing by data

    def take(self, data: Value, index: Value, axis: int) -> Value:
        """Return `numpy.take(data, index, axis)`: negative indices count from the end; others must be in range."""
        axis = self._axis(axis, data.type.rank)
        before, extent, after = data.shape[:axis], data.shape[axis], data.shape[axis + 1 :]
        shape = (*before, *index.shape, *after)
        if index.node.op == "constant" and index.node.attrs["data"].size == 1:
            return self._take_one(data, int(index.node.attrs["data"].reshape(-1)[0]), axis, shape)
        lead = len(before)
        tensor, start, strides = self.strided(data)
        for k, stride in enumerate(strides):
            if k != axis:
                start = start + stride * index_symbol(k if k < axis else k - 1 + index.type.rank)
        step = self("mul", self._from_front(index, extent), self.dim_value(strides[axis]))
        spread = [index_symbol(lead + k) for k in range(index.type.rank)]
        step = self.view(step, self._select(step, shape, spread))
        return self.gather_flat(tensor, self("add", self.iota(shape, start), step))

    def _take_one(self, data: Value, place: int, axis: int, shape: Sequence[Dim]) -> Value:
        start = place if place >= 0 else data.shape[axis] + place
        return self.reshape(self.slice_axis(data, axis, start, 1), shape)

    def gather_elements(self, data: Value, index: Value, axis: int) -> Value:
        """Return `out[.., p, ..] = data[.., index[.., p, ..], ..]` along one axis, of the index's shape."""
        tensor, start, strides = self.strided(data)
        return self.gather_flat(tensor, self._element_numbers(data.shape, start, strides, index, axis))

    def element_numbers(self, shape: Sequence[Dim], index: Value, axis: int) -> Value:
        """Return row-major numbers, in a tensor of `shape`, of the elements at index's place, but `index` on axis."""
        return self._element_numbers(shape, 0, row_major_strides(shape), index, axis)

    def _element_numbers(
        self, shape: Sequence[Dim], start: Dim, strides: Sequence[Dim], index: Value, axis: int
    ) -> Value:
        axis = self._axis(axis, len(shape))
        if index.type.rank != len(shape):
            raise LuminalError(f"an index along axis {axis} needs {len(shape)} axes, not {index.type}")
        for k, stride in enumerate(strides):
            if k != axis:
                start = start + stride * index_symbol(k)
        step = self("mul", self._from_front(index, shape[axis]), self.dim_value(strides[axis]))
        return self("add", self.iota(index.shape, start), step)

    def strided(self, x: Value) -> tuple[Value, Dim, tuple[Dim, ...]]:
        """Return a tensor in which x's elements lie, the number of the first one and the strides of x's axes.

        What is x by a view with strides is read where it lies, so that nothing is moved to be gathered from.
        """
        if x.node.op == "view" and x.node.attrs["view"].is_total:
            linear = x.node.attrs["view"].linear(self.ranges)
            if linear is not None:
                return x.node.inputs[0], *linear
        return x, 0, row_major_strides(x.shape)

    def _from_front(self, index: Value, extent: Dim) -> Value:
        """Return int64 indices in which negative ones, which count from the end, count from the front."""
        wide = self.cast(index, int64)
        known = index.node.attrs["data"] if index.node.op == "constant" else None
        if index.dtype.kind == "u" or (known is not None and known.min(initial=0) >= 0):
            return wide
        return self("where", self("less", wide, 0), self("add", wide, self.dim_value(extent)), wide)

    # Products

    def contract(
        self,
        a: Value,
        a_labels: Sequence[Hashable],
        b: Value,
        b_labels: Sequence[Hashable],
        out_labels: Sequence[Hashable],
    ) -> Value:
        """Return the sum of products over all labels that are not in `out_labels`, as einsum of two operands does.

        Each label names one axis; one that stands twice in an operand reads its diagonal. An extent of 1 is repeated.
        """
        extents: dict[Hashable, Dim] = {}
        for value, labels in ((a, a_labels), (b, b_labels)):
            if len(labels) != value.type.rank:
                raise LuminalError(f"{len(labels)} labels for {value.type}")
            for label, extent in zip(labels, value.shape):
                extents[label] = self.broadcast_shape((extents.get(label, 1),), (extent,))[0]
        summed = [label for label in dict.fromkeys((*a_labels, *b_labels)) if label not in out_labels]
        order = [*out_labels, *summed]
        unknown = [label for label in out_labels if label not in extents]
        if unknown or len(set(order)) != len(order):
            raise LuminalError(f"the output labels {list(out_labels)} must be distinct labels of the operands")
        space = [extents[label] for label in order]
        place = {label: index_symbol(k) for k, label in enumerate(order)}
        factors = []
        for value, labels in ((a, a_labels), (b, b_labels)):
            index = [
                place[label] if self._equal(extent, extents[label]) else 0 for label, extent in zip(labels, value.shape)
            ]
            factors.append(self.view(value, self._select(value, space, index)))
        return self.reduce("sum", self("mul", *factors), range(len(out_labels), len(order)))

    def matmul(self, a: Value, b: Value) -> Value:
        """Return `numpy.matmul(a, b)`: batch axes broadcast, a 1-D operand is a row or a column that then vanishes."""
        if not a.type.rank or not b.type.rank:
            raise LuminalError(f"matmul needs operands with axes, not {a.type} and {b.type}")
        depths = a.shape[-1], b.shape[-2] if b.type.rank > 1 else b.shape[0]
        if not self._equal(*depths):
            raise LuminalError(f"matmul of {a.type} and {b.type}: the inner extents {depths[0]} and {depths[1]} differ")
        a_batch, b_batch = max(a.type.rank - 2, 0), max(b.type.rank - 2, 0)
        batch = max(a_batch, b_batch)
        rows = ["row"] if a.type.rank > 1 else []
        columns = ["column"] if b.type.rank > 1 else []
        return self.contract(
            a, [*range(batch - a_batch, batch), *rows, "depth"],
            b, [*range(batch - b_batch, batch), "depth", *columns],
            [*range(batch), *rows, *columns],
        )

    def conv(
        self,
        x: Value,
        w: Value,
        strides: Sequence[Dim],
        pads_before: Sequence[Dim],
        pads_after: Sequence[Dim],
        dilations: Sequence[Dim],
        groups: int = 1,
    ) -> Value:
        """Return the convolution of x [n, c, *spatial] by w [m, c / groups, *kernel], of shape [n, m, *out].

        It is a sum over (channel, *kernel) in the space [n, groups, m / groups, *out].
        """
        rank = x.type.rank - 2
        (n, channels), spatial = x.shape[:2], x.shape[2:]
        maps, depth, kernel = w.shape[0], w.shape[1], w.shape[2:]
        if rank < 0 or w.type.rank != x.type.rank or not self._equal(channels, depth * groups) or maps % groups != 0:
            raise LuminalError(f"conv of {x.type} by {w.type} in {groups} groups: channels or ranks do not fit")
        out = [
            self.window_count(*sizes)
            for sizes in zip(spatial, kernel, strides, pads_before, pads_after, dilations, strict=True)
        ]
        maps_each = floor_div(maps, groups)
        space = [n, groups, maps_each, *out, depth, *kernel]
        at = [index_symbol(axis) for axis in range(len(space))]
        reads = [at[3 + k] * strides[k] + at[4 + rank + k] * dilations[k] - pads_before[k] for k in range(rank)]
        bounds = [Bound(place, 0, extent) for place, extent in zip(reads, spatial)]
        index = [at[0], at[1] * depth + at[3 + rank], *reads]
        windows = View.make(x.shape, space, index, bounds, _fill(0, x.dtype) if bounds else None, self.ranges)
        weights = self._select(w, space, [at[1] * maps_each + at[2], at[3 + rank], *at[4 + rank :]])
        products = self("mul", self.view(x, windows), self.view(w, weights))
        total = self.reduce("sum", products, range(3 + rank, len(space)))
        return self.reshape(total, (n, maps, *out))

    def window_count(self, extent: Dim, kernel: Dim, stride: Dim, before: Dim, after: Dim, dilation: Dim) -> Dim:
        """Return how many windows of `kernel` elements fit into a padded axis."""
        room = extent + before + after - (dilation * (kernel - 1) + 1)
        return simplify(floor_div(room, stride) + 1, self.ranges)

    def pool_max(self, x: Value, kernel, strides, before, after, dilations, out_sizes=None) -> Value:
        """Return the greatest element of each window over x's last axes; padding never wins, NaN does."""
        return self._pool("max", x, kernel, strides, before, after, dilations, out_sizes, lowest(x.dtype))

    def pool_sum(self, x: Value, kernel, strides, before, after, dilations, out_sizes=None) -> Value:
        """Return the sum of each window over x's last axes; padding is 0."""
        return self._pool("sum", x, kernel, strides, before, after, dilations, out_sizes, 0)

    def _pool(self, fn: str, x: Value, kernel, strides, before, after, dilations, out_sizes, fill: Number) -> Value:
        """`out_sizes` overrides the number of windows that fit, for pools that round it up."""
        count = len(kernel)
        axes = range(x.type.rank - count, x.type.rank)
        if out_sizes is None:
            out_sizes = [
                self.window_count(x.shape[axis], *sizes)
                for axis, *sizes in zip(axes, kernel, strides, before, after, dilations, strict=True)
            ]
        seen = views.windows(
            x.shape, axes, kernel, strides, dilations, before, out_sizes, _fill(fill, x.dtype), self.ranges
        )
        return self.reduce(fn, self.view(x, seen), range(x.type.rank, x.type.rank + count))

    def _select(self, x: Value, shape: Sequence[Dim], index: Sequence[Dim]) -> View:
        return views.select(x.shape, shape, index, self.ranges)


def row_major_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return how many elements apart neighbours along each axis lie."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))


def _fill(value: Number, dtype: DType) -> Fill:
    """Return the fill value as the Python number kind of dtype, so that equal views are equal objects."""
    if dtype is bool_:
        return bool(value)
    return float(value) if dtype.is_float else int(value)
