"""Cases of control flow: plans written by hand, feeds, and what NumPy says comes out."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from control_plans import Case, Maker, block, bump, less, mix, mixed, pick, seen
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import bool_, float32
from luminal_onnx.plan.lt import LtMatmul
from luminal_onnx.plan.records import Carried, If, Loop, LtStep, Merged, Row, Size

N, T, U, STEPS, S, MADE = (symbol(name) for name in ("n", "t", "u", "steps", "s", "made"))
RANGES = {"n": Range(0, 4, 64), "steps": Range(0, 4, 64)}
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def sequences(*sizes: tuple[int, int]) -> list[dict[str, np.ndarray]]:
    """Feeds of an `x` of steps × n and an `h` of n."""
    return [{"x": values(steps, n), "h": values(n, seed=1)} for steps, n in sizes]


TRIPS = ((3, 4), (0, 4), (1, 4), (2, 5), (7, 8), (4, 1), (5, 33), (3, 0), (0, 0))


@case
def swap_of_two_states() -> Case:
    m = Maker()
    _, h = m.input("x", STEPS, N), m.input("h", N)
    p, q, last_p, last_q, first, other, both = (m.temp(N) for _ in range(7))
    loop = Loop("t", STEPS, block(mix(both, p, q, N, t=T)), (Carried(first, p, q, last_p), Carried(h, q, p, last_q)))
    plan = m.plan([mix(first, h, h, N, t=5), loop, mix(other, last_p, last_q, N)], [last_p, last_q, other], **RANGES)

    def expected(x, h):
        p, q = mixed(h, h, 5), h
        for _ in range(len(x)):
            p, q = q, p
        return [p, q, mixed(p, q)]

    return Case(plan, {}, sequences(*TRIPS), expected)


@case
def state_passed_on_unchanged() -> Case:
    m = Maker()
    _, h = m.input("x", STEPS, N), m.input("h", N)
    kept, kept_to, state, state_to, new = (m.temp(N) for _ in range(5))
    loop = Loop(
        "t",
        STEPS,
        block(mix(new, state, kept, N, t=T)),
        (Carried(h, kept, kept, kept_to), Carried(h, state, new, state_to)),
    )
    plan = m.plan(loop, [kept_to, state_to], **RANGES)

    def expected(x, h):
        state = h
        for t in range(len(x)):
            state = mixed(state, h, t)
        return [h, state]

    return Case(plan, {}, sequences(*TRIPS), expected)


@case
def next_is_a_weight_or_an_input() -> Case:
    m = Maker()
    _, h, g = m.input("x", STEPS, 4), m.input("h", 4), m.input("g", 4)
    w = m.weight("w", values(4, seed=9))
    a, a_to, b, b_to, new = (m.temp(4) for _ in range(5))
    rows = m.temp(STEPS, 4)
    loop = Loop(
        "t", STEPS, block(mix(new, a, b, 4, t=T)), (Carried(h, a, w, a_to), Carried(h, b, g, b_to)), (Row(new, rows),)
    )
    plan = m.plan(loop, [a_to, b_to, rows], steps=RANGES["steps"])

    def expected(x, h, g):
        w = values(4, seed=9)
        rows = [mixed(h, h) if t == 0 else mixed(w, g, t) for t in range(len(x))]
        return [w if len(x) else h, g if len(x) else h, np.array(rows).reshape(len(x), 4)]

    return Case(
        plan, m.weights, [{**feeds, "g": values(4, seed=3)} for feeds in sequences((3, 4), (1, 4), (0, 4))], expected
    )


@case
def recurrence_with_rows() -> Case:
    """The state is each trip's row: written where rows are collected if their bytes are aligned, else copied there."""
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    state, new, last, twice = (m.temp(N) for _ in range(4))
    rows, again, doubled = (m.temp(STEPS, N) for _ in range(3))
    body = [mix(new, state, x, N, at_b=T * N, t=T), mix(twice, new, new, N)]
    collected = (Row(new, rows), Row(new, again), Row(twice, doubled))
    loop = Loop("t", STEPS, block(body), (Carried(h, state, new, last),), collected)
    plan = m.plan(loop, [rows, last, again, doubled], **RANGES)

    def expected(x, h):
        rows = []
        for t, row in enumerate(x):
            h = mixed(h, row, t)
            rows.append(h)
        rows = np.array(rows).reshape(x.shape)
        return [rows, h, rows, mixed(rows, rows)]

    return Case(plan, {}, sequences(*TRIPS), expected)


