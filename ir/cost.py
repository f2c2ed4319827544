"""The roofline: how long a kernel takes on a target, judged at each dim's `opt`.

Absolute times are rough. What matters is the order of the alternatives: launches, bytes that go to memory and back, work
done twice, reads that do not lie side by side, and too few threads to fill the device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..plan.dims import Dim, evaluate
from ..plan.lt import LtMatmul
from ..plan.view import View
from .attention_cost import attention_seconds
from .region import Constant, Elementwise, Gather, Iota, Load, Reduce, Region
from .region_axes import axes_used
from .scalars import TABLE
from .schedule import (
    ATTENTION,
    ELEMENTWISE,
    MATMUL_MMA,
    MATMUL_TILED,
    MATMULS,
    ROW_BLOCK,
    ROW_SLICES,
    ROW_THREAD,
    ROW_WARP,
    classify_matmul,
)
from .target import Target

SECTOR = 32  # bytes that memory moves at least
TILE = 64
FILL = 1024  # threads a multiprocessor wants
LANES = {ELEMENTWISE: 1, ROW_THREAD: 1, ROW_WARP: 32, ROW_BLOCK: 256, ROW_SLICES: 32}
ACROSS_ROWS = (ELEMENTWISE, ROW_THREAD, ROW_SLICES)  # neighbouring threads have neighbouring rows
STEP = 2.5e-9  # seconds that one thread takes from one element of a row to the next
MATMUL_EFFICIENCY = {MATMUL_TILED: 0.40, MATMUL_MMA: 0.30}
SLICE = {MATMUL_TILED: 16, MATMUL_MMA: 32}  # terms that a tile fetches at a time
SLICE_LATENCY = 0.4e-6  # seconds from asking for a slice to having multiplied it
LEAST_TERMS, MOST_PARTS = 192, 16  # code generation splits long sums of few tiles
LIBRARY_EFFICIENCY = 0.85
OVERLAP = 0.1


@dataclass
class CostModel:
    """Costs in seconds for one target; `env` gives each symbolic dim its `opt`."""

    target: Target
    env: Mapping[str, int]
    _linear: dict[View, tuple | None] = field(default_factory=dict)
    _sizes: dict[Dim, int] = field(default_factory=dict)

    def size(self, dim: Dim) -> int:
        if type(dim) is int:
            return dim
        if dim not in self._sizes:
            self._sizes[dim] = max(int(evaluate(dim, self.env)), 0)
        return self._sizes[dim]

    def volume(self, shape: tuple[Dim, ...]) -> int:
        total = 1
        for extent in shape:
            total *= self.size(extent)
        return total

    def region(self, region: Region, schedule: str) -> float:
        """Return the time of a generated kernel."""
        if schedule == ATTENTION:
            return attention_seconds(self, region)
        return _RegionCost(self, region, schedule).seconds()

    def linear(self, view: View) -> tuple | None:
        """Return the view's (base, strides), or None."""
        if view not in self._linear:
            self._linear[view] = view.linear()
        return self._linear[view]

    def step(self, view: View, axis: int) -> int:
        """Return by how many elements the view's first place along `axis` lies before its second."""
        linear = self.linear(view)
        if linear is not None:
            return abs(self.size(linear[1][axis]))
        if self.size(view.out_shape[axis]) < 2:
            return 0
        first, second = [0] * len(view.out_shape), [0] * len(view.out_shape)
        second[axis] = 1
        offset = view.offset()
        return abs(int(evaluate(offset, self.env, second)) - int(evaluate(offset, self.env, first)))

    def lt(self, matmul: LtMatmul) -> float:
        """Return the time of a cuBLASLt call."""
        m, n, k, batch = (self.size(size) for size in (matmul.m, matmul.n, matmul.k, matmul.batch))
        size_in, size_out = matmul.type_a.size, matmul.type_d.size
        shared = [1 if type(stride) is int and stride == 0 else batch for stride in (matmul.stride_a, matmul.stride_b)]
        traffic = size_in * k * (m * shared[0] + n * shared[1]) + size_out * m * n * batch
        if matmul.has_c:
            traffic += size_out * m * n * (1 if type(matmul.stride_c) is int and matmul.stride_c == 0 else batch)
        # The library splits the depth where there are too few tiles, at some loss.
        tiles = batch * math.ceil(m / TILE) * math.ceil(n / TILE) * max(1.0, k / 768)
        filled = min(1.0, tiles / self.target.multiprocessors) ** 0.6
        flops = 2.0 * m * n * k * batch / (self.target.library_flops(matmul.type_a) * LIBRARY_EFFICIENCY * filled)
        return self.target.library + max(flops, traffic / (0.85 * self.target.bandwidth))

    def copy(self, byte_count: float) -> float:
        """Return the time of a kernel that reads and writes so many bytes in all."""
        return self.target.launch + byte_count / self.target.bandwidth


