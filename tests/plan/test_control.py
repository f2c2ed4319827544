"""The plan tree: loops, branches and run-time sizes go to JSON and back, and only sound trees are valid."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from luminal_onnx.plan.control import bound_symbols, has_control
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import bool_, float32, int64
from luminal_onnx.plan.errors import LuminalError
from luminal_onnx.plan.records import (
    Buffer,
    Carried,
    If,
    KernelRecord,
    KernelStep,
    Loop,
    Merged,
    Plan,
    Port,
    Row,
    Segment,
    Sequence,
    Size,
)

N, T, S, COUNT = symbol("n"), symbol("t"), symbol("s"), symbol("made")
X, GO, FOUND, NEXT, ON, OUT, ROWS, OTHER = range(8)
STATE, RESULT = 8, 9

BUFFERS = (
    Buffer(X, "x", "input", float32, (N,)),
    Buffer(GO, "go", "input", bool_, ()),
    Buffer(FOUND, "found", "input", int64, ()),
    Buffer(NEXT, "next", "temporary", float32, (N,)),
    Buffer(ON, "on", "temporary", bool_, ()),
    Buffer(OUT, "out", "temporary", float32, (N,)),
    Buffer(ROWS, "rows", "temporary", float32, (COUNT, N)),
    Buffer(OTHER, "other", "temporary", float32, (N,)),
    Buffer(STATE, "state", "temporary", float32, (N,)),
    Buffer(RESULT, "result", "temporary", float32, (N,)),
)


def step(writes, reads, *scalars):
    record = KernelRecord("k", "0" * 64, "k", (1, 1, 1), (32, 1, 1), 0, len(reads), len(writes), scalars)
    return KernelStep(record, tuple(writes), tuple(reads))


def plan(root, *outputs, buffers=BUFFERS):
    if "made" not in bound_symbols(root):
        buffers = tuple(replace(b, shape=(N, N)) if b.id == ROWS else b for b in buffers)
    inputs = tuple(Port(b.name, b.dtype, b.shape, b.id) for b in buffers[:3])
    ports = tuple(Port(buffers[at].name, buffers[at].dtype, buffers[at].shape, at) for at in outputs)
    return Plan("sm_90", buffers, inputs, ports, root, {"n": Range(1, 4, 64)})


LOOP = Loop(
    trip="t",
    trips=symbol("n") + 3,
    body=Segment((step([NEXT, ON], [STATE, X], T, N),)),
    carried=(Carried(X, STATE, NEXT, RESULT),),
    rows=(Row(NEXT, ROWS),),
    condition=(GO, ON),
    count="made",
)
BRANCH = If(GO, Segment((step([NEXT], [X]),)), Segment(()), (Merged(NEXT, X, OUT),))
SIZE = Size("s", FOUND, 0, N * 2)

SOUND = {
    "loop with everything": plan(LOOP, RESULT, ROWS),
    "counted loop": plan(replace(LOOP, condition=None, count=None, rows=()), RESULT),
    "endless loop": plan(replace(LOOP, trips=None), RESULT),
    "branch": plan(BRANCH, OUT),
    "size, then a kernel with it": plan(Sequence((SIZE, Segment((step([OUT], [X], S),)))), OUT),
    "the count, used later": plan(Sequence((LOOP, Segment((step([OUT], [ROWS], COUNT),)))), OUT),
    "state handed on": plan(replace(LOOP, rows=(), carried=(Carried(X, STATE, STATE, RESULT),)), RESULT),
    "next is an input": plan(replace(LOOP, rows=(), carried=(Carried(X, STATE, X, RESULT),)), RESULT),
    "one size in both branches": plan(
        replace(BRANCH, then=Sequence((SIZE, BRANCH.then)), otherwise=Sequence((SIZE, BRANCH.otherwise))), OUT
    ),
    "a buffer written twice": plan(Sequence((Segment((step([OUT], [X]), step([OUT], [X]))), BRANCH.then, SIZE)), OUT),
    "loop in a branch in a loop": plan(
        replace(LOOP, body=Sequence((If(GO, Loop("u", T + 1, Segment((step([OTHER], [X], symbol("u")),))), Segment(())), LOOP.body))),
        RESULT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_sound_trees_are_valid_and_survive_json(name):
    held = SOUND[name]
    held.validate()
    assert Plan.from_json(json.loads(json.dumps(held.to_json()))) == held
    assert has_control(held.root) and not has_control(Sequence((Segment(()),)))


def test_steps_walk_every_body_once_in_order():
    first, body, then, otherwise = (step([NEXT], [X], number) for number in range(4))
    inner = If(GO, Segment((then,)), Sequence((Segment((otherwise,)),)))
    tree = Sequence((Segment((first,)), replace(LOOP, body=Sequence((Segment((body,)), inner))), SIZE))
    assert list(plan(tree).steps()) == [first, body, then, otherwise]
    assert bound_symbols(tree) == {"t", "made", "s"}


def body(*steps, **changes):
    return plan(replace(LOOP, body=Segment(steps), **changes), RESULT)


FOUND_WRONG = {
    "neither a number of trips nor a condition": body(trips=None, condition=None, count=None, rows=()),
    "counts its trips, which only": body(condition=None),
    "so it must count its trips": body(step([NEXT, ON], [X]), count=None),
    "step 0 needs dim t, which has no value": plan(Sequence((Segment((step([OUT], [X], T),)), LOOP)), OUT),
    "step 1 needs dim t, which has no value": plan(Sequence((LOOP, Segment((step([OUT], [X], T),)))), OUT),
    "step 0 needs dim made": body(step([NEXT, ON], [X], COUNT)),
    "step 0 needs dim s": plan(Sequence((Segment((step([OUT], [X], S),)), SIZE)), OUT),
    "step 1 reads buffer 3 before": plan(Sequence((LOOP, Segment((step([OUT], [NEXT]),)))), OUT),
    "step 0 reads buffer 8 before": plan(Sequence((Segment((step([OUT], [STATE]),)), LOOP)), OUT),
    "step 1 writes buffer 7, written outside": plan(
        Sequence((Segment((step([OTHER], [X]),)), replace(LOOP, body=Segment((step([OTHER, NEXT, ON], [X]),))))), OUT
    ),
    "step 0 writes buffer 8, which a loop or branch gives": body(step([STATE, NEXT, ON], [X])),
    "step 0 writes buffer 0, an input or weight": body(step([X, NEXT, ON], [X])),
    "step 1 writes buffer 9, which a loop or branch gives": plan(Sequence((LOOP, Segment((step([RESULT], [X]),)))), X),
    "step 2 writes buffer 7, which the result of a loop": plan(
        Sequence(
            (
                Segment((step([OTHER], [X]),)),
                replace(LOOP, carried=(Carried(OTHER, STATE, NEXT, RESULT),)),
                Segment((step([OTHER], [X]),)),
            )
        ),
        X,
    ),
    "step 1 writes buffer 3, written in another body": plan(
        replace(BRANCH, otherwise=Segment((step([NEXT], [X]),))), OUT
    ),
    "step 2 writes buffer 7, which the result of a loop or branch": plan(
        Sequence(
            (
                Segment((step([OTHER], [X]),)),
                replace(BRANCH, results=(Merged(NEXT, OTHER, OUT),)),
                Segment((step([OTHER], [X]),)),
            )
        ),
        OUT,
    ),
    "reads buffer 3 before": body(step([ON], [X])),
    "loop 0 over 't' reads buffer 4 before": body(step([NEXT], [X])),
    "loop 0 over 't' looks at buffer 3, float32.n.: expected one bool": body(step([NEXT], [X]), condition=(GO, NEXT)),
    "sets buffer 3, which holds another": body(step([NEXT, ON], [X]), carried=(Carried(X, STATE, NEXT, NEXT),)),
    "sets buffer 0, which holds another": body(step([NEXT, ON], [X]), carried=(Carried(X, X, NEXT, RESULT),)),
    "buffer 1 is bool..*expected float32": body(step([NEXT, ON], [X]), carried=(Carried(X, STATE, GO, RESULT),)),
    "loop 1 over 't' sets dim 't', which has a value": plan(replace(LOOP, body=LOOP), RESULT),
    "size 's' sets dim 's', which has a value": plan(Sequence((SIZE, SIZE)), X),
    "size 's' looks at buffer 0": plan(replace(SIZE, buffer=X), X),
    "size 's' needs dim t": plan(Sequence((replace(SIZE, most=T), LOOP)), X),
    "branch 0 looks at buffer 2": plan(replace(BRANCH, condition=FOUND), OUT),
    "branch 0 reads buffer 3 before": plan(replace(BRANCH, then=Segment(())), OUT),
    "branch 0 sets buffer 1": plan(replace(BRANCH, results=(Merged(NEXT, X, GO),)), X),
    "output 'out' is never written": plan(SIZE, OUT),
    "output 'next' is never written": plan(BRANCH, NEXT),
    "names buffer 77": plan(replace(BRANCH, condition=77), OUT),
}  # fmt: skip


@pytest.mark.parametrize("message", FOUND_WRONG)
def test_unsound_trees_are_told(message):
    with pytest.raises(LuminalError, match=message):
        FOUND_WRONG[message].validate()


def test_every_dim_has_a_value_somewhere():
    with pytest.raises(LuminalError, match=r"buffer 6 \('rows'\) has dim made, which is the size of no input and which no"):
        replace(plan(BRANCH, OUT), buffers=BUFFERS).validate()


def test_a_shape_may_not_change_from_trip_to_trip():
    growing = tuple(replace(b, shape=(T,)) if b.id in (NEXT, STATE, X, RESULT) else b for b in BUFFERS)
    with pytest.raises(LuminalError, match="buffer 8 changes from trip to trip"):
        changed = plan(replace(LOOP, rows=()), RESULT, buffers=growing)
        replace(changed, inputs=changed.inputs[1:]).validate()


def test_an_input_cannot_have_a_size_that_the_plan_sets():
    with pytest.raises(LuminalError, match="dim n is both the size of an input and set by the plan"):
        plan(replace(SIZE, symbol="n"), X).validate()
