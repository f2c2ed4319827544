"""The plan of a compiled model: buffers, steps and the tree that orders them. Everything here goes to JSON and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .dims import Dim, Range, parse
from .dtypes import BY_NAME, DType
from .errors import LuminalError
from .lt import LtMatmul


@dataclass(frozen=True)
class Buffer:
    """A stored tensor. `kind` is input, weight (named `name` in the weights file), or temporary."""

    id: int
    name: str
    kind: str
    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class Port:
    """One input or output of the model: its public name and type, and the buffer that holds it."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    buffer: int


@dataclass(frozen=True)
class KernelRecord:
    """How to launch one generated kernel.

    Arguments are, in order: a pointer for each of `writes` outputs, a pointer for each of `reads` inputs, then each of
    `scalars` as an integer of `scalar_bits` (32 or 64) bits, evaluated for the dims of the run. Grid entries may be symbolic;
    a grid with a 0 in it is not launched. `source` is the SHA-256 of the kernel's text. `waits` says that every thread of the
    kernel begins by waiting for the kernels before it, so that it may be started early where the machine code can wait.
    """

    name: str
    source: str
    entry: str
    grid: tuple[Dim, Dim, Dim]
    block: tuple[int, int, int]
    shared_bytes: int
    reads: int
    writes: int
    scalars: tuple[Dim, ...] = ()
    scalar_bits: int = 32
    flops: Dim = 0
    bytes_moved: Dim = 0
    waits: bool = False

    def validate(self) -> None:
        """Raise LuminalError if no device could launch this record."""
        x, y, z = self.block
        if not (1 <= x * y * z <= 1024 and z <= 64):
            raise LuminalError(f"kernel {self.name}: block {self.block} is outside 1..1024 threads")
        limits = (2**31 - 1, 65535, 65535)
        for axis, (size, limit) in enumerate(zip(self.grid, limits)):
            if isinstance(size, int) and not 0 <= size <= limit:
                raise LuminalError(f"kernel {self.name}: grid axis {axis} is {size}, at most {limit} allowed")
        if self.scalar_bits not in (32, 64):
            raise LuminalError(f"kernel {self.name}: scalar_bits is {self.scalar_bits}, expected 32 or 64")
        if not 0 <= self.shared_bytes <= 227 * 1024:
            raise LuminalError(f"kernel {self.name}: {self.shared_bytes} bytes of shared memory do not fit")


@dataclass(frozen=True)
class KernelStep:
    """Launch `kernel`, writing and reading buffers by id. `origin` names the ONNX nodes that it covers."""

    kernel: KernelRecord
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class LtStep:
    """Call cuBLASLt; `reads` are A, B, then C if beta ≠ 0, then the bias if the epilogue has one."""

    matmul: LtMatmul
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    origin: tuple[str, ...] = ()


Step = KernelStep | LtStep