class _RegionCost:
    def __init__(self, model: CostModel, region: Region, schedule: str) -> None:
        self.model, self.region, self.schedule = model, region, schedule
        self.rows, self.columns = region.row_split()
        self.row_count, self.column_count = model.volume(self.rows), model.volume(self.columns)
        self.used = axes_used(region)
        self.matmul = classify_matmul(region) if schedule in MATMULS else None

    def seconds(self) -> float:
        target = self.model.target
        memory, cache = self.traffic()
        work = self.work()
        if self.schedule in MATMULS:
            sizes = [self.extent(axes) for axes in (self.matmul.batch, self.matmul.m, self.matmul.n)]
            tiles = sizes[0] * math.ceil(sizes[1] / TILE) * math.ceil(sizes[2] / TILE)
            parts = max(1, min(target.multiprocessors // max(tiles, 1), self.column_count // LEAST_TERMS, MOST_PARTS))
            filled = min(1.0, tiles * parts / target.multiprocessors)
            work /= MATMUL_EFFICIENCY[self.schedule]
            serial = math.ceil(self.column_count / parts / SLICE[self.schedule]) * SLICE_LATENCY
            serial += 0.0 if parts == 1 else target.launch + self.row_count * 4.0 * parts / target.cache_bandwidth
        else:
            lanes = LANES[self.schedule]
            filled = min(1.0, self.row_count * lanes / (target.multiprocessors * FILL))
            serial = self.serial(lanes)
        filled = max(filled, 1e-4)
        bandwidth = max(filled, 0.05)
        moving = max(memory / (target.bandwidth * bandwidth), cache / (target.cache_bandwidth * bandwidth))
        times = (moving, work / filled, serial)
        # What runs beside the slowest of them is not quite free; so of two equal kernels the simpler one wins.
        return target.launch + max(times) + OVERLAP * (sum(times) - max(times))

    def extent(self, axes: tuple[int, ...] | frozenset[int]) -> int:
        full = self.rows + self.columns
        return self.model.volume(tuple(full[axis] for axis in axes))

    def points(self, at: int) -> float:
        """How often node `at` is computed."""
        node = self.region.nodes[at]
        space = node.space + node.extents if isinstance(node, Reduce) else node.space
        volume = self.model.volume(space)
        inside = self.matmul is not None and len(space) > len(self.rows)
        if inside and not isinstance(node, Reduce) and at != self.matmul.product:
            # A tile's operands are computed once for TILE rows or columns of the other side.
            return max(volume / TILE, self.extent(self.used[at]))
        return volume

    def traffic(self) -> tuple[float, float]:
        """Return bytes to and from memory, and to and from the cache."""
        reads: dict[int, float] = {}
        views: dict[int, dict[View, float]] = {}
        cache = 0.0
        for at, node in enumerate(self.region.nodes):
            if isinstance(node, Load):
                touched = min(self.extent(self.used[at]), self.model.volume(node.view.in_shape)) * node.dtype.size
                spread = self.spread(node)
                cache += self.points(at) * node.dtype.size * spread
                large = self.model.volume(node.view.in_shape) * node.dtype.size > self.model.target.cache_bytes / 2
                # Several views of one operand read different parts of it, up to all of it.
                views.setdefault(node.slot, {})[node.view] = touched * (spread if large else 1)
                held = self.model.volume(node.view.in_shape) * node.dtype.size
                parts = views[node.slot].values()
                reads[node.slot] = max(reads.get(node.slot, 0.0), max(parts), min(sum(parts), held))
            elif isinstance(node, Gather):
                volume = self.points(at)
                cache += volume * node.dtype.size
                reads[node.slot] = max(reads.get(node.slot, 0.0), volume * node.dtype.size)
        written = sum(
            self.model.volume(self.region.nodes[at].space) * self.region.nodes[at].dtype.size for at in self.region.stores
        )
        return sum(reads.values()) + written, cache + written

    def spread(self, load: Load) -> float:
        """Return how many times more bytes than needed neighbouring threads touch."""
        full = load.space
        if self.schedule in MATMULS or not full:
            return 1.0
        lane = len(self.rows) - 1 if self.schedule in ACROSS_ROWS else len(full) - 1
        if lane < 0 or lane >= len(full):
            return 1.0
        stride = self.model.step(load.view, lane)
        most = SECTOR / load.dtype.size
        return max(1.0, min(float(stride), most))

    def work(self) -> float:
        """Return the seconds that the arithmetic takes on a full device."""
        total = 0.0
        for at, node in enumerate(self.region.nodes):
            # One fused multiply-add counts as two operations of the peak rate, one unit of scalar cost as one of those.
            rate = self.model.target.scalar_flops(node.dtype) / 2
            if self.schedule == MATMUL_MMA and at == self.matmul.product:
                rate = self.model.target.half_flops / 2
            if isinstance(node, Elementwise):
                total += self.points(at) * TABLE[node.fn].cost / rate
            elif isinstance(node, Reduce):
                fused = self.matmul is not None
                total += 0.0 if fused else self.points(at) / rate
            elif isinstance(node, (Load, Gather, Iota)):
                total += self.points(at) * self.index_cost(node) / rate
        return total

    @staticmethod
    def index_cost(node: Load | Gather | Iota) -> float:
        text = "" if isinstance(node, Gather) else str(node.expr if isinstance(node, Iota) else node.view.index)
        return 2.0 + 8.0 * (text.count("//") + text.count("%"))

    def serial(self, lanes: int) -> float:
        """Return how long one thread takes for its part of a row."""
        if not self.columns:
            return 0.0
        inside = [node for node in self.region.nodes if len(node.space) > len(self.rows) and not isinstance(node, Constant)]
        steps = math.ceil(self.column_count / lanes)
        barriers = 0.2e-6 * len(self.region.reductions) if lanes > 1 else 0.0
        return steps * STEP * max(1, len(inside)) / 2 + barriers
