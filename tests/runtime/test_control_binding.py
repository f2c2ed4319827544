"""Where bound plans put the values of loops and branches, and what they launch: nothing is copied that can be handed on."""

from __future__ import annotations

import time

import pytest
from control_cases import CASES, MADE, RANGES, STEPS, N, S, T, halving
from control_plans import Maker, block, mix, pick, seen
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.errors import LuminalError
from luminal_onnx.plan.records import Carried, Loop, Plan, Port, Row, Size
from luminal_onnx.runtime.binding import bind, plan_memory_for
from luminal_onnx.runtime.launches import CopyLaunch, KernelLaunch


def copies(bound):
    return [launch for launch in bound.passage.launches if isinstance(launch, CopyLaunch)]


def recurrence(rows: bool = True, steps: int = 5) -> Plan:
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    state, new, last, *between = (m.temp(N) for _ in range(steps + 2))
    collected = m.temp(STEPS, N)
    chain = [state, *between, new]
    body = [mix(b, a, x, N, at_b=T * N, t=T) if b == chain[1] else mix(b, a, a, N) for a, b in zip(chain, chain[1:])]
    loop = Loop("t", STEPS, block(body), (Carried(h, state, new, last),), (Row(new, collected),) if rows else ())
    return m.plan(loop, [collected, last] if rows else [last], steps=Range(0, 4, 4096), n=RANGES["n"])


def test_a_state_takes_turns_between_two_places():
    bound = bind(recurrence(rows=False, steps=1), {"steps": 6, "n": 4})
    launches = bound.passage.launches
    assert len(launches) == 6 and not bound.in_parts
    written = [launch.writes[0] for launch in launches]
    assert written == [written[0], written[1]] * 3 and written[0] != written[1]
    assert [launch.reads[0] for launch in launches] == [1, *written[:-1]]  # the first trip reads the input itself
    assert bound.outcome.slots == (written[-1],)
    assert bound.memory.peak_bytes == 2 * 256


def test_aligned_rows_are_written_in_place_and_odd_ones_are_copied():
    plan = recurrence(steps=1)
    aligned, odd = (bind(plan, {"steps": 7, "n": n}) for n in (4, 5))
    assert not copies(aligned) and len(aligned.passage.launches) == 7
    assert aligned.memory.peak_bytes == 0  # the state is the row of the trip before
    rows = [aligned.slots.piece_at(launch.writes[0]) for launch in aligned.passage.launches]
    assert [row.offset for row in rows] == [16 * trip for trip in range(7)] and len({row.base for row in rows}) == 1
    assert [copy.bytes for copy in copies(odd)] == [20] * 7
    places = [odd.slots.piece_at(copy.writes[0]).offset for copy in copies(odd)]
    assert places == [20 * trip for trip in range(7)]


@pytest.mark.parametrize(
    "name", ["swap_of_two_states", "nested_loops", "outputs_that_share", "state_passed_on_unchanged"]
)
def test_handing_on_copies_nothing(name):
    case = CASES[name]()
    assert not copies(bind(case.plan, {"steps": 9, "n": 4}))


def test_no_trip_launches_nothing():
    bound = bind(recurrence(), {"steps": 0, "n": 4})
    assert bound.passage.launches == () and bound.outcome.shapes == ((0, 4), (4,))


def test_memory_does_not_grow_with_the_trips():
    plan = recurrence(rows=False)
    few, many = (bind(plan, {"steps": steps, "n": 64}).memory for steps in (2, 1000))
    assert few == many and few.peak_bytes < 5 * 256  # two for the state, two for what is between


def test_a_thousand_trips_are_bound_quickly():
    plan = recurrence()

    def seconds() -> float:
        begin = time.process_time()
        bound = bind(plan, {"steps": 1000, "n": 5})
        assert len(bound.passage.launches) == 6000
        return time.process_time() - begin

    best = min(seconds() for _ in range(4))
    assert best < 0.1, f"{best * 1e3:.1f} ms"


def test_the_first_to_write_in_a_trip_is_told_from_the_later_ones():
    case = CASES["value_changed_within_a_trip"]()
    launches = [
        item for item in bind(case.plan, {"steps": 4, "n": 4}).passage.launches if isinstance(item, KernelLaunch)
    ]
    assert [bool(launch.begins) for launch in launches] == [True, False, False] * 4
    assert all(launches[at].writes == launches[at + 1].writes == launches[at + 2].writes for at in range(0, 12, 3))
    assert [launch.late["t"] for launch in launches] == [trip for trip in range(4) for _ in range(3)]


