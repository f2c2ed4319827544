"""What a compiled model takes and gives over its whole range, whichever of its plans runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .buckets import Bucket, sizes_in
from .control import bound_symbols
from .dims import Dim, Range, parse, substitute
from .dtypes import BY_NAME, DType
from .errors import LuminalError
from .records import Plan, Port


@dataclass(frozen=True)
class Signature:
    """`inputs` and `outputs` in order, and the range of every symbol in the inputs' shapes."""

    inputs: tuple[InputPort, ...]
    outputs: tuple[OutputPort, ...]
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the parts of a manifest that say this."""
        return {
            "inputs": [_out(port) for port in self.inputs],
            "outputs": [_out(port) for port in self.outputs],
            "dims": {name: [r.min, r.opt, r.max] for name, r in self.ranges.items()},
        }

    @classmethod
    def from_json(cls, manifest: Mapping[str, Any]) -> Signature:
        """Read what `to_json` wrote from a manifest."""
        return cls(
            inputs=tuple(
                InputPort(port["name"], BY_NAME[port["dtype"]], _shape_in(port)) for port in manifest["inputs"]
            ),
            outputs=tuple(
                OutputPort(port["name"], BY_NAME[port["dtype"]], _shape_in(port)) for port in manifest["outputs"]
            ),
            ranges={name: Range(*sizes) for name, sizes in manifest["dims"].items()},
        )


@dataclass(frozen=True)
class InputPort:
    """The public name and type of an input."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class OutputPort:
    """The public name and type of an output: an axis is None where no one expression holds in every bucket, the shape
    is None where the rank differs."""

    name: str
    dtype: DType
    shape: tuple[Dim | None, ...] | None


def signature_of(plan: Plan) -> Signature:
    """Return the signature of a model that has one plan for its whole range."""
    ranges = fed_ranges(plan)
    return joined_signature(plan.inputs, ranges, [ranges], [plan])


def fed_ranges(plan: Plan) -> dict[str, Range]:
    """Return the ranges of the symbols that inputs give their values: the others get theirs while the plan runs."""
    late = bound_symbols(plan.root)
    return {name: known for name, known in plan.ranges.items() if name not in late}


def joined_signature(
    inputs: Sequence[Port | InputPort], ranges: Mapping[str, Range], buckets: Sequence[Bucket], plans: Sequence[Plan]
) -> Signature:
    """Return the signature of a model with a plan for each bucket. An output's shape is that of the largest bucket,
    as far as it is right in the others too."""
    widest = max(range(len(buckets)), key=lambda number: (sizes_in(buckets[number]), number))
    outputs = [OutputPort(port.name, port.dtype, port.shape) for port in plans[widest].outputs]
    for bucket, plan in zip(buckets, plans):
        fixed = {name: known.min for name, known in bucket.items() if known.min == known.max}
        outputs = [_agreed(said, port, fixed) for said, port in zip(outputs, plan.outputs, strict=True)]
    return Signature(
        tuple(InputPort(port.name, port.dtype, port.shape) for port in inputs), tuple(outputs), dict(ranges)
    )


def check_bucket_plan(plan: Plan, bucket: Bucket) -> None:
    """Raise LuminalError unless a plan's ranges are those of its bucket, where what has one size only may be left out."""
    ranges = fed_ranges(plan)
    for name, known in bucket.items():
        if ranges.get(name, known) != known or (name not in ranges and known.min != known.max):
            raise LuminalError(f"the plan has {name} in {ranges.get(name)}, its bucket in {known}")
    unknown = sorted(set(ranges) - set(bucket))
    if unknown:
        raise LuminalError(f"the plan has a dim {unknown[0]!r}, which its bucket does not bound")


def _agreed(said: OutputPort, port: Port, fixed: Mapping[str, int]) -> OutputPort:
    if said.shape is None or len(said.shape) != len(port.shape):
        return OutputPort(said.name, said.dtype, None)
    shape = tuple(
        dim if dim is not None and substitute(dim, fixed) == substitute(other, fixed) else None
        for dim, other in zip(said.shape, port.shape)
    )
    return OutputPort(said.name, said.dtype, shape)


def _out(port: InputPort | OutputPort) -> dict[str, Any]:
    shape = (
        None if port.shape is None else [dim if dim is None or isinstance(dim, int) else str(dim) for dim in port.shape]
    )
    return {"name": port.name, "dtype": port.dtype.name, "type": f"tensor({port.dtype.onnx_name})", "shape": shape}


def _shape_in(port: Mapping[str, Any]) -> Any:
    shape = port["shape"]
    return None if shape is None else tuple(parse(dim) if isinstance(dim, str) else dim for dim in shape)
