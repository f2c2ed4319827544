"""If, Loop and Scan. Branches known at import and short loops are written out; others become control flow of the graph.

Reading a decision back and launching what follows costs some 20 us, so cheap branches are both computed and the results
chosen between. Unrolling costs compile time, which grows with trips times nodes, and gains little, since trips seldom fuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
import onnx

from ...ir.control import ATTRIBUTES
from ...ir.graph import Size, Value
from ...plan.dims import Dim, Range, bounds, product, symbols
from ...plan.dims import evaluate as evaluate_dim
from ...plan.dtypes import int64
from ...plan.errors import InvalidModel, LuminalError, UnsupportedModel
from ..bodies import UNBOUNDED, branch, fitted, state, trip_symbol
from ..bodies import loop as rolled_loop
from ..context import NodeBuilder
from ..registry import onnx_op

MOST_TRIPS = 1024  # that are unrolled, where rolling is not possible
MOST_UNROLLED_NODES = 256  # trips times nodes of the body up to which a loop is unrolled though it could be rolled
MOST_CHOSEN_WORK = 1 << 20  # elements that two branches may compute, in all, to be both computed
MOST_CHOSEN_NODES = 64
MOST_COUNTED = 4096  # trips that there is room for where data decides how many rows a loop collects


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
    importer, results, failures, made = b.import_subgraph, [], [], b.made
    for body in (then_branch, else_branch):
        try:
            results.append(importer(body, ()))
        except InvalidModel as failure:
            failures.append(failure)
        b.node, b.origin = node, (node.name,)
    if len(failures) == 2:
        raise failures[0]
    if failures:  # running it at these shapes would be an error
        b.warn(f"{node}: only one of its branches is taken to be run, since the other is invalid: {failures[0]}")
        return results[0]
    chosen = b.reshape(condition, ())
    then, otherwise = results
    for yes, no in zip(then, otherwise, strict=True):
        if yes.dtype is not no.dtype or yes.type.rank != no.type.rank:
            _different(b, yes, no)
    otherwise = [_alike(b, no, yes) for yes, no in zip(then, otherwise)]
    if _is_cheap(b, made) and all(yes.shape == no.shape for yes, no in zip(then, otherwise)):
        return tuple(_either(b, chosen, yes, no) for yes, no in zip(then, otherwise))
    return branch(b, chosen, made, then, otherwise)


def _is_cheap(b: NodeBuilder, made_before: int) -> bool:
    """Say whether what was made since is computed faster than a condition is read back."""
    sizes = {name: known.opt for name, known in b.ranges.items()}
    nodes = [node for node in b.made_since(made_before) if node.op not in ("constant", "view", "iota")]
    if len(nodes) > MOST_CHOSEN_NODES or any(node.op in ATTRIBUTES for node in nodes):
        return False
    types = [type for node in nodes for type in (node.types[0], *(value.type for value in node.inputs))]
    return sum(evaluate_dim(product(type.shape), sizes) for type in types) <= MOST_CHOSEN_WORK


def _alike(b: NodeBuilder, no: Value, yes: Value) -> Value:
    """Return a result with its extents spelled as those of the other branch's, where they are the same."""
    shape = [a if b.simplify(a - c) == 0 else c for a, c in zip(yes.shape, no.shape, strict=True)]
    return b.reshape(no, shape)


def _either(b: NodeBuilder, chosen: Value, yes: Value, no: Value) -> Value:
    if yes.dtype is not no.dtype or yes.type.rank != no.type.rank:
        _different(b, yes, no)
    try:
        result = b.b("where", chosen, yes, no)
    except LuminalError:
        result = None
    if result is None or result.shape != yes.shape:
        _different(b, yes, no)
    return result


def _different(b: NodeBuilder, yes: Value, no: Value) -> NoReturn:
    what = "types" if yes.dtype is not no.dtype or yes.type.rank != no.type.rank else "shapes"
    b.fail(
        f"its branches give different {what}, {yes.type} and {no.type}, and its condition is not known at import; "
        "if it depends on dims, fix those with dims="
    )