def test_a_size_of_the_run_gets_room_for_the_most():
    plan = CASES["size_then_a_kernel_and_an_output_of_it"]().plan
    bound = bind(plan, {"n": 9})
    assert bound.in_parts and bound.outcome is None
    by_name = {buffer.name: buffer for buffer in plan.buffers}
    picked = by_name["t2"]
    assert picked.shape == (S,) and bound.sizes[picked.id] == 9 * 4
    assert bound.bytes_at(picked.id, {}) is None and bound.bytes_at(picked.id, {"s": 2}) == 8


def test_peak_memory_is_known_where_a_run_decides():
    plan = CASES["sizes_of_sizes_in_a_loop"]().plan
    small, large = (plan_memory_for(plan, {"n": n, "steps": 3, "s": 1}).peak_bytes for n in (64, 640))
    assert 0 < small < large


def test_what_has_no_bound_is_refused():
    _, plan = halving(None)
    unbounded = Plan(plan.arch, plan.buffers, plan.inputs, plan.outputs, plan.root, RANGES)
    with pytest.raises(
        LuminalError, match=r"buffer 't\d' of float32\[made, n\] has no largest size: nothing bounds made"
    ):
        bind(unbounded, {"steps": 12, "n": 4})
    bound = bind(plan, {"steps": 12, "n": 4})
    assert max(bound.sizes.values()) == 12 * 4 * 4 and bound.sizes[plan.outputs[0].buffer] == 9 * 4 * 4
    assert MADE in plan.outputs[0].shape


def test_carried_values_must_have_one_size():
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    state, new, last = m.temp(N), m.temp(N + STEPS), m.temp(N)
    loop = Loop("t", 2, block([mix(new, x, x, N)]), (Carried(h, state, new, last),))
    plan = m.plan(loop, [last], **RANGES)
    plan.validate()
    with pytest.raises(LuminalError, match="hands on values of different bytes: initial 'h' 16, .*, next 't3' 24"):
        bind(plan, {"steps": 2, "n": 4})
    assert bind(plan, {"steps": 0, "n": 4}).outcome.shapes == ((4,),)


def test_rows_must_fill_their_result():
    m = Maker()
    x = m.input("x", STEPS, N)
    new, rows = m.temp(N), m.temp(STEPS, N)
    loop = Loop("t", STEPS + 1, block([mix(new, x, x, N)]), (), (Row(new, rows),))
    plan = m.plan(loop, [rows], **RANGES)
    with pytest.raises(LuminalError, match=r"collects 3 rows of 16 bytes \('t1'\) in 32 \('t2'\)"):
        bind(plan, {"steps": 2, "n": 4})


def test_an_output_must_have_the_size_of_its_buffer():
    plan = recurrence()
    wrong = Port("y", plan.outputs[0].dtype, (STEPS, N + 1), plan.outputs[0].buffer)
    with pytest.raises(LuminalError, match=r"output 'y' is float32\[3, 5\], its buffer holds 48 bytes"):
        bind(Plan(plan.arch, plan.buffers, plan.inputs, (wrong,), plan.root, plan.ranges), {"steps": 3, "n": 4})


def test_sizes_whose_bounds_are_sizes_have_room_too():
    m = Maker()
    x = m.input("x", N)
    one, two, first, second = m.number(), m.number(), m.temp(S), m.temp(symbol("r") * S)
    tree = [seen(one, x, N), Size("s", one, 0, N), pick(first, x, N, S), seen(two, first, S), Size("r", two, 0, S * 2)]
    bound = bind(m.plan(tree, [first], n=RANGES["n"]), {"n": 5})
    assert bound.sizes[second] == 4 * 5 * 10 and bound.sizes[first] == 4 * 5


def test_rows_of_rows_lie_in_place():
    m = Maker()
    x = m.input("x", STEPS, 4)
    new, inner, outer = m.temp(4), m.temp(3, 4), m.temp(STEPS, 3, 4)
    u = symbol("u")
    collect = Loop("u", 3, block([mix(new, x, x, 4, at_a=T * 4, t=u)]), (), (Row(new, inner),))
    plan = m.plan(Loop("t", STEPS, block([collect]), (), (Row(inner, outer),)), [outer], steps=RANGES["steps"])
    bound = bind(plan, {"steps": 2})
    pieces = [bound.slots.piece_at(launch.writes[0]) for launch in bound.passage.launches]
    assert [(piece.base, piece.offset) for piece in pieces] == [(outer, 16 * at) for at in range(6)]
    assert bound.memory.peak_bytes == 0