@case
def rows_of_states_and_of_the_outside() -> Case:
    """Rows that the body does not write: a state, an input, and a state that was another state before."""
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    one, two, three, new, to_one, to_two, to_three = (m.temp(N) for _ in range(7))
    r1, r2, r3, rh = (m.temp(STEPS, N) for _ in range(4))
    loop = Loop(
        "t", STEPS, block([mix(new, one, x, N, at_b=T * N)]),
        (Carried(h, one, new, to_one), Carried(h, two, one, to_two), Carried(h, three, two, to_three)),
        (Row(one, r1), Row(two, r2), Row(three, r3), Row(h, rh)),
    )  # fmt: skip
    plan = m.plan(loop, [r1, r2, r3, rh, to_one, to_two, to_three], **RANGES)

    def expected(x, h):
        found, one, two, three = [], h, h, h
        for row in x:
            found.append((one, two, three, h))
            one, two, three = mixed(one, row), one, two
        collected = [np.array([held[at] for held in found]).reshape(x.shape) for at in range(4)]
        return [*collected, one, two, three]

    return Case(plan, {}, sequences(*TRIPS), expected)


@case
def value_changed_within_a_trip() -> Case:
    """A buffer of the body that two steps write, and whose value is carried."""
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    state, new, last = (m.temp(N) for _ in range(3))
    body = block([mix(new, state, x, N, at_b=T * N), bump(new, state, N), bump(new, h, N)])
    plan = m.plan(Loop("t", STEPS, body, (Carried(h, state, new, last),)), [last], **RANGES)

    def expected(x, h):
        state = h
        for row in x:
            state = mixed(state, row) + state + h
        return [state]

    return Case(plan, {}, sequences((0, 3), (1, 4), (2, 7), (4, 5)), expected)


@case
def memory_that_is_free_within_a_trip() -> Case:
    """What is dead at a place of the body is overwritten there, but not a state that is read further on, nor a value from
    outside that the next trip reads again."""
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    outside, state, new, last, result = (m.temp(N) for _ in range(5))
    a, b, c, d, e = (m.temp(N) for _ in range(5))
    body = [mix(a, outside, x, N, at_b=T * N), mix(b, a, a, N), mix(c, b, b, N), mix(new, state, c, N, t=T)]
    body += [mix(d, new, new, N), mix(e, d, d, N)]
    loop = Loop("t", STEPS, block(body), (Carried(h, state, new, last),))
    inner = Loop("u", 2, block([loop]), (Carried(h, m.temp(N), last, result),))
    plan = m.plan([mix(outside, h, h, N, t=4), inner], [result], **RANGES)

    def expected(x, h):
        outside = mixed(h, h, 4)
        for _ in range(2):
            state = h
            for t, row in enumerate(x):
                c = mixed(outside, row)
                for _ in range(2):
                    c = mixed(c, c)
                state = mixed(state, c, t)
            result = state
        return [result]

    return Case(plan, {}, sequences(*TRIPS), expected)


@case
def nested_loops() -> Case:
    """The inner loop's number of trips depends on the outer one's; its rows are one row of the outer loop."""
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    outer, inner, new, inner_to, outer_to = (m.temp(N) for _ in range(5))
    inner_rows, rows = m.temp(3, N), m.temp(STEPS, 3, N)
    last, last_to = m.temp(N), m.temp(N)
    body = [mix(new, inner, x, N, at_b=T * N, t=T * 3 + U)]
    three = Loop("u", 3, block(body), (Carried(outer, inner, new, inner_to),), (Row(new, inner_rows),))
    state, kept = m.temp(N), m.temp(N)
    more = Loop("v", T, block([mix(kept, state, inner_rows, N, at_b=symbol("v") * N - 0 * N)]),
                (Carried(inner_to, state, kept, last),))  # fmt: skip
    loop = Loop("t", STEPS, block([three, more]), (Carried(h, outer, last, outer_to),), (Row(inner_rows, rows),))
    plan = m.plan([loop, mix(last_to, outer_to, h, N)], [rows, outer_to, last_to], **RANGES)

    def expected(x, h):
        state, rows = h, []
        for t, row in enumerate(x):
            block = []
            for u in range(3):
                state = mixed(state, row, t * 3 + u)
                block.append(state)
            rows.append(block)
            for v in range(t):
                state = mixed(state, block[v])
        return [np.array(rows).reshape(len(x), 3, len(h)), state, mixed(state, h)]

    return Case(plan, {}, sequences((0, 4), (1, 4), (2, 5), (3, 8), (4, 3)), expected)