@dataclass(frozen=True)
class Segment:
    """Steps that run one after another on one stream and may be captured in one CUDA graph."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Sequence:
    """Children in order. Branches and loops will join as further kinds of tree node."""

    children: tuple[Segment | Sequence, ...]


@dataclass(frozen=True)
class Plan:
    """Everything that a session needs to run a model on one architecture, but for the code and the weights."""

    arch: str
    buffers: tuple[Buffer, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    root: Segment | Sequence
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def steps(self) -> Iterator[Step]:
        """Every step, in launch order."""
        stack: list[Segment | Sequence] = [self.root]
        while stack:
            node = stack.pop()
            if isinstance(node, Segment):
                yield from node.steps
            else:
                stack.extend(reversed(node.children))

    def validate(self) -> None:
        """Raise LuminalError if a step reads what nothing wrote, writes an input or weight, or names no buffer."""
        ready = {buffer.id for buffer in self.buffers if buffer.kind != "temporary"}
        fixed = frozenset(ready)
        known = {buffer.id for buffer in self.buffers}
        for position, step in enumerate(self.steps()):
            record = step.kernel if isinstance(step, KernelStep) else step.matmul
            record.validate()
            for buffer in (*step.reads, *step.writes):
                if buffer not in known:
                    raise LuminalError(f"step {position} names buffer {buffer}, which the plan does not have")
            for buffer in step.reads:
                if buffer not in ready:
                    raise LuminalError(f"step {position} reads buffer {buffer} before anything wrote it")
            for buffer in step.writes:
                if buffer in fixed:
                    raise LuminalError(f"step {position} writes buffer {buffer}, an input or weight")
            ready.update(step.writes)
        for port in self.outputs:
            if port.buffer not in ready:
                raise LuminalError(f"output {port.name!r} is never written")

    def to_json(self) -> dict[str, Any]:
        """Return plain lists, dicts, strings and numbers; `from_json` reads them back to an equal plan."""
        return {
            "arch": self.arch,
            "buffers": [
                {"id": b.id, "name": b.name, "kind": b.kind, "dtype": b.dtype.name, "shape": _dims_out(b.shape)}
                for b in self.buffers
            ],
            "inputs": [_port_out(port) for port in self.inputs],
            "outputs": [_port_out(port) for port in self.outputs],
            "ranges": {name: [r.min, r.opt, r.max] for name, r in self.ranges.items()},
            "root": _tree_out(self.root),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        return cls(
            arch=data["arch"],
            buffers=tuple(
                Buffer(b["id"], b["name"], b["kind"], BY_NAME[b["dtype"]], _dims_in(b["shape"])) for b in data["buffers"]
            ),
            inputs=tuple(_port_in(port) for port in data["inputs"]),
            outputs=tuple(_port_in(port) for port in data["outputs"]),
            ranges={name: Range(*values) for name, values in data["ranges"].items()},
            root=_tree_in(data["root"]),
        )


def _dims_out(dims: tuple[Dim, ...]) -> list[int | str]:
    return [dim if isinstance(dim, int) else str(dim) for dim in dims]


def _dims_in(dims: list[int | str]) -> tuple[Dim, ...]:
    return tuple(parse(dim) if isinstance(dim, str) else dim for dim in dims)


def _port_out(port: Port) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype.name, "shape": _dims_out(port.shape), "buffer": port.buffer}


def _port_in(data: Mapping[str, Any]) -> Port:
    return Port(data["name"], BY_NAME[data["dtype"]], _dims_in(data["shape"]), data["buffer"])


def _tree_out(node: Segment | Sequence) -> dict[str, Any]:
    if isinstance(node, Sequence):
        return {"sequence": [_tree_out(child) for child in node.children]}
    return {"segment": [_step_out(step) for step in node.steps]}


def _tree_in(data: Mapping[str, Any]) -> Segment | Sequence:
    if "sequence" in data:
        return Sequence(tuple(_tree_in(child) for child in data["sequence"]))
    return Segment(tuple(_step_in(step) for step in data["segment"]))


def _step_out(step: Step) -> dict[str, Any]:
    common = {"writes": list(step.writes), "reads": list(step.reads), "origin": list(step.origin)}
    if isinstance(step, LtStep):
        return {"lt": step.matmul.to_json(), **common}
    record = dict(vars(step.kernel))
    for name in ("grid", "scalars", "block"):
        record[name] = _dims_out(record[name])
    for name in ("flops", "bytes_moved"):
        (record[name],) = _dims_out((record[name],))
    return {"kernel": record, **common}


def _step_in(data: Mapping[str, Any]) -> Step:
    common = {name: tuple(data[name]) for name in ("writes", "reads", "origin")}
    if "lt" in data:
        return LtStep(LtMatmul.from_json(data["lt"]), **common)
    record = dict(data["kernel"])
    for name in ("grid", "scalars", "block"):
        record[name] = _dims_in(record[name])
    for name in ("flops", "bytes_moved"):
        (record[name],) = _dims_in([record[name]])
    return KernelStep(KernelRecord(**record), **common)