@onnx_op("Loop", 1, 11, 13, 16, 19, 21, 23, 24, 25)
def loop(
    b: NodeBuilder, trips: Value | None = None, condition: Value | None = None, *states: Value, body: onnx.GraphProto
) -> tuple[Value, ...]:
    """Short ones are unrolled, as far as it is known that they go on."""
    start = b.constant(np.array(True)) if condition is None else b.reshape(condition, ())
    rows = len(body.output) - 1 - len(states)
    most = None if trips is None else _most(b, trips, rows)
    if _truth(b, start) is False:
        most = 0

    def unrolled() -> tuple[Value, ...]:
        return _unrolled_loop(b, most, start, states, body)

    def rolled() -> tuple[Value, ...]:
        return _rolled_loop(b, most, start, states, body)

    certain = _truth(b, start) is True
    few = type(most) is int and (most <= 1 or most * len(body.node) <= MOST_UNROLLED_NODES) and (certain or not rows)
    return _first_possible(b, [unrolled, rolled] if few else [rolled, unrolled])


def _most(b: NodeBuilder, trips: Value, rows: int) -> Dim | None:
    """Return how often a loop runs at most; None if the number is so high that it means nothing.

    A number that is data is read when the graph runs.
    """
    known = b.known(trips)
    if known is not None:
        count = b.integer(trips, "the trip count")
        return max(count, 0) if type(count) is int and count <= UNBOUNDED else None if type(count) is int else count
    name = b.unused_dim("trips")
    most = MOST_COUNTED if rows else UNBOUNDED
    if rows:
        b.warn(f"{b.node}: its trip count is data; there is room for {most} trips, and more are an error when it runs")
    count = b.size(name, b.b("max", b.cast(b.reshape(trips, ()), int64), 0), 0, most)
    b.ranges[name] = Range(0, 16, most)
    return count


def _first_possible(b: NodeBuilder, ways: Sequence[Callable[[], tuple[Value, ...]]]) -> tuple[Value, ...]:
    """Return what the first way gives that is supported; if none is, the first one's failure is what is raised."""
    node, importer, failures = b.node, b.import_subgraph, []
    for way in ways:
        try:
            return way()
        except UnsupportedModel as failure:
            failures.append(failure)
        b.node, b.origin, b.import_subgraph = node, (node.name,), importer
    raise failures[0]


def _rolled_loop(
    b: NodeBuilder, most: Dim | None, start: Value, states: Sequence[Value], body: onnx.GraphProto
) -> tuple[Value, ...]:
    node, importer = b.node, b.import_subgraph
    with trip_symbol(b, most) as trip:

        def once(inner: Sequence[Value]) -> tuple[Value, list[Value], list[Value]]:
            """Import the body and return whether it goes on, the states after it and its rows."""
            results = importer(body, (b.dim_value(trip), b.constant(np.array(True)), *inner))
            b.node, b.origin = node, (node.name,)
            following = [
                fitted(b, value, given.type, f"the state {info.name!r} after a trip")
                for value, given, info in zip(results[1:], states, body.output[1:])
            ]
            return b.reshape(results[0], ()), following, list(results[1 + len(states) :])

        inner = [state(b, value.type) for value in states]
        again, following, rows = once(inner)
        counting = [_count_at(b, trip, *values) for values in zip(states, inner, following)]
        if any(count is not None for count in counting):
            inner = [known if count is None else count for known, count in zip(inner, counting)]
            again, following, rows = once(inner)
        inner = [value if count is None else state(b, value.type) for value, count in zip(inner, counting)]
        if _truth(b, start) is True and _truth(b, again) is True:
            if most is None:
                b.fail("it never ends: there is no trip count, and its condition is always true")
            return rolled_loop(b, trip, most, states, inner, following, rows)
        count = None
        if rows:
            if most is None:
                b.fail(
                    "data decides how often it runs, and with that the length of its scan outputs; state a trip count"
                )
            count = b.unused_dim("count")
        made = rolled_loop(b, trip, most, states, inner, following, rows, (start, again), count)
    if count is not None:
        _, high = bounds(most, b.ranges)
        b.ranges[count] = Range(0, min(16, high), high)
        b.graph.sizes[count] = Size(made[-1], 0, high if symbols(most) & b.graph.sizes.keys() else most)
    return made