def halving(trips, count: bool = True, limit: int = 0):
    """while v[0] >= 0 …: a loop with a condition, its number of trips and its rows."""
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    go = m.input("go", dtype=bool_)
    state, new, last = (m.temp(N) for _ in range(3))
    on = m.flag()
    rows, after = (m.temp(MADE, N), m.temp(MADE, N)) if count else (0, 0)
    body = block([mix(new, state, x, N, at_b=T * N, t=T), less(on, new, 1)])
    loop = Loop(
        "t",
        trips,
        body,
        (Carried(h, state, new, last),),
        (Row(new, rows),) if count else (),
        (go, on),
        "made" if count else None,
    )
    tree = [loop, mix(after, rows, rows, MADE * N)] if count else loop
    ranges = {**RANGES, "made": Range(0, 4, 9)} if trips is None and count else RANGES
    return m, m.plan(tree, [rows, after, last] if count else [last], **ranges)


def while_expected(x, h, go, most):
    rows, state = [], h
    while go and len(rows) < most:
        state = mixed(state, x[len(rows)], len(rows))
        rows.append(state)
        go = state[0] < 1
    return rows, state


def rising(steps: int, n: int, go: bool, scale: float) -> dict[str, np.ndarray]:
    return {"x": np.abs(values(steps, n)) * np.float32(scale), "h": values(n, seed=1), "go": np.array(go)}


@case
def loop_with_a_condition_and_a_limit() -> Case:
    _, plan = halving(STEPS)

    def expected(x, h, go):
        rows, state = while_expected(x, h, bool(go), len(x))
        rows = np.array(rows, np.float32).reshape(len(rows), len(h))
        return [rows, mixed(rows, rows), state]

    feeds = [
        rising(7, 4, True, 2),
        rising(7, 4, False, 2),
        rising(0, 4, True, 1),
        rising(9, 5, True, 3),
        rising(3, 1, True, 0),
    ]
    feeds += [rising(40, 8, True, 0.01), rising(2, 4, True, 90)]
    reads = lambda x, h, go: 1 + len(while_expected(x, h, bool(go), len(x))[0])  # noqa: E731
    return Case(plan, {}, feeds, expected, reads)


@case
def loop_with_a_condition_only() -> Case:
    _, plan = halving(None, count=False)

    def expected(x, h, go):
        return [while_expected(x, h, bool(go), 10**9)[1]]

    feeds = [rising(12, 4, True, 2), rising(12, 5, False, 2), rising(12, 1, True, 3)]
    return Case(plan, {}, feeds, expected, lambda x, h, go: 1 + len(while_expected(x, h, bool(go), 10**9)[0]))


@case
def loop_counted_up_to_a_range() -> Case:
    """No limit of its own, but the range of its count says for how many rows there must be room."""
    _, plan = halving(None)

    def expected(x, h, go):
        rows, state = while_expected(x, h, bool(go), 10**9)
        rows = np.array(rows, np.float32).reshape(len(rows), len(h))
        return [rows, mixed(rows, rows), state]

    feeds = [rising(12, 4, True, 2), rising(12, 5, False, 2), rising(12, 1, True, 3)]
    return Case(plan, {}, feeds, expected, lambda x, h, go: 1 + len(while_expected(x, h, bool(go), 10**9)[0]))


