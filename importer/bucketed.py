"""The import of a model over its whole range, one bucket after another, split where it means different programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import onnx

from ..ir.graph import Graph, TensorType, Value
from ..ir.passes.fold import fold_constants
from ..plan.buckets import MOST_BUCKETS, Bucket, clipped, cover_problem, describe, halves, hull, moved_to
from ..plan.dims import Range
from ..plan.errors import InvalidInput, InvalidModel, LuminalError, UnsupportedModel
from ..plan.signature import InputPort
from .assumptions import Split
from .context import NodeBuilder
from .convert import Converter, declared_dims, input_dtype
from .input_dims import InputDims
from .protobuf import Source
from .summary import Summary, summarize
from .tensors import STORAGE, TensorReader, element_type_name


@dataclass(frozen=True)
class ImportResult:
    """An imported model: a program for each bucket of its range, and what is said about the file it came from.

    `inputs` are those of the whole range, whose symbols `ranges` bounds. The graph of a bucket has numbers in the place of
    symbols that have one size there.
    """

    graphs: tuple[Graph, ...]
    buckets: tuple[Bucket, ...]
    inputs: tuple[InputPort, ...]
    ranges: Mapping[str, Range]
    summary: Summary

    @property
    def graph(self) -> Graph:
        """The program, if one serves the whole range; LuminalError if the range is cut into buckets."""
        if len(self.graphs) > 1:
            raise LuminalError(f"the model has {len(self.graphs)} programs, one for each of: {_listed(self.buckets)}")
        return self.graphs[0]


@dataclass(frozen=True)
class _Part:
    """One bucket's program, with its range as far as the model allows it, and what is to be told of it."""

    bucket: Bucket
    graph: Graph
    told: list[str]


