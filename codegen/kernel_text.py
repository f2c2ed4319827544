"""Puts a kernel's text together: prelude, templates, signature, body. The text is complete and depends on nothing else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from ..ir.region import Elementwise, Gather, Reduce, Region
from ..plan.dims import Dim
from ..plan.records import KernelRecord
from .dim_writer import DimWriter
from .traffic import bytes_moved, flops

LONGEST_NAME = 96
# What every kernel begins with, in every thread; the runtime relies on it when it starts kernels early.
BEGINNING = "  wait_for_inputs();\n  let_next_start();"


@cache
def template(name: str) -> str:
    """Return the text of `codegen/cuda/<name>.cuh`."""
    return (resources.files(__package__) / "cuda" / f"{name}.cuh").read_text(encoding="utf-8")


class Lines:
    """Indented lines of C, written one after another."""

    def __init__(self, depth: int = 1) -> None:
        self.depth = depth
        self.lines: list[str] = []

    def add(self, *lines: str) -> None:
        self.lines += [f"{'  ' * self.depth}{line}" if line else "" for line in lines]

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """Write `head {`, what is added meanwhile one level deeper, then the closing brace."""
        self.add(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.add(tail)

    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass
class KernelText:
    """What a schedule decides about its kernel, turned into a record and a source by `finish`."""

    region: Region
    schedule: str
    dims: DimWriter
    templates: tuple[str, ...]
    grid: Dim
    block: int
    body: str
    before: str = ""
    shared_bytes: int = 0
    launch_bounds: str = ""
    details: tuple[str, ...] = field(default=())

    def finish(self, name_hint: str | None, weights: Collection[int] = ()) -> tuple[KernelRecord, str]:
        """Return the record and the text; `weights` are the slots of operands that no kernel of the plan writes."""
        entry = entry_name(self.region, self.schedule)
        parameters = kernel_parameters(self.region, self.dims, weights)
        text = assemble(
            self.dims, self.templates, self.before, entry, parameters, self.launch_bounds or str(self.block), self.body
        )
        record = KernelRecord(
            name=name_hint or entry,
            source=source_hash(text),
            entry=entry,
            grid=(self.grid, 1, 1),
            block=(self.block, 1, 1),
            shared_bytes=self.shared_bytes,
            reads=len(self.region.operands),
            writes=len(self.region.stores),
            scalars=self.dims.scalars,
            scalar_bits=64 if self.dims.wide else 32,
            flops=flops(self.region),
            bytes_moved=bytes_moved(self.region),
            waits=True,
        )
        return record, text


def assemble(
    dims: DimWriter,
    templates: Sequence[str],
    before: str,
    entry: str,
    parameters: Sequence[str],
    launch_bounds: str,
    body: str,
) -> str:
    """Return the whole text of a kernel."""
    unsigned = "unsigned long long" if dims.wide else "unsigned"
    indices = f"// Index arithmetic of this kernel; UIndex divides.\nusing Index = {dims.index_type};\nusing UIndex = {unsigned};"
    head = f'extern "C" __global__ void __launch_bounds__({launch_bounds}) {entry}(\n    ' + ",\n    ".join(parameters) + ") {"
    parts = [template("prelude").rstrip(), indices, *(template(name).rstrip() for name in templates)]
    if before:
        parts.append(before)
    parts.append(f"{head}\n{BEGINNING}\n{body}\n}}\nLUMINAL_EXPORT({entry})")
    return "\n\n".join(parts) + "\n"


def kernel_parameters(region: Region, dims: DimWriter, weights: Collection[int] = ()) -> list[str]:
    """Return the declarations of a region kernel's parameters: outputs, inputs (some of them weights), dims."""
    outs = [f"{region.nodes[at].dtype.c_type}* LUMINAL_RESTRICT out{k}" for k, at in enumerate(region.stores)]
    ins = [
        f"const {operand.dtype.c_type}* {'__restrict__' if slot in weights else 'LUMINAL_RESTRICT'} in{slot}"
        for slot, operand in enumerate(region.operands)
    ]
    return [*outs, *ins, *(f"Index {name}" for name in dims.parameters.values())]


def source_hash(text: str) -> str:
    """Return the SHA-256 by which records name a text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def entry_name(region: Region, schedule: str) -> str:
    """Return the kernel's function name: schedule, functions in order of appearance, shape and element type."""
    functions: dict[str, None] = {}
    for node in region.nodes:
        if isinstance(node, Elementwise | Reduce):
            functions[node.fn] = None
        elif isinstance(node, Gather):
            functions["gather"] = None
    rows, columns = region.row_split() or (region.nodes[region.stores[0]].space, ())
    shape = "by".join("x".join(map(_dim_word, space)) or "1" for space in (rows, columns) if space or space is rows)
    words = [schedule, *(list(functions) or ["copy"]), shape]
    name = _joined(words)
    while len(name) > LONGEST_NAME and len(words) > 3:
        del words[-2]
        name = _joined([*words[:-1], "more", words[-1]])
    return f"{name[:LONGEST_NAME].rstrip('_')}_{region.nodes[region.stores[0]].dtype.name}"


def _dim_word(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else re.sub(r"\W+", "_", str(dim), flags=re.ASCII).strip("_")


def _joined(words: Sequence[str]) -> str:
    return "_".join(words)