@case
def branches_both_ways_and_nested() -> Case:
    m = Maker()
    x, a, b = m.input("x", N), m.input("a", dtype=bool_), m.input("b", dtype=bool_)
    inner_then, outer_then, other, late = (m.temp(N) for _ in range(4))
    inner, one, two, sum_, before = (m.temp(N) for _ in range(5))
    nested = If(b, block([mix(inner_then, outer_then, before, N, t=2)]), block([]),
                (Merged(inner_then, outer_then, inner),))  # fmt: skip
    branch = If(
        a, block([mix(outer_then, x, before, N, t=1), nested]), block([mix(other, before, x, N, t=3), mix(late, other, x, N)]),
        (Merged(inner, other, one), Merged(x, late, two)),
    )  # fmt: skip
    plan = m.plan([mix(before, x, x, N, t=9), branch, mix(sum_, one, two, N)], [one, two, sum_, before], n=RANGES["n"])

    def expected(x, a, b):
        before = mixed(x, x, 9)
        if a:
            one, two = mixed(x, before, 1), x
            one = mixed(one, before, 2) if b else one
        else:
            one = mixed(before, x, 3)
            two = mixed(one, x)
        return [one, two, mixed(one, two), before]

    feeds = [
        {"x": values(n, seed=4), "a": np.array(a), "b": np.array(b)}
        for n, a, b in ((4, 1, 1), (5, 1, 0), (6, 0, 1), (7, 0, 0), (1, 1, 1))
    ]
    feeds = [{**f, "a": f["a"].astype(bool), "b": f["b"].astype(bool)} for f in feeds]
    return Case(plan, {}, feeds, expected, lambda x, a, b: 2 if a else 1)


@case
def branches_of_different_shapes() -> Case:
    """Each branch says how long its result is; what comes after knows that as a size."""
    m = Maker()
    x, go = m.input("x", N), m.input("go", dtype=bool_)
    short, long, result, doubled = m.temp(N), m.temp(N * 2), m.temp(S), m.temp(S)
    ones, twice, one, two, count = m.temp(N), m.temp(N * 2), m.number(), m.number(), m.number()
    then = block([mix(short, x, x, N, t=1), mix(ones, x, x, N, t=999), seen(one, ones, N)])
    half, rest = m.temp(N), m.temp(2, N)
    copies = Loop("u", 2, block(mix(half, x, x, N, t=U)), (), (Row(half, rest),))
    otherwise = block(
        [copies, mix(long, rest, rest, N * 2), mix(twice, rest, rest, N * 2, t=999), seen(two, twice, N * 2)]
    )
    branch = If(go, then, otherwise, (Merged(short, long, result), Merged(one, two, count)))
    tree = [branch, Size("s", count, 0, N * 2), mix(doubled, result, result, S)]
    plan = m.plan(tree, [result, doubled], n=RANGES["n"])

    def expected(x, go):
        rest = np.concatenate([mixed(x, x, 0), mixed(x, x, 1)])
        result = mixed(x, x, 1) if go else mixed(rest, rest)
        return [result, mixed(result, result)]

    feeds = [{"x": values(n, seed=n), "go": np.array(go, bool)} for n in (4, 9, 13, 1) for go in (0, 1)]
    return Case(plan, {}, feeds, expected, lambda x, go: 2)


@case
def branch_in_a_loop() -> Case:
    """The state changes in some trips only, so that it may be many trips old; the loop itself has no condition."""
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    state, new, merged, last, also, also_to = (m.temp(N) for _ in range(6))
    rows = m.temp(STEPS, N)
    on = m.flag()
    change = If(on, block([mix(new, state, x, N, at_b=T * N, t=T)]), block([]), (Merged(new, state, merged),))
    body = block([less(on, x, 0, at=T * N), change])
    loop = Loop(
        "t", STEPS, body, (Carried(h, state, merged, last), Carried(h, also, state, also_to)), (Row(merged, rows),)
    )
    plan = m.plan(loop, [rows, last, also_to], **RANGES)

    def expected(x, h):
        state, also, rows = h, h, []
        for t, row in enumerate(x):
            also = state
            state = mixed(state, row, t) if row[0] < 0 else state
            rows.append(state)
        return [np.array(rows).reshape(x.shape), state, also]

    return Case(plan, {}, sequences((0, 4), (1, 4), (6, 4), (9, 5), (30, 3)), expected, lambda x, h: len(x))


