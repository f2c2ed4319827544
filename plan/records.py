"""The plan of a compiled model: buffers, steps and the tree that orders them. Everything here goes to JSON and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .control import (
    Carried,
    If,
    Loop,
    Merged,
    Row,
    Segment,
    Sequence,
    Size,
    Tree,
    steps_of,
)
from .dims import Dim, Range
from .dtypes import BY_NAME, DType
from .plan_check import check_plan
from .plan_json import dims_in, dims_out, tree_in, tree_out
from .steps import KernelRecord, KernelStep, LtStep, Step

__all__ = [
    "Buffer",
    "Carried",
    "If",
    "KernelRecord",
    "KernelStep",
    "Loop",
    "LtStep",
    "Merged",
    "Plan",
    "Port",
    "Row",
    "Segment",
    "Sequence",
    "Size",
    "Step",
    "Tree",
]


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
class Plan:
    """Everything that a session needs to run a model on one architecture, but for the code and the weights."""

    arch: str
    buffers: tuple[Buffer, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    root: Tree
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def steps(self) -> Iterator[Step]:
        """Every step once, in order: those of a loop's body once, those of both branches of a condition."""
        return steps_of(self.root)

    def validate(self) -> None:
        """Raise LuminalError unless every step and node reads what is written before it in its scope, writes no input,
        weight or value of an outer scope, names buffers of the plan, and needs only symbols that have a value there."""
        check_plan(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain lists, dicts, strings and numbers; `from_json` reads them back to an equal plan."""
        return {
            "arch": self.arch,
            "buffers": [
                {"id": b.id, "name": b.name, "kind": b.kind, "dtype": b.dtype.name, "shape": dims_out(b.shape)}
                for b in self.buffers
            ],
            "inputs": [_port_out(port) for port in self.inputs],
            "outputs": [_port_out(port) for port in self.outputs],
            "ranges": {name: [r.min, r.opt, r.max] for name, r in self.ranges.items()},
            "root": tree_out(self.root),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        return cls(
            arch=data["arch"],
            buffers=tuple(
                Buffer(b["id"], b["name"], b["kind"], BY_NAME[b["dtype"]], dims_in(b["shape"])) for b in data["buffers"]
            ),
            inputs=tuple(_port_in(port) for port in data["inputs"]),
            outputs=tuple(_port_in(port) for port in data["outputs"]),
            ranges={name: Range(*values) for name, values in data["ranges"].items()},
            root=tree_in(data["root"]),
        )


def _port_out(port: Port) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype.name, "shape": dims_out(port.shape), "buffer": port.buffer}


def _port_in(data: Mapping[str, Any]) -> Port:
    return Port(data["name"], BY_NAME[data["dtype"]], dims_in(data["shape"]), data["buffer"])