class BucketedImport:
    """Imports the model for one bucket after another, each split where the model means different programs."""

    def __init__(
        self, source: Source, inputs: Sequence[onnx.ValueInfoProto], input_dims: InputDims, warnings: Sequence[str]
    ) -> None:
        self.source, self.inputs, self.dims = source, inputs, input_dims
        self.summary = summarize(source)
        self.summary.warnings.extend(warnings)
        self.reader = TensorReader(source.folder)

    def run(self) -> ImportResult:
        parts = self._without_narrowed(*self._parts())
        buckets = [part.bucket for part in parts]
        ranges = moved_to(hull(buckets), {name: known.opt for name, known in self.dims.ranges.items()})
        summary, first = self.summary, parts[0].graph
        summary.warnings.extend(dict.fromkeys(told for part in parts for told in part.told))
        summary.unbounded = [name for name in self.dims.open if name in ranges and name not in self.dims.derived]
        summary.dims = {safe: original for safe, original in self.dims.original.items() if safe in ranges}
        inputs = tuple(
            InputPort(name, value.dtype, value.shape if len(parts) == 1 else self.dims.shapes[name])
            for name, value in zip(first.input_names, first.inputs, strict=True)
        )
        summary.inputs = [f"{port.name}: {TensorType(port.dtype, port.shape)}" for port in inputs]
        types = zip(*([str(value.type) for value in part.graph.outputs] for part in parts))
        summary.outputs = [
            f"{name}: {' or '.join(dict.fromkeys(told))}" for name, told in zip(first.output_names, types, strict=True)
        ]
        summary.weight_bytes = sum(n.attrs["data"].nbytes for n in first.nodes() if n.op == "constant")
        summary.sha256 = self.source.sha256
        return ImportResult(tuple(part.graph for part in parts), tuple(buckets), inputs, ranges, summary)

    def _parts(self) -> tuple[list[_Part], list[tuple[Bucket, LuminalError]]]:
        """Import every bucket, split further where it must be; also return those that the model has no program for."""
        pending = list(reversed(self.dims.buckets))
        parts: list[_Part] = []
        failed: list[tuple[Bucket, LuminalError]] = []
        while pending:
            bucket = pending.pop()
            try:
                parts.append(self._part(bucket))
            except Split as split:
                below, above = halves(bucket, split.name, split.value)
                pending += [above, below]
                self.summary.splits.append(str(split))
                if len(parts) + len(failed) + len(pending) > MOST_BUCKETS:
                    raise UnsupportedModel(
                        f"model {self.source.name!r} means more than {MOST_BUCKETS} different programs over its range; fix "
                        f"or narrow {', '.join(self._split_dims())} with dims=. At last: {split}"
                    ) from None
            except (InvalidModel, UnsupportedModel) as failure:
                failed.append((bucket, failure))
        return parts, failed

    def _split_dims(self) -> list[str]:
        names = [name for name in self.dims.original if any(f"dim {name!r}" in told for told in self.summary.splits)]
        return [self.dims.original[name] for name in names]

    def _without_narrowed(self, parts: list[_Part], failed: list[tuple[Bucket, LuminalError]]) -> list[_Part]:
        """Leave out sizes that the model does not allow, of dims that the caller left open only, so that a box remains."""
        limits = self._limits(parts)
        kept = [(part, clipped(part.bucket, limits)) for part in parts]
        parts = [_clip(part, bucket) for part, bucket in kept if bucket is not None]
        buckets = [part.bucket for part in parts]
        whole = hull(buckets) if parts else {}
        lost = {name for name, known in whole.items() if (known.min, known.max) != self._ends(name)}
        unsupported = any(not isinstance(failure, InvalidModel) for _, failure in failed)
        if not parts or unsupported or lost - set(self.dims.open) or cover_problem(whole, buckets) is not None:
            self._refuse(parts, failed)
        for bucket, failure in failed:
            self.summary.warnings.append(f"sizes are limited to {describe(whole)}: with {describe(bucket)}, {failure}")
        return parts

    def _ends(self, name: str) -> tuple[int, int]:
        known = self.dims.ranges[name]
        return known.min, known.max

    def _limits(self, parts: Sequence[_Part]) -> dict[str, Range]:
        """Return what the model allows of the symbols that a bucket's import has narrowed."""
        limits: dict[str, Range] = {}
        for part in parts:
            for name in part.graph.ranges.keys() & part.bucket.keys():
                known, given = part.graph.ranges[name], part.bucket[name]
                limit = limits.get(name, self.dims.ranges[name])
                low = max(limit.min, known.min) if known.min > given.min else limit.min
                high = min(limit.max, known.max) if known.max < given.max else limit.max
                if low > high:
                    self._refuse([], [])
                limits[name] = Range(low, min(max(limit.opt, low), high), high)
        return limits

    def _refuse(self, parts: Sequence[_Part], failed: Sequence[tuple[Bucket, LuminalError]]) -> NoReturn:
        if not failed:
            raise UnsupportedModel(
                f"model {self.source.name!r} has no sizes for which all that it demands of its dims holds; fix them with dims="
            )
        bucket, failure = next((f for f in failed if not isinstance(f[1], InvalidModel)), failed[0])
        if len(self.dims.buckets) == 1 and not self.summary.splits:
            raise failure
        if parts and isinstance(failure, InvalidModel):
            raise InvalidInput(f"dims: the model is invalid for {describe(bucket)}: {failure}") from failure
        raise type(failure)(f"with {describe(bucket)}: {failure}") from failure

    def _part(self, bucket: Bucket) -> _Part:
        shapes, ranges = self.dims.within(bucket)
        graph = self.source.model.graph
        b = NodeBuilder(self.source.name, ranges)
        b.open_dims = [name for name in self.dims.open if name in ranges]
        b.splittable = list(ranges)
        converter = Converter(self.source.model, b, self.reader)
        values = {info.name: b.input(info.name, input_dtype(info), shapes[info.name]) for info in self.inputs}
        results = converter.graph(graph, values, converter.opsets, "", {}, self.source.weights)
        told = _name_outputs(b, graph, results)
        return _Part(bucket, fold_constants(b.graph), [*b.narrowed.values(), *b.warnings, *told])


def _clip(part: _Part, bucket: Bucket) -> _Part:
    for name in part.graph.ranges:
        if name in bucket:
            part.graph.ranges[name] = bucket[name]
    return _Part(bucket, part.graph, part.told)


def _listed(buckets: Sequence[Bucket]) -> str:
    return "; ".join(map(describe, buckets))


def _name_outputs(b: NodeBuilder, graph: onnx.GraphProto, results: Sequence[Value]) -> list[str]:
    """Make the results outputs of the builder's graph, and return warnings of what the model says wrongly of them."""
    warnings = []
    for info, value in zip(graph.output, results, strict=True):
        if value in b.narrow:
            raise UnsupportedModel(f"output {info.name!r} is of a four-bit type, which only weights may have")
        warning = _contradiction(info, value)
        if warning:
            warnings.append(warning)
        b.output(info.name, value)
    return warnings


def _contradiction(info: onnx.ValueInfoProto, value: Value) -> str | None:
    """Return a warning if the declared type of an output is not what the model computes."""
    declared = declared_dims(info)
    code = info.type.tensor_type.elem_type
    fits = declared is None or (
        len(declared) == len(value.shape)
        and all(want is None or not isinstance(have, int) or want == have for want, have in zip(declared, value.shape))
    )
    if fits and (code == 0 or (code in STORAGE and STORAGE[code][0] == value.dtype.numpy)):
        return None
    shown = "?" if declared is None else ", ".join("?" if dim is None else str(dim) for dim in declared)
    name = element_type_name(code).lower()
    return f"output {info.name!r} is declared {name}[{shown}], but the model computes {value.type}"
