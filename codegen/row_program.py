"""The row schedules: a thread, a warp, a block, or a thread of every warp of a block computes one row, in several passes.

Pass p visits every column once and takes part in the reductions that need the results of p earlier ones. Softmax has three:
the maximum; the sum of exp(x - maximum); the quotient. Values that a later pass needs again stay in registers if the
row is short enough, and are computed again from memory if it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..ir.region import Broadcast, Constant, Iota, Load, Reduce, Region
from ..ir.scalars import REDUCTIONS, c_literal
from ..ir.schedule import ROW_BLOCK, ROW_SLICES, ROW_THREAD, ROW_WARP, levels
from ..plan.dims import Dim, Ranges, bounds, ceil_div, divides, product
from .accesses import Accesses
from .dim_writer import DimWriter, counts_of, needs_wide_index
from .elementwise import VECTOR_BYTES, gathered
from .kernel_text import KernelText, Lines
from .points import PointWriter, Vector
from .positions import exact_chunks, write_position, write_vector_position
from .tile_choice import typical

COMBINE = {"sum": "Add", "prod": "Multiply", "max": "Maximum", "min": "Minimum"}
GROUP = {ROW_THREAD: "ThreadRow", ROW_WARP: "WarpRow", ROW_BLOCK: "BlockRow", ROW_SLICES: "SliceRow"}

# Most elements of a row, and most values of all kinds, that a thread keeps in registers between passes.
MOST_ELEMENTS_KEPT = 32
MOST_VALUES_KEPT = 96
# A thread that adds up more terms than this one after another does so in two levels.
LONG_SUM = 512
# How many threads keep a large GPU's memory busy, and the fewest columns that a slice is worth.
BUSY_THREADS = 132 * 1024
LEAST_SLICE = 4
# What a thread of a block should have to do, in vectors of columns, before more threads are worth it.
VECTORS_PER_THREAD = 2


@dataclass(frozen=True)
class Shape:
    """How a schedule lays threads over rows and columns."""

    group: str
    threads: int
    group_size: int
    width: int
    items: int | None  # vectors of columns that a thread visits; None if the loop has no known length
    exact: bool  # every thread visits exactly `items` vectors


@dataclass
class Pass:
    """What one visit to all columns computes: these reductions, these stores by number, and values kept for later."""

    reductions: list[int] = field(default_factory=list)
    stores: list[int] = field(default_factory=list)
    keeps: list[int] = field(default_factory=list)
    recalls: list[int] = field(default_factory=list)

    def roots(self, region: Region) -> list[int]:
        return [*(region.nodes[at].args[0] for at in self.reductions), *(region.stores[k] for k in self.stores)]


def row_program_text(region: Region, schedule: str, ranges: Ranges | None) -> KernelText:
    """Return the kernel of a region with reductions for one of the row schedules."""
    return _RowProgram(region, schedule, ranges).text()


class _RowProgram:
    def __init__(self, region: Region, schedule: str, ranges: Ranges | None) -> None:
        self.region, self.schedule, self.ranges = region, schedule, ranges
        self.rows, self.columns = region.row_split()
        rank = len(self.rows)
        groups = [range(rank), range(rank, rank + len(self.columns))]
        self.accesses = Accesses(region, groups, ranges)
        self.row_axes, self.column_axes = self.accesses.coalesced.groups
        wide = needs_wide_index(counts_of(region), ranges)
        mentioned = [*self.accesses.dims(), *self.rows, *self.columns, *gathered(region)]
        self.dims = DimWriter(wide, ranges, self.accesses.extents, mentioned)
        self.points = PointWriter(region, self.accesses, self.dims)
        self.levels = levels(region)
        self.passes = self._passes()
        self.shape = self._shape()
        self.kept = self._plan_kept()
        self.lines = Lines()
        self.known: dict[int, str] = {}

    def _is_row(self, at: int) -> bool:
        return len(self.region.nodes[at].space) == len(self.rows)

    def _passes(self) -> list[Pass]:
        """Give each reduction, and each store of whole rows, the first pass that can compute it."""
        reductions = [at for at, node in enumerate(self.region.nodes) if isinstance(node, Reduce)]
        stores = [number for number, at in enumerate(self.region.stores) if not self._is_row(at)]
        last = max([self.levels[at] - 1 for at in reductions] + [self.levels[self.region.stores[k]] for k in stores])
        passes = [Pass() for _ in range(last + 1)]
        for at in reductions:
            passes[self.levels[at] - 1].reductions.append(at)
        for number in stores:
            passes[self.levels[self.region.stores[number]]].stores.append(number)
        return passes

    # ---- layout of threads

    def _shape(self) -> Shape:
        width = self._width()
        vectors = exact_chunks(product(self.columns), width)
        most = bounds(vectors, self.ranges)[1]
        group = GROUP[self.schedule]
        if self.schedule == ROW_THREAD:
            return self._with_items(group, self._row_threads(), 1, width, vectors, most)
        if self.schedule == ROW_WARP:
            return self._with_items(group, 128, 32, width, vectors, most)
        if self.schedule == ROW_SLICES:
            slices = self._slices()
            return self._with_items(group, 32 * slices, slices, width, vectors, most)
        wanted = 1024 * VECTORS_PER_THREAD if most is None else most
        threads = 128
        while threads < 1024 and threads * VECTORS_PER_THREAD < wanted:
            threads *= 2
        return self._with_items(group, threads, threads, width, vectors, most)

    def _row_threads(self) -> int:
        """Return the block size for a thread a row: small blocks where rows are few, to spread them."""
        most = bounds(product(self.rows), self.ranges)[1]
        return 64 if most is not None and most <= 64 * 132 else 128 if most is not None and most <= 256 * 132 else 256

    def _slices(self) -> int:
        """Return how many warps share the columns of 32 rows: enough to fill the GPU, but with some columns for each."""
        rows, columns = typical(product(self.rows), self.ranges), typical(product(self.columns), self.ranges)
        slices = 2
        while slices < 32 and rows * slices < BUSY_THREADS and columns >= 2 * slices * LEAST_SLICE:
            slices *= 2
        return slices

    def _with_items(
        self, group: str, threads: int, size: int, width: int, vectors: Dim, most: int | None
    ) -> Shape:
        items = None if most is None else -(-most // size)
        exact = isinstance(vectors, int) and items is not None and vectors == items * size
        return Shape(group, threads, size, width, items, exact)

    def _width(self) -> int:
        """Return the widest vector of columns that suits most accesses; a thread that has a row alone uses none."""
        if self.schedule in (ROW_THREAD, ROW_SLICES) or not self.column_axes:
            return 1
        nodes = [at for at, node in enumerate(self.region.nodes) if isinstance(node, Load) and not self._is_row(at)]
        stores = [number for entry in self.passes for number in entry.stores]
        axis, extent = self.column_axes[-1]
        sizes = [self.region.nodes[at].dtype.size for at in nodes] + [
            self.region.nodes[self.region.stores[number]].dtype.size for number in stores
        ]
        width = VECTOR_BYTES // max(sizes, default=VECTOR_BYTES)
        least_threads = 32 if self.schedule == ROW_WARP else 128
        most = bounds(product(self.columns), self.ranges)[1]
        while width > 1:
            fills = most is None or most >= least_threads * width or width == 2
            if fills and divides(width, extent, self.ranges):
                whole, split = self.points.width_of(axis, width, nodes, stores)
                if whole > split:
                    return width
            width //= 2
        return 1

    def _plan_kept(self) -> bool:
        """Decide whether values stay in registers between passes, and note in each pass which."""
        per_thread = None if self.shape.items is None else self.shape.items * self.shape.width
        if len(self.passes) < 2 or per_thread is None or per_thread > MOST_ELEMENTS_KEPT:
            return False
        first_pass: dict[int, int] = {}
        kept: set[int] = set()
        for number, entry in enumerate(self.passes):
            recalled = set()
            stack = entry.roots(self.region)
            while stack:
                at = stack.pop()
                if self._is_row(at):
                    continue
                if first_pass.setdefault(at, number) < number and self._worth_keeping(at):
                    recalled.add(at)
                    continue
                stack += self.region.nodes[at].args
            entry.recalls = sorted(recalled)
            kept |= recalled
        if len(kept) * per_thread > MOST_VALUES_KEPT:
            for entry in self.passes:
                entry.recalls = []
            return False
        for at in sorted(kept):
            self.passes[first_pass[at]].keeps.append(at)
        return bool(kept)

    def _worth_keeping(self, at: int) -> bool:
        return not isinstance(self.region.nodes[at], Broadcast | Constant | Iota)

    # ---- text

    def text(self) -> KernelText:
        lines, shape = self.lines, self.shape
        count = self.dims.c(product(self.rows))
        lines.add(f"using Group = {shape.group}<{shape.threads}>;")
        self._declare_partials()
        if self.schedule == ROW_SLICES:  # all threads meet at barriers, so those without a row accompany the last one
            lines.add(f"const bool active = Group::row() < UIndex({count});")
            lines.add(f"const UIndex row = active ? Group::row() : UIndex({count}) - 1;")
            self._write_row()
        elif self.schedule == ROW_BLOCK:
            lines.add("const UIndex row = Group::row();")
            self._write_row()
        else:
            lines.add("const UIndex row = Group::row();")
            with lines.block(f"if (row < UIndex({count}))"):
                self._write_row()
        rows_per_block = shape.threads // shape.group_size
        grid = ceil_div(product(self.rows), rows_per_block)
        return KernelText(
            self.region, self.schedule, self.dims, ("memory", "rows"), grid, shape.threads, self.lines.text()
        )

    def _declare_partials(self) -> None:
        if self.schedule in (ROW_BLOCK, ROW_SLICES):
            room = self.shape.threads // (32 if self.schedule == ROW_BLOCK else 1)
            for name in self._accumulator_types():
                self.lines.add(f"__shared__ {name} partials_{name}[{room}];")

    def _accumulator_types(self) -> list[str]:
        return sorted({self.points.register(at) for entry in self.passes for at in entry.reductions})

    def _partials(self, at: int) -> str:
        register = self.points.register(at)
        shared = self.schedule in (ROW_BLOCK, ROW_SLICES)
        return f"partials_{register}" if shared else f"static_cast<{register}*>(nullptr)"

    def _write_row(self) -> None:
        write_position(self.lines, self.dims, "row", self.row_axes)
        self._write_row_values(0)
        if self.kept:
            per_thread = self.shape.items * self.shape.width
            for at in sorted(at for entry in self.passes for at in entry.keeps):
                self.lines.add(f"{self.points.register(at)} kept{at}[{per_thread}];")
        for number, entry in enumerate(self.passes):
            self._write_pass(number, entry)
            self._write_row_values(number + 1)
        self._write_row_stores()

    def _write_row_values(self, level: int) -> None:
        """Write the row's own values that are known after `level` passes and that anything needs."""
        roots = [
            at
            for at, node in enumerate(self.region.nodes)
            if self._is_row(at) and self.levels[at] == level and not isinstance(node, Reduce)
        ]
        self.known = self.points.values(self.lines, [at for at in roots if at not in self.known], self.known)

    def _write_row_stores(self) -> None:
        stores = [(number, at) for number, at in enumerate(self.region.stores) if self._is_row(at)]
        if not stores:
            return
        lines = Lines(self.lines.depth + (self.shape.group_size > 1))
        for number, at in stores:
            lines.add(f"{self.points.target(number)} = {self.points.narrowed(at, self.known[at])};")
        if self.shape.group_size == 1:
            self.lines.lines += lines.lines
            return
        chosen = "Group::rank() == 0" + (" && active" if self.schedule == ROW_SLICES else "")
        with self.lines.block(f"if ({chosen})"):
            self.lines.lines += lines.lines

    def _write_pass(self, number: int, entry: Pass) -> None:
        """Write the loop over columns and the reductions that it ends with."""
        for at in entry.reductions:
            node = self.region.nodes[at]
            identity = c_literal(REDUCTIONS[node.fn].identity(node.dtype.compute), node.dtype.compute)
            self.lines.add(f"{self._accumulator(node)} running{at}({identity});")
        if self.schedule == ROW_THREAD and not self.kept:
            self._write_nested_loops(self.column_axes, entry)
        else:
            self._write_flat_loop(entry)
        for at in entry.reductions:
            node = self.region.nodes[at]
            register = self.points.register(at)
            combine = f"Group::combine(running{at}.result(), {COMBINE[node.fn]}(), {self._partials(at)})"
            self.lines.add(f"const {register} v{at} = {combine};")
            self.known[at] = f"v{at}"

    def _accumulator(self, node: Reduce) -> str:
        register = node.dtype.compute.c_type
        if node.fn == "sum" and node.dtype.is_float and self._terms_per_thread() > LONG_SUM:
            return f"LongSum<{register}>"
        return f"Running<{register}, {COMBINE[node.fn]}>"

    def _terms_per_thread(self) -> float:
        return float("inf") if self.shape.items is None else self.shape.items * self.shape.width

    def _write_nested_loops(self, axes: Sequence[tuple[int, Dim]], entry: Pass) -> None:
        if not axes:
            self._write_columns(self.lines, entry, Vector())
            return
        (axis, extent), *inner = axes
        with self.lines.block(f"for (Index i{axis} = 0; i{axis} < {self.dims.c(extent)}; ++i{axis})"):
            self._write_nested_loops(inner, entry)

    def _write_flat_loop(self, entry: Pass) -> None:
        """Write a loop in which the group's threads take neighbouring vectors of columns in turn."""
        lines, shape = self.lines, self.shape
        width = shape.width
        vector = Vector(self.column_axes[-1][0], width) if width > 1 else Vector()
        vectors = self.dims.c(exact_chunks(product(self.columns), width))
        if not self.kept:
            head = f"for (Index column = Group::rank(); column < {vectors}; column += Group::size)"
            lines.add("#pragma unroll 4")
            with lines.block(head):
                write_vector_position(lines, self.dims, "UIndex(column)", self.column_axes, width)
                self._write_columns(lines, entry, vector)
            return
        lines.add("#pragma unroll")
        with lines.block(f"for (int item = 0; item < {shape.items}; ++item)"):
            lines.add("const Index column = item * Group::size + Group::rank();")
            if shape.exact:
                write_vector_position(lines, self.dims, "UIndex(column)", self.column_axes, width)
                self._write_columns(lines, entry, vector)
            else:
                with lines.block(f"if (column < {vectors})"):
                    write_vector_position(lines, self.dims, "UIndex(column)", self.column_axes, width)
                    self._write_columns(lines, entry, vector)

    def _write_columns(self, lines: Lines, entry: Pass, vector: Vector) -> None:
        """Write what a pass does with one column, or one vector of columns."""
        place = "item" if vector.width == 1 else f"item * {vector.width} + lane"
        known = dict(self.known)
        for at in entry.recalls:
            known[at] = f"kept{at}[{place}]"

        def each(names: dict[int, str]) -> Iterable[str]:
            yield from (f"kept{at}[{place}] = {names[at]};" for at in entry.keeps)
            for at in entry.reductions:
                yield f"running{at}.take({names[self.region.nodes[at].args[0]]});"

        stores = {number: self.region.stores[number] for number in entry.stores}
        guard = "active" if self.schedule == ROW_SLICES else ""
        self.points.vector(lines, vector, entry.roots(self.region), known, each, stores, guard)
