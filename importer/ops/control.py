"""If, Loop and Scan. There is no control flow in a graph: branches are chosen or computed both, loops are unrolled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from ...ir.graph import Value
from ...plan.dtypes import int64
from ...plan.errors import InvalidModel, LuminalError
from ..context import NodeBuilder
from ..registry import onnx_op

MOST_TRIPS = 1024


def _truth(b: NodeBuilder, condition: Value) -> bool | None:
    """Return a condition's value if it is known at import."""
    b.settle(condition, "which branch runs depends on the sizes")
    known = b.known(condition)
    return None if known is None or known.dtype == object else bool(known.reshape(-1)[0])


@onnx_op("If", 1, 11, 13, 16, 19, 21, 23, 24, 25)
def if_(
    b: NodeBuilder, condition: Value, *, then_branch: onnx.GraphProto, else_branch: onnx.GraphProto
) -> tuple[Value, ...]:
    """A known condition imports its branch only; for any other, both are computed and each result is chosen."""
    known, node = _truth(b, condition), b.node
    if known is not None:
        return b.import_subgraph(then_branch if known else else_branch, ())
    importer, results, failures = b.import_subgraph, [], []
    for branch in (then_branch, else_branch):
        try:
            results.append(importer(branch, ()))
        except InvalidModel as failure:
            failures.append(failure)
        b.node, b.origin = node, (node.name,)
    if len(failures) == 2:
        raise failures[0]
    if failures:  # running it at these shapes would be an error
        b.warn(f"{node}: only one of its branches is taken to be run, since the other is invalid: {failures[0]}")
        return results[0]
    chosen = b.reshape(condition, ())
    return tuple(_either(b, chosen, yes, no) for yes, no in zip(*results, strict=True))


def _either(b: NodeBuilder, chosen: Value, yes: Value, no: Value) -> Value:
    if yes.dtype is not no.dtype or yes.type.rank != no.type.rank:
        b.fail(
            f"its branches give different types, {yes.type} and {no.type}, and its condition is not known at import; "
            "if it depends on dims, fix those with dims="
        )
    try:
        result = b.b("where", chosen, yes, no)
    except LuminalError:
        result = None
    if result is None or result.shape != yes.shape:
        b.fail(
            f"its branches give different shapes, {yes.type} and {no.type}, and its condition is not known at import; "
            "if it depends on dims, fix those with dims="
        )
    return result


@onnx_op("Loop", 1, 11, 13, 16, 19, 21, 23, 24, 25)
def loop(
    b: NodeBuilder, trips: Value | None = None, condition: Value | None = None, *states: Value, body: onnx.GraphProto
) -> tuple[Value, ...]:
    """Unrolled while it is known to go on. Where data ends it, later trips keep the states, but collect nothing."""
    node, importer = b.node, b.import_subgraph
    most = None if trips is None else _count(b, trips)
    active = b.constant(np.array(True)) if condition is None else b.reshape(condition, ())
    carried, collected = list(states), [[] for _ in range(len(body.output) - 1 - len(states))]
    trip = 0
    while (most is None or trip < most) and _truth(b, active) is not False:
        certain = _truth(b, active) is True
        if most is None and not certain:
            b.fail("data decides how often it runs, and there is no most; state a constant trip count")
        if collected and not certain:
            b.fail("data decides how often it runs, and with that the length of its scan outputs")
        if trip >= MOST_TRIPS:
            b.fail(f"more than {MOST_TRIPS} trips are not unrolled")
        flag = b.constant(np.array(True)) if certain else active
        results = importer(body, (b.scalar(trip, int64), flag, *carried))
        b.node, b.origin = node, (node.name,)
        new = list(results[1 : 1 + len(carried)])
        if not certain:
            new = [_either(b, active, state, old) for state, old in zip(new, carried, strict=True)]
        carried = new
        for row, value in zip(collected, results[1 + len(carried) :], strict=True):
            row.append(b.unsqueeze(value, [0]))
        again = b.reshape(results[0], ())
        active = b.settled(again if certain else b.b("and", active, again))
        trip += 1
    return (*carried, *(_joined(b, row, info, 0) for row, info in zip(collected, body.output[1 + len(carried) :])))


def _count(b: NodeBuilder, trips: Value) -> int:
    count = b.integer(trips, "the trip count")
    if type(count) is not int:
        b.fail(f"the trip count {count} must be fixed; give its dims a value with dims=")
    return count


def _joined(b: NodeBuilder, rows: Sequence[Value], info: onnx.ValueInfoProto, axis: int) -> Value:
    """Return collected rows as one tensor; without any, an empty one of the declared type."""
    if rows:
        return b.concat(rows, axis)
    from ..convert import declared_dims, input_dtype

    shape = declared_dims(info)
    if shape is None or None in shape:
        b.fail(f"it runs no time, and the shape of its output {info.name!r} is not declared")
    return b.expand(b.scalar(0, input_dtype(info)), (0, *shape))


@onnx_op("Scan", 9, 11, 16, 19, 21, 23, 24, 25)
def scan(
    b: NodeBuilder,
    *inputs: Value,
    body: onnx.GraphProto,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> tuple[Value, ...]:
    """Unrolled over a number of steps that must be fixed."""
    node, importer = b.node, b.import_subgraph
    states, sequences = list(inputs[:-num_scan_inputs]), list(inputs[-num_scan_inputs:])
    axes = [b.axis(a, s.type.rank) for a, s in zip(scan_input_axes or [0] * num_scan_inputs, sequences, strict=True)]
    backward = scan_input_directions or [0] * num_scan_inputs
    steps = sequences[0].shape[axes[0]]
    if type(steps) is not int:
        b.fail(f"the number of steps, {steps}, must be fixed; give it a value with dims=")
    if steps > MOST_TRIPS:
        b.fail(f"{steps} steps are more than the {MOST_TRIPS} that are unrolled")
    collected = [[] for _ in range(len(body.output) - len(states))]
    for step in range(steps):
        slices = [
            b.squeeze(b.slice_axis(sequence, axis, steps - 1 - step if reverse else step, 1), [axis])
            for sequence, axis, reverse in zip(sequences, axes, backward, strict=True)
        ]
        results = importer(body, (*states, *slices))
        b.node, b.origin = node, (node.name,)
        states = list(results[: len(states)])
        for row, value in zip(collected, results[len(states) :], strict=True):
            row.append(value)
    out_axes, out_backward = scan_output_axes or [0] * len(collected), scan_output_directions or [0] * len(collected)
    outputs = []
    for row, axis, reverse, info in zip(collected, out_axes, out_backward, body.output[len(states) :], strict=True):
        where = b.axis(axis, row[0].type.rank + 1) if row else 0
        rows = [b.unsqueeze(value, [where]) for value in (row[::-1] if reverse else row)]
        outputs.append(_joined(b, rows, info, where))
    return (*states, *outputs)