def _count_at(b: NodeBuilder, trip: Dim, initial: Value, inner: Value, following: Value) -> Value | None:
    """Return, as a function of the trip, a state that starts at a known number and grows by a fixed one every trip.

    So what it indexes or slices is known to differ with the trip only. None for any other state.
    """
    first = b.known(initial) if initial.dtype.is_integer else None
    if first is None or first.size != 1 or following.node.op != "elementwise" or following.node.attrs["fn"] != "add":
        return None
    steps = [b.known(value) for value in following.node.inputs if value != inner]
    if len(steps) != 1 or steps[0] is None or steps[0].dtype == object or following.node.inputs.count(inner) != 1:
        return None
    at = first.reshape(-1)[0] + int(steps[0].reshape(-1)[0]) * trip
    return b.cast(b.reshape(b.dim_value(at), inner.shape), inner.dtype)


def _unrolled_loop(
    b: NodeBuilder, most: Dim | None, start: Value, states: Sequence[Value], body: onnx.GraphProto
) -> tuple[Value, ...]:
    """Unrolled while it is known to go on. Where data ends it, later trips keep the states, but collect nothing."""
    if most is not None and type(most) is not int:
        b.fail(
            f"the trip count {most} must be fixed for a loop whose states change shape; give its dims a value with dims="
        )
    node, importer, active = b.node, b.import_subgraph, start
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
    """Few steps are unrolled."""
    states, sequences = list(inputs[:-num_scan_inputs]), list(inputs[-num_scan_inputs:])
    axes = [b.axis(a, s.type.rank) for a, s in zip(scan_input_axes or [0] * num_scan_inputs, sequences, strict=True)]
    backward = scan_input_directions or [0] * num_scan_inputs
    steps = sequences[0].shape[axes[0]]
    node, importer = b.node, b.import_subgraph

    def step(number: Dim, given: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        slices = [
            b.squeeze(b.slice_axis(sequence, axis, steps - 1 - number if reverse else number, 1), [axis])
            for sequence, axis, reverse in zip(sequences, axes, backward, strict=True)
        ]
        results = importer(body, (*given, *slices))
        b.node, b.origin = node, (node.name,)
        return list(results[: len(states)]), list(results[len(states) :])

    def rolled() -> tuple[list[Value], list[Value]]:
        with trip_symbol(b, steps) as trip:
            inner = [state(b, value.type) for value in states]
            new, rows = step(trip, inner)
            following = [
                fitted(b, value, given.type, f"the state {info.name!r} after a step")
                for value, given, info in zip(new, states, body.output)
            ]
            made = list(rolled_loop(b, trip, steps, states, inner, following, rows))
        return made[: len(states)], made[len(states) :]

    def unrolled() -> tuple[list[Value], list[Value]]:
        if type(steps) is not int:
            b.fail(f"the number of steps, {steps}, must be fixed where states change shape; give it a value with dims=")
        if steps > MOST_TRIPS:
            b.fail(f"{steps} steps are more than the {MOST_TRIPS} that are unrolled")
        given, collected = states, [[] for _ in body.output[len(states) :]]
        for number in range(steps):
            given, rows = step(number, given)
            for row, value in zip(collected, rows, strict=True):
                row.append(b.unsqueeze(value, [0]))
        return given, [_joined(b, row, info, 0) for row, info in zip(collected, body.output[len(states) :])]

    few = type(steps) is int and (steps <= 1 or steps * len(body.node) <= MOST_UNROLLED_NODES)
    finals, stacks = _first_possible(b, [unrolled, rolled] if few else [rolled, unrolled])
    out_axes, out_backward = scan_output_axes or [0] * len(stacks), scan_output_directions or [0] * len(stacks)
    outputs = []
    for stack, axis, reverse in zip(stacks, out_axes, out_backward, strict=True):
        where = b.axis(axis, stack.type.rank)
        if reverse:
            stack = b.slice_axis(stack, 0, steps - 1, steps, -1)
        order = [*range(1, where + 1), 0, *range(where + 1, stack.type.rank)]
        outputs.append(b.transpose(stack, order))
    return (*finals, *outputs)
