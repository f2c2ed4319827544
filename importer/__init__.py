"""ONNX protobuf to `Graph`: every quirk of ONNX ends here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from ..plan.errors import InvalidModel, UnsupportedModel
from .assumptions import Assumption
from .bucketed import BucketedImport, ImportResult
from .input_dims import DimSpec, InputDims, Profile
from .protobuf import ModelLike, Source, read
from .report import Finding, Report, examine
from .summary import Summary

MOST_ASSUMPTIONS = 64

__all__ = ["Finding", "ImportResult", "Report", "Summary", "check", "load"]


def load(
    model: ModelLike,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    profiles: Sequence[Profile] = (),
) -> ImportResult:
    """Import a model given by path, bytes or as a `ModelProto`, which is not changed.

    `dims` maps names of dims, as the model spells them, to a size, to (min, max) or (min, opt, max), to a list of these,
    which are buckets, or to the name of another dim that it always equals, or an expression such as "32*h", whose new
    names may then have entries of their own. A dim without a name is called `<input>_d<axis>`. `shapes` fixes whole
    inputs. `profiles` bound dims by the least, usual and greatest shape of inputs; where there are several they are
    buckets, of which the first that fits is taken. What is left unsaid may be 1 to 4096, less where the model demands it;
    where it demands that two dims are equal, they become one. The summary warns of both. An initializer that is also an
    input keeps its stored value: it is no input.

    Where the model means different programs for different sizes (a Squeeze without axes of a batch that may be 1), the
    range is split there into buckets too, to at most 16.

    Raises InvalidModel for a damaged or contradictory model, UnsupportedModel for one that uses what is not supported
    (all unsupported operators in one message), InvalidInput for dims and shapes that do not fit.
    """
    return _load(read(model), dims or {}, shapes or {}, profiles)


def check(model: ModelLike) -> Report:
    """Return everything in the model that cannot be imported.

    First every node, attribute and tensor type is looked up; if all are known, the model is imported once, and what
    stops that (a shape that only data decides, say) is the one finding.
    """
    source = read(model)
    report = examine(source.model)
    if report.ok:
        try:
            _load(source, {}, {}, ())
        except UnsupportedModel as error:
            report.add("", "model", 0, str(error), source.name)
    return report


def _load(
    source: Source,
    dims: Mapping[str, DimSpec],
    shapes: Mapping[str, Sequence[int]],
    profiles: Sequence[Profile],
) -> ImportResult:
    inputs = _true_inputs(source.model.graph)
    examine(source.model).raise_if_any()
    assumptions: list[Assumption] = []
    while True:
        input_dims = InputDims(inputs)
        input_dims.apply(dims, shapes, profiles, assumptions)
        try:
            return BucketedImport(source, inputs, input_dims, [str(assumption) for assumption in assumptions]).run()
        except Assumption as assumption:
            assumptions.append(assumption)
            if len(assumptions) > MOST_ASSUMPTIONS:
                raise UnsupportedModel(f"model {source.name!r} demands ever more of its dims: {assumption}") from None


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
