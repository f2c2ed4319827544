"""ONNX protobuf to `Graph`: every quirk of ONNX ends here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from ..ir.graph import Graph, Value
from ..ir.passes.fold import fold_constants
from ..plan.errors import InvalidModel, UnsupportedModel
from .assumptions import Assumption
from .context import NodeBuilder
from .convert import Converter, declared_dims, input_dtype
from .input_dims import DimSpec, InputDims
from .protobuf import ModelLike, Source, read
from .report import Finding, Report, examine
from .summary import Summary, summarize
from .tensors import STORAGE, TensorReader, element_type_name

__all__ = ["Finding", "ImportResult", "Report", "Summary", "check", "load"]


@dataclass(frozen=True)
class ImportResult:
    """An imported model: the program, and what is said about the file it came from."""

    graph: Graph
    summary: Summary


def load(
    model: ModelLike,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> ImportResult:
    """Import a model given by path, bytes or as a `ModelProto`, which is not changed.

    `dims` maps names of dims, as the model spells them, to a size, to (min, max) or (min, opt, max), or to the name of
    another dim that it always equals, or an expression such as "32*h", whose new names may then have entries of their
    own. A dim without a name is called `<input>_d<axis>`. `shapes` fixes whole inputs. What is left unsaid may be 1 to
    4096, less where the model demands it; where it demands that two dims are equal, they become one. The summary warns
    of both. An initializer that is also an input keeps its stored value: it is no input.

    Raises InvalidModel for a damaged or contradictory model, UnsupportedModel for one that uses what is not supported
    (all unsupported operators in one message), InvalidInput for dims and shapes that do not fit.
    """
    return _load(read(model), dims or {}, shapes or {})


def check(model: ModelLike) -> Report:
    """Return everything in the model that cannot be imported.

    First every node, attribute and tensor type is looked up; if all are known, the model is imported once, and what
    stops that (a shape that only data decides, say) is the one finding.
    """
    source = read(model)
    report = examine(source.model)
    if report.ok:
        try:
            _load(source, {}, {})
        except UnsupportedModel as error:
            report.add("", "model", 0, str(error), source.name)
    return report


def _load(source: Source, dims: Mapping[str, DimSpec], shapes: Mapping[str, Sequence[int]]) -> ImportResult:
    inputs = _true_inputs(source.model.graph)
    examine(source.model).raise_if_any()
    assumptions: list[Assumption] = []
    while True:
        input_dims = InputDims(inputs)
        input_dims.apply(dims, shapes, {assumption.name: assumption.value for assumption in assumptions})
        try:
            return _imported(source, inputs, input_dims, [str(assumption) for assumption in assumptions])
        except Assumption as assumption:
            assumptions.append(assumption)  # each takes a symbol away, so this ends


def _imported(
    source: Source, inputs: Sequence[onnx.ValueInfoProto], input_dims: InputDims, warnings: Sequence[str]
) -> ImportResult:
    graph = source.model.graph
    summary = summarize(source)
    b = NodeBuilder(source.name, input_dims.ranges)
    b.open_dims = input_dims.open
    converter = Converter(source.model, b, TensorReader(source.folder))
    values = {info.name: b.input(info.name, input_dtype(info), input_dims.shapes[info.name]) for info in inputs}
    results = converter.graph(graph, values, converter.opsets, "", {})
    _name_outputs(b, graph, results, summary)
    summary.warnings.extend([*warnings, *b.narrowed.values(), *b.warnings])
    result = fold_constants(b.graph)
    summary.dims = {safe: original for safe, original in input_dims.original.items() if safe in input_dims.ranges}
    summary.inputs = [f"{name}: {value.type}" for name, value in zip(result.input_names, result.inputs, strict=True)]
    summary.outputs = [f"{name}: {value.type}" for name, value in zip(result.output_names, result.outputs, strict=True)]
    summary.weight_bytes = sum(n.attrs["data"].nbytes for n in result.nodes() if n.op == "constant")
    return ImportResult(result, summary)


def _true_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that are fed: old models list their initializers among the inputs too."""
    stored = {tensor.name for tensor in graph.initializer} | {sparse.values.name for sparse in graph.sparse_initializer}
    inputs = [info for info in graph.input if info.name not in stored]
    for kind, names in (
        ("input", [info.name for info in graph.input]),
        ("output", [info.name for info in graph.output]),
    ):
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise InvalidModel(f"graph {graph.name!r} has two {kind}s called {twice!r}; give them different names")
        if "" in names:
            raise InvalidModel(f"graph {graph.name!r} has an {kind} without a name")
    if not graph.output:
        raise InvalidModel(f"graph {graph.name!r} has no outputs, so there is nothing to compute")
    return inputs


def _name_outputs(b: NodeBuilder, graph: onnx.GraphProto, results: Sequence[Value], summary: Summary) -> None:
    for info, value in zip(graph.output, results, strict=True):
        if value in b.narrow:
            raise UnsupportedModel(f"output {info.name!r} is of a four-bit type, which only weights may have")
        warning = _contradiction(info, value)
        if warning:
            summary.warnings.append(warning)
        b.output(info.name, value)


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
