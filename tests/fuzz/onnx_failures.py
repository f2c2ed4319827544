"""Generated ONNX models against onnxruntime: import, meaning, and the whole road; failures are shrunk and printed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from luminal_onnx.importer import load
from luminal_onnx.ir.graph import Graph
from onnx import helper

from .failures import Failure, limited
from .generate import Binding
from .onnx_generate import OnnxCase, element_type, make_model, runs, session_of
from .oracle import expect

SECONDS = 30
_TIMES = 4.0  # onnxruntime rounds too, and accumulates in float32: how much farther apart two right results may be


@dataclass(frozen=True)
class Imported:
    """An imported model with its bindings: feeds and dims."""

    graph: Graph
    bindings: list[Binding]


def imported(case: OnnxCase) -> tuple[Imported | None, Failure | None]:
    """Return the graph of a model, or why there is none."""
    try:
        with limited(SECONDS):
            graph = load(case.model, dims=dict(case.dims)).graph
    except Exception as error:  # whatever import raises is the finding: onnxruntime runs the model
        last = traceback.extract_tb(error.__traceback__)[-1]
        kind = type(error).__name__
        return None, Failure("import", kind, f"{kind} at {last.filename}:{last.lineno}: {error}")
    bindings = [Binding(_dims_of(graph, feeds), feeds) for feeds in case.feeds]
    return Imported(graph, bindings), None


def _dims_of(graph: Graph, feeds: dict[str, np.ndarray]) -> dict[str, int]:
    found = {}
    for name, value in zip(graph.input_names, graph.inputs):
        for extent, size in zip(value.shape, feeds[name].shape):
            if str(extent) in graph.ranges:
                found[str(extent)] = size
    return found


def meaning_failures(case: OnnxCase, model: Imported) -> Iterator[Failure]:
    """Yield where the graph's meaning is not what onnxruntime computes."""
    session = session_of(case.model)
    for binding in model.bindings:
        reference = session.run(None, binding.feeds)
        try:
            expected = expect(model.graph, binding.feeds, binding.dims)
        except Exception as error:  # as above
            yield Failure("meaning", type(error).__name__, f"{type(error).__name__}: {error}")
            continue
        for name, wanted, array in zip(model.graph.output_names, expected, reference, strict=True):
            difference = wanted.wider(_TIMES).difference(np.asarray(array))
            if difference:
                yield Failure("meaning", "difference", f"onnxruntime's {name!r} {difference} at {dict(binding.dims)}")


def first_failure(case: OnnxCase) -> Failure | None:
    """Return what goes wrong up to the graph's meaning."""
    model, failure = imported(case)
    return failure or next(meaning_failures(case, model), None)


def shrunk_model(case: OnnxCase, failure: Failure, fails: Callable[[OnnxCase], bool] | None = None) -> OnnxCase:
    """Return a small model that fails alike: one output, inner values fed, nodes left out."""
    if fails is None:
        def fails(smaller: OnnxCase) -> bool:
            found = first_failure(smaller)
            return found is not None and (found.stage, found.kind) == (failure.stage, failure.kind)

    progress = True
    while progress:
        progress = False
        for smaller in _smaller(case):
            if runs(smaller) and fails(smaller):
                case, progress = smaller, True
                break
    return case


def _smaller(case: OnnxCase) -> Iterator[OnnxCase]:
    graph = case.model.graph
    nodes = list(graph.node)
    outputs = [output.name for output in graph.output]
    if len(outputs) > 1:
        for output in outputs:
            yield _case_of(case, nodes, [output], {})
    inner = [name for node in nodes for name in node.output if name not in outputs]
    for name in inner:
        yield _case_of(case, nodes, [name], {})
    arrays = _inner_values(case, inner)
    for name in reversed(inner):
        yield _case_of(case, nodes, outputs, {name: arrays[name]})


def _inner_values(case: OnnxCase, names: Sequence[str]) -> dict[str, list[np.ndarray]]:
    graph = case.model.graph
    model = make_model(list(graph.node), list(graph.input), names, list(graph.initializer))
    session = session_of(model)
    runs = [session.run(None, feeds) for feeds in case.feeds] if names else []
    return {name: [np.asarray(run[k]) for run in runs] for k, name in enumerate(names)}


def _case_of(
    case: OnnxCase, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], fed: dict[str, list[np.ndarray]]
) -> OnnxCase:
    """Return the part of a model that makes these outputs, with some inner values as inputs."""
    graph = case.model.graph
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.output) - fed.keys():
            kept.append(node)
            wanted.update(node.input)
    inputs = [info for info in graph.input if info.name in wanted or _shows_dim(info)]
    feeds = [dict(one) for one in case.feeds]
    for name, arrays in fed.items():
        if name in wanted:
            same = len({array.shape for array in arrays}) == 1
            shape = arrays[0].shape if same else [f"{name}_{axis}" for axis in range(arrays[0].ndim)]
            inputs.append(helper.make_tensor_value_info(name, element_type(arrays[0].dtype), shape))
            for one, array in zip(feeds, arrays):
                one[name] = array
    names = [info.name for info in inputs]
    stored = [tensor for tensor in graph.initializer if tensor.name in wanted]
    model = make_model(kept[::-1], inputs, outputs, stored)
    used = {dim.dim_param for info in inputs for dim in info.type.tensor_type.shape.dim}
    dims = {name: limits for name, limits in case.dims.items() if name in used}
    return OnnxCase(case.seed, model, dims, [{name: one[name] for name in names} for one in feeds])


def _shows_dim(info: onnx.ValueInfoProto) -> bool:
    return any(dim.dim_param for dim in info.type.tensor_type.shape.dim)


def told_model(case: OnnxCase, failure: Failure) -> str:
    """Return what is needed to see a failure again: the model as text, its constants and the feeds."""
    small = shrunk_model(case, failure)
    again = first_failure(small) or failure
    lines = [f"seed {case.seed}, {failure.stage}: {again.text}", onnx.printer.to_text(small.model)]
    lines.append(f"dims {small.dims}")
    lines += [f"{t.name} = {onnx.numpy_helper.to_array(t).tolist()}" for t in small.model.graph.initializer]
    for feeds in small.feeds:
        for name, array in feeds.items():
            lines.append(f"feed {name} = {array.dtype}{list(array.shape)} {array.ravel()[:60].tolist()}")
    return "\n".join(lines)