@case
def size_then_a_kernel_and_an_output_of_it() -> Case:
    m = Maker()
    x = m.input("x", N)
    count, picked, doubled, whole = m.number(), m.temp(S), m.temp(S), m.temp(N)
    plan = m.plan(
        [seen(count, x, N), Size("s", count, 0, N), pick(picked, x, N, S), mix(doubled, picked, x, S), mix(whole, x, x, N)],
        [picked, doubled, count, whole], n=RANGES["n"],
    )  # fmt: skip

    def expected(x):
        picked = x[x > 0]
        return [picked, mixed(picked, x[: len(picked)]), np.array(len(picked)), mixed(x, x)]

    feeds = [{"x": values(n, seed=2)} for n in (4, 1, 9, 64)] + [
        {"x": -np.abs(values(7))},
        {"x": np.abs(values(7)) + 1},
    ]
    return Case(plan, {}, feeds, expected, lambda x: 1)


@case
def sizes_of_sizes_in_a_loop() -> Case:
    """In each trip a size is found; the second one is bounded by the first."""
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    row, count, picked, again, fewer, lowered = (
        m.temp(N),
        m.number(),
        m.temp(S),
        m.number(),
        m.temp(symbol("r")),
        m.temp(S),
    )
    state, new, last = m.temp(N), m.temp(N), m.temp(N)
    body = [
        mix(row, x, state, N, at_a=T * N), seen(count, row, N), Size("s", count, 0, N), pick(picked, row, N, S),
        mix(lowered, picked, picked, S, t=-3), seen(again, lowered, S), Size("r", again, 0, S), pick(fewer, lowered, S, symbol("r")),
        mix(new, state, row, N), bump(new, fewer, symbol("r")),
    ]  # fmt: skip
    loop = Loop("t", STEPS, block(body), (Carried(h, state, new, last),))
    plan = m.plan(loop, [last], **RANGES)

    def expected(x, h):
        for row in x:
            row = mixed(row, h)
            picked = row[row > 0]
            lowered = mixed(picked, picked, -3)
            fewer = lowered[lowered > 0]
            h = mixed(h, row)
            h[: len(fewer)] += fewer
        return [h]

    return Case(plan, {}, sequences((0, 4), (1, 9), (3, 5), (4, 64)), expected, lambda x, h: 2 * len(x))


@case
def loop_in_a_branch_after_a_size() -> Case:
    """A loop makes as many trips as a size says, in a branch; the rows of a run's size are an output."""
    m = Maker()
    x, go = m.input("x", N), m.input("go", dtype=bool_)
    count, state, new, last, result = m.number(), m.temp(N), m.temp(N), m.temp(N), m.temp(N)
    rows, merged = m.temp(S, N), m.temp(S, N)
    blank, written = m.temp(S, N), m.temp(N)
    loop = Loop("t", S, block([mix(new, state, x, N, t=T)]), (Carried(x, state, new, last),), (Row(new, rows),))
    outside = Loop("q", S, block([mix(written, x, x, N, t=symbol("q"))]), (), (Row(written, blank),))
    branch = If(go, block([loop]), block([outside]), (Merged(last, x, result), Merged(rows, blank, merged)))
    plan = m.plan([seen(count, x, N), Size("s", count, 0, N), branch], [result, merged], n=RANGES["n"])

    def expected(x, go):
        trips, state, rows = int((x > 0).sum()), x, []
        for t in range(trips):
            state = mixed(state, x, t)
            rows.append(state if go else mixed(x, x, t))
        return [state if go else x, np.array(rows).reshape(trips, len(x))]

    feeds = [{"x": values(n, seed=n), "go": np.array(go, bool)} for n in (4, 9, 13, 1) for go in (0, 1)]
    return Case(plan, {}, feeds, expected, lambda x, go: 2)


@case
def everything_at_once() -> Case:
    """A size, a loop that it bounds and a condition ends, its rows and its count, then a branch."""
    m = Maker()
    x, go = m.input("x", N), m.input("go", dtype=bool_)
    w = m.weight("w", np.array([0.25], np.float32))
    count, state, new, last, on = m.number(), m.temp(N), m.temp(N), m.temp(N), m.flag()
    rows, doubled, other, result = m.temp(MADE, N), m.temp(MADE, N), m.temp(N), m.temp(N)
    body = block([mix(new, state, x, N, t=T), bump(new, w, 1), less(on, new, 1)])
    loop = Loop("t", S, body, (Carried(x, state, new, last),), (Row(new, rows),), (go, on), "made")
    branch = If(go, block([mix(other, last, x, N)]), block([]), (Merged(other, x, result),))
    tree = [seen(count, x, N), Size("s", count, 0, N), loop, mix(doubled, rows, rows, MADE * N), branch]
    plan = m.plan(tree, [rows, doubled, last, result, count], n=RANGES["n"])

    def expected(x, go):
        state, rows = x, []
        on = bool(go)
        while on and len(rows) < (x > 0).sum():
            state = mixed(state, x, len(rows))
            state[0] += 0.25
            rows.append(state)
            on = state[0] < 1
        rows = np.array(rows, np.float32).reshape(-1, len(x))
        return [rows, mixed(rows, rows), state, mixed(state, x) if go else x, np.array((x > 0).sum())]

    feeds = [{"x": values(n, seed=n), "go": np.array(go, bool)} for n in (4, 9, 13, 1) for go in (0, 1)]
    return Case(plan, m.weights, feeds, expected, lambda x, go: 3 + len(expected(x, go)[0]))


