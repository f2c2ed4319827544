"""Random trees of loops, branches and sizes: sharing memory changes nothing, to the bit, against a copy of every value."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
import tolerances
from control_plans import GPU_KERNELS, Case, Maker, block, bump, interpret, less, mix, pick, seen, write
from fake_gpu import FakeDriver, install
from luminal_onnx.plan.dims import Dim, Range, symbol
from luminal_onnx.plan.dtypes import bool_
from luminal_onnx.plan.records import Carried, If, Loop, Merged, Row, Size
from luminal_onnx.runtime.session import InferenceSession

N = symbol("n")


@pytest.fixture
def gpu(monkeypatch):
    driver = FakeDriver(GPU_KERNELS)
    driver.library = install(monkeypatch, driver)
    yield driver
    assert not driver.contexts and not driver.live


@dataclass
class Scope:
    """What a body may read, what it may still change, and the symbols that have a value there."""

    vectors: list[int]
    own: list[int]
    trips: list[Dim]
    depth: int

    def inner(self, *vectors: int, trip: Dim | None = None) -> Scope:
        trips = self.trips if trip is None else [*self.trips, trip]
        return Scope([*self.vectors, *vectors], [], trips, self.depth + 1)


class RandomPlan:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.m = Maker()
        self.names = 0
        self.steps = 0
        vectors = [self.m.input(name, N) for name in ("x", "h")]
        self.flags = [self.m.input(name, dtype=bool_) for name in ("a", "b")]
        vectors.append(self.m.input("z", N))
        scope = Scope(vectors, [], [], 0)
        self.rows: list[int] = []
        root = self.statements(scope, self.random.randint(2, 5))
        outputs = self.random.sample(scope.vectors, min(4, len(scope.vectors))) + self.rows
        self.plan = self.m.plan(root, outputs, n=Range(1, 4, 16))

    def name(self) -> str:
        self.names += 1
        return f"s{self.names}"

    def any(self, scope: Scope) -> int:
        """A value to read: mostly a late one."""
        return self.random.choice(scope.vectors[-4:] if self.random.random() < 0.7 else scope.vectors)

    def statements(self, scope: Scope, count: int) -> list:
        makers = [self.mix, self.mix, self.chain, self.chain, self.bump, self.size]
        if scope.depth < 3:
            makers += [self.loop, self.loop, self.condition, self.branch]
        found: list = []
        for _ in range(count):
            found += self.random.choice(makers)(scope)
        return found

    def mix(self, scope: Scope) -> list:
        out = self.m.temp(N)
        t = self.random.choice([0, 3, *scope.trips, *[2 * trip + 1 for trip in scope.trips]])
        step = mix(out, self.any(scope), self.any(scope), N, t=t)
        scope.vectors.append(out)
        scope.own.append(out)
        return [step]

    def chain(self, scope: Scope) -> list:
        """Values that are dead as soon as the next one is there, so that their memory is soon used again."""
        found = []
        at = self.any(scope)
        for _ in range(self.random.randint(2, 4)):
            out = self.m.temp(N)
            found.append(mix(out, at, at, N, t=self.random.randint(0, 3)))
            at = out
        scope.vectors.append(at)
        return found

    def bump(self, scope: Scope) -> list:
        """Change a value of this very scope that nothing shares; values that grow are kept small."""
        made = self.mix(scope)
        out = scope.own[-1]
        return [*made, bump(out, self.random.choice(scope.vectors[:-1]), N), mix(*self._damped(scope, out))]

    def _damped(self, scope: Scope, out: int) -> tuple:
        damped = self.m.temp(N)
        scope.vectors.append(damped)
        return damped, out, out, N

    def size(self, scope: Scope) -> list:
        count, found, s, out = self.m.number(), None, self.name(), self.m.temp(N)
        picked = self.m.temp(symbol(s))
        source = self.any(scope)
        found = [seen(count, source, N), Size(s, count, 0, N), pick(picked, source, N, symbol(s))]
        found += [mix(out, source, self.any(scope), N), bump(out, picked, symbol(s)), mix(*self._damped(scope, out))]
        return found

    def loop(self, scope: Scope) -> list:
        choices: list[Dim] = [0, 1, 2, 3, N, *[trip + 1 for trip in scope.trips], *scope.trips]
        return self._loop(scope, self.random.choice(choices), conditional=False)

    def condition(self, scope: Scope) -> list:
        return self._loop(scope, self.random.choice([0, 1, 4, N]), conditional=True)

    def _loop(self, scope: Scope, trips: Dim, conditional: bool) -> list:
        trip = self.name()
        states = [self.m.temp(N) for _ in range(self.random.randint(0, 3))]
        initials = [self.any(scope) for _ in states]
        body_scope = scope.inner(*states, trip=symbol(trip))
        body = self.statements(body_scope, self.random.randint(1, 4))
        before, condition, count = [], None, None
        if conditional:
            go, on, count = self.m.flag(), self.m.flag(), self.name()
            before = [less(go, self.any(scope), 1)]
            body.append(less(on, self.any(body_scope), 1))
            condition = (go, on)
        made = trips if count is None else symbol(count)
        rows = []
        for _ in range(self.random.randint(0, 2)):
            result = self.m.temp(made, N)
            rows.append(Row(self.any(body_scope), result))
            if scope.depth == 0:
                self.rows.append(result)
        carried = []
        for initial, state in zip(initials, states):
            result = self.m.temp(N)
            carried.append(Carried(initial, state, self.any(body_scope), result))
            scope.vectors.append(result)
        return [*before, Loop(trip, trips, block(body), tuple(carried), tuple(rows), condition, count)]

    def branch(self, scope: Scope) -> list:
        before = []
        flag = self.random.choice(self.flags)
        if self.random.random() < 0.5:
            flag = self.m.flag()
            before = [less(flag, self.any(scope), 0)]
        sides = [scope.inner(), scope.inner()]
        trees = [block(self.statements(side, self.random.randint(0, 2))) for side in sides]
        results = []
        for _ in range(self.random.randint(1, 2)):
            result = self.m.temp(N)
            results.append(Merged(self.any(sides[0]), self.any(sides[1]), result))
            scope.vectors.append(result)
        return [*before, If(flag, *trees, tuple(results))]


def feeds_for(seed: int, n: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng([seed, n])
    found: dict[str, np.ndarray] = {name: generator.standard_normal(n, np.float32) for name in ("x", "h", "z")}
    found["a"], found["b"] = (np.array(generator.random() < 0.5) for _ in range(2))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_sharing_memory_changes_nothing(seed, gpu, tmp_path):
    made = RandomPlan(seed)
    made.plan.validate()
    path = write(tmp_path / "m.luminal", Case(made.plan, {}, [], list), gpu=True)
    with InferenceSession(path) as session:
        for number, n in enumerate((4, 3, 4, 4, 3, 1)):
            feeds = feeds_for(seed + number % 3, n)
            outputs = session.run(None, feeds)
            for output, wanted in zip(outputs, interpret(made.plan, {}, feeds), strict=True):
                assert output.shape == wanted.shape and output.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("seed", range(100, 112))
def test_the_checker_finds_nothing_and_results_are_right(seed, tmp_path):
    made = RandomPlan(seed)
    path = write(tmp_path / "m.luminal", Case(made.plan, {}, [], list))
    with InferenceSession(path, device="cpu", check_kernels=True) as session:
        for n in (4, 3):
            feeds = feeds_for(seed, n)
            for output, wanted in zip(session.run(None, feeds), interpret(made.plan, {}, feeds), strict=True):
                tolerances.assert_close(output, wanted, tolerances.REDUCTION, vacuous_ok=True)
