"""Scatter as three kernels that keep the order of the updates without sorting them (`cuda/scatter.cuh` says how)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.graph import TensorType
from ..ir.program import ScatterKernel
from ..ir.scalars import c_expression
from ..plan.dims import Dim, Ranges, ceil_div, product
from ..plan.dtypes import DType, int32, int64
from ..plan.records import KernelRecord
from .dim_writer import DimWriter, needs_wide_index
from .kernel_text import assemble, source_hash

BLOCK = 256
ASSIGN = "none"

# What a step reads and writes: an operand or a piece of scratch memory.
OUT, DEST, INDEX, SOURCE, FIRST, LAST = "out", "dest", "index", "source", "first", "last"
SCRATCH = (FIRST, LAST)


@dataclass(frozen=True)
class ScatterStep:
    """One of the kernels, with the names of the tensors that it writes and reads."""

    record: KernelRecord
    text: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]


@dataclass(frozen=True)
class ScatterSteps:
    """The kernels in order, and the dtype of the two scratch tensors, which have the shape of the output."""

    steps: tuple[ScatterStep, ...]
    scratch: DType


def lower_scatter(
    kernel: ScatterKernel, types: Sequence[TensorType], ranges: Ranges | None = None, name_hint: str | None = None
) -> ScatterSteps:
    """Return the kernels of a scatter whose dest, index and source have these types."""
    dest, index = types[:2]
    count, sources = product(dest.shape), product(index.shape)
    wide = needs_wide_index([count, sources], ranges)
    dims = DimWriter(wide, ranges, (), [count, sources])
    maker = _Maker(kernel.fn, dest.dtype, index.dtype, count, sources, dims, name_hint)
    note = f"scatter_note(first, last, index, {dims.c(count)}, {dims.c(sources)});"
    copy = f"scatter_copy(out, first, last, dest, {dims.c(count)}, {dims.c(sources)});"
    register = dest.dtype.compute.c_type
    apply = (
        f"auto apply = []({register} old, {register} update) -> {register} {{ return {_update(kernel.fn, dest.dtype)}; }};\n"
        f"  scatter_apply(out, dest, index, source, first, last, {dims.c(count)}, {dims.c(sources)}, apply);"
    )
    steps = (
        maker.step("copy", count, (OUT, FIRST, LAST), (DEST,), copy),
        maker.step("note", sources, (FIRST, LAST), (INDEX,), note),
        maker.step("apply", sources, (OUT,), (DEST, INDEX, SOURCE, FIRST, LAST), apply),
    )
    return ScatterSteps(steps, int64 if wide else int32)


def _update(fn: str, dtype: DType) -> str:
    return "update" if fn == ASSIGN else c_expression(fn, ["old", "update"], [dtype, dtype], dtype)


@dataclass(frozen=True)
class _Maker:
    fn: str
    dtype: DType
    index_dtype: DType
    count: Dim
    sources: Dim
    dims: DimWriter
    name_hint: str | None

    def step(self, stage: str, threads: Dim, writes: tuple[str, ...], reads: tuple[str, ...], line: str) -> ScatterStep:
        entry = f"scatter_{stage}_{self.fn}_{self.dtype.name}_{self.index_dtype.name}"
        parameters = [f"{self._type(name)}* LUMINAL_RESTRICT {name}" for name in writes]
        parameters += [f"const {self._type(name)}* LUMINAL_RESTRICT {name}" for name in reads]
        parameters += [f"Index {name}" for name in self.dims.parameters.values()]
        text = assemble(self.dims, ("scatter",), "", entry, parameters, str(BLOCK), f"  {line}")
        record = KernelRecord(
            name=f"{self.name_hint}_{stage}" if self.name_hint else entry,
            source=source_hash(text),
            entry=entry,
            grid=(ceil_div(threads, BLOCK), 1, 1),
            block=(BLOCK, 1, 1),
            shared_bytes=0,
            reads=len(reads),
            writes=len(writes),
            scalars=self.dims.scalars,
            scalar_bits=64 if self.dims.wide else 32,
            bytes_moved=threads * (2 * self.dtype.size + self.index_dtype.size),
            waits=True,
        )
        return ScatterStep(record, text, writes, reads)

    def _type(self, name: str) -> str:
        if name in SCRATCH:
            return "Index"
        return (self.index_dtype if name == INDEX else self.dtype).c_type