@case
def growing_temporary() -> Case:
    """A value of the body that is longer in each trip."""
    m = Maker()
    x, h = m.input("x", N), m.input("h", N)
    part, state, new, last = m.temp(T + 1), m.temp(N), m.temp(N), m.temp(N)
    body = [mix(part, x, state, T + 1, t=T), mix(new, state, x, N), bump(new, part, T + 1)]
    plan = m.plan(Loop("t", N, block(body), (Carried(h, state, new, last),)), [last], n=RANGES["n"])

    def expected(x, h):
        for t in range(len(x)):
            part = mixed(x, h, t)[: t + 1]
            h = mixed(h, x)
            h[: t + 1] += part
        return [h]

    return Case(plan, {}, [{"x": values(n), "h": values(n, seed=1)} for n in (1, 4, 7)], expected)


@case
def matrix_products_in_a_loop() -> Case:
    """A recurrence by the library: offsets and scalars follow the trip."""
    m = Maker()
    width = 5
    x, h = m.input("x", STEPS, N, width), m.input("h", N, width)
    w = m.weight("w", values(width, width, seed=5))
    state, product, new, last = (m.temp(N, width) for _ in range(4))
    rows = m.temp(STEPS, N, width)
    matmul = LtMatmul(
        m=width, n=N, k=width, transpose_a=False, transpose_b=False, order_a="col", order_b="col", order_d="col",
        lda=width, ldb=width, ldd=width, batch=1, stride_a=0, stride_b=0, stride_d=0,
        type_a=float32, type_b=float32, type_d=float32, offset_b=T * N * width,
    )  # fmt: skip
    body = block([LtStep(matmul, (product,), (w, x), ("gemm",)), mix(new, product, state, N * width)])
    plan = m.plan(Loop("t", STEPS, body, (Carried(h, state, new, last),), (Row(new, rows),)), [rows, last], **RANGES)

    def expected(x, h):
        rows = []
        for row in x:
            h = mixed(row @ values(width, width, seed=5), h)
            rows.append(h)
        return [np.array(rows).reshape(x.shape), h]

    feeds = [
        {"x": values(steps, n, width), "h": values(n, width, seed=2)} for steps, n in ((3, 4), (0, 2), (5, 1), (2, 7))
    ]
    return Case(plan, m.weights, feeds, expected)


@case
def outputs_that_share() -> Case:
    """One value under several names, in and out of a loop, and an output that is an input where no trip was made."""
    m = Maker()
    x, h = m.input("x", STEPS, N), m.input("h", N)
    a, b, new, to_a, to_b = (m.temp(N) for _ in range(5))
    rows = m.temp(STEPS, N)
    loop = Loop("t", STEPS, block([mix(new, a, x, N, at_b=T * N)]),
                (Carried(h, a, new, to_a), Carried(h, b, new, to_b)), (Row(new, rows),))  # fmt: skip
    plan = m.plan(loop, [to_a, to_b, to_a, rows, h, rows], **RANGES)

    def expected(x, h):
        state, rows = h, []
        for row in x:
            state = mixed(state, row)
            rows.append(state)
        rows = np.array(rows).reshape(x.shape)
        return [state, state, state, rows, h, rows]

    return Case(plan, {}, sequences(*TRIPS), expected)


if __name__ == "__main__":  # writes data/format_v2.luminal, which must always load: keep it when the code changes
    from pathlib import Path

    from control_plans import write

    write(Path(sys.argv[1]), everything_at_once())
