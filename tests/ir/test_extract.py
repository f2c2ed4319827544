"""Choosing kernels: cuts, the exact solver against brute force, cycles, limits, and what must never be stored."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import pytest
from search_graphs import Net, convolutional, encoder
from search_tools import Oracle, built, space_of

from luminal_onnx.ir.egraph.condense import Bundle, condense, dominated
from luminal_onnx.ir.egraph.cuts import CutFinder, CutLimits
from luminal_onnx.ir.egraph.solve import greedy, launch_order, needed, solve, strong_components
from luminal_onnx.ir.region import Load
from luminal_onnx.ir.schedule import schedules
from luminal_onnx.plan.dtypes import float32


@dataclass(frozen=True, eq=False)
class Pick:
    """A kernel for the solver: what it writes, reads and costs. Negative tensors are inputs."""

    writes: tuple[int, ...]
    reads: tuple[int, ...]
    cost: float

    def __repr__(self) -> str:
        return f"{self.reads}->{self.writes}@{self.cost:.1f}"


MICRO = 1e-6


def free(tensor: int) -> bool:
    return tensor < 0


def by_tensor(picks: list[Pick]) -> dict[int, list[Pick]]:
    found: dict[int, list[Pick]] = {}
    for pick in picks:
        for tensor in pick.writes:
            found.setdefault(tensor, []).append(pick)
    return found


def is_solution(chosen: list[Pick], roots: tuple[int, ...]) -> bool:
    written = set()
    for pick in chosen:
        if any(read >= 0 and read not in written for read in pick.reads):
            return False
        written.update(pick.writes)
    return set(roots) <= written


def brute_force(picks: list[Pick], roots: tuple[int, ...]) -> float:
    """The least cost of a set of picks that can be put in an order and writes the roots; no tensor written twice."""
    best = float("inf")
    for size in range(len(picks) + 1):
        for chosen in itertools.combinations(picks, size):
            cost = sum(pick.cost for pick in chosen)
            writes = [write for pick in chosen for write in pick.writes]
            if cost >= best or len(set(writes)) < len(writes) or not set(roots) <= set(writes):
                continue
            left, written = list(chosen), set()
            while True:
                ready = [pick for pick in left if all(read < 0 or read in written for read in pick.reads)]
                if not ready:
                    break
                for pick in ready:
                    written.update(pick.writes)
                    left.remove(pick)
            if not left:
                best = cost
    return best


def random_problem(seed: int, cyclic: bool) -> tuple[list[Pick], tuple[int, ...]]:
    generator = random.Random(seed)
    tensors = range(generator.randint(4, 6))
    picks = [Pick((tensor,), (-1,), MICRO * generator.randint(20, 60)) for tensor in tensors]  # always possible
    for _ in range(9):
        tensor = generator.choice(tensors)
        others = [other for other in tensors if other != tensor and (cyclic or other < tensor)]
        reads = generator.sample(others, min(len(others), generator.randint(1, 3)))
        writes = (tensor,)
        if generator.random() < 0.3:
            extra = [other for other in others if other not in reads]
            writes += (generator.choice(extra),) if extra else ()
        picks.append(Pick(writes, tuple(reads), MICRO * generator.randint(1, 15)))
    return picks, tuple(generator.sample(tensors, 2))


def random_ordered_problem(seed: int) -> tuple[list[Pick], tuple[int, ...]]:
    """As graphs give them: kernels read what comes before all that they write, and often write two tensors."""
    generator = random.Random(seed)
    count = generator.randint(4, 7)
    picks = [Pick((tensor,), (-1,), MICRO * generator.randint(20, 60)) for tensor in range(count)]
    for _ in range(9):
        tensor = generator.randrange(1, count)
        reads = generator.sample(range(tensor), min(tensor, generator.randint(1, 3)))
        between = range(max(reads) + 1, tensor)
        extra = (generator.choice(between),) if between and generator.random() < 0.6 else ()
        picks.append(Pick((tensor, *extra), tuple(reads), MICRO * generator.randint(1, 15)))
    return picks, tuple(generator.sample(range(count), generator.randint(1, 2)))


# The solver


PROBLEMS = {
    "acyclic": lambda seed: random_problem(seed, cyclic=False),
    "cyclic": lambda seed: random_problem(seed, cyclic=True),
    "ordered": random_ordered_problem,
}


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("seed", range(30))
def test_the_solver_finds_what_brute_force_finds(seed: int, kind: str):
    picks, roots = PROBLEMS[kind](seed)
    solution = solve(by_tensor(picks), roots, free, lambda tensor: tensor)
    assert solution.status == "optimal"
    assert is_solution(solution.chosen, roots)
    writes = [write for pick in solution.chosen for write in pick.writes]
    assert len(set(writes)) == len(writes)
    assert solution.cost == pytest.approx(brute_force(picks, roots))


def test_a_planted_cycle_is_not_taken_though_it_is_cheapest():
    picks = [
        Pick((0,), (1,), 1 * MICRO),
        Pick((1,), (2,), 1 * MICRO),
        Pick((2,), (0,), 1 * MICRO),
        Pick((0,), (-1,), 30 * MICRO),
        Pick((1,), (-1,), 20 * MICRO),
        Pick((2,), (-1,), 25 * MICRO),
        Pick((3,), (0, 1, 2), 1 * MICRO),
        Pick((4,), (0, 3), 1 * MICRO),
    ]
    solution = solve(by_tensor(picks), (3, 4), free, lambda tensor: tensor)
    assert is_solution(solution.chosen, (3, 4))
    # One of the three comes from the input, 1 is the cheapest to do so; then 0 needs 1, and 2 needs 0.
    assert solution.cost == pytest.approx(24 * MICRO)


def test_a_kernel_that_writes_what_it_waits_for_is_not_taken():
    picks = [
        Pick((0, 1), (2,), 1 * MICRO),
        Pick((2,), (1,), 1 * MICRO),
        Pick((0,), (2,), 5 * MICRO),
        Pick((1,), (-1,), 9 * MICRO),
    ]
    solution = solve(by_tensor(picks), (0,), free, lambda tensor: tensor)
    assert is_solution(solution.chosen, (0,))
    assert solution.cost == pytest.approx(15 * MICRO)


def test_a_shared_tensor_is_paid_once():
    picks = [
        Pick((0,), (-1,), 10 * MICRO),
        *(Pick((tensor,), (0,), 1 * MICRO) for tensor in (1, 2, 3)),
        *(Pick((tensor,), (-1,), 6 * MICRO) for tensor in (1, 2, 3)),
    ]
    assert solve(by_tensor(picks), (1, 2, 3), free, lambda tensor: tensor).cost == pytest.approx(13 * MICRO)
    assert solve(by_tensor(picks), (1, 2), free, lambda tensor: tensor).cost == pytest.approx(12 * MICRO)


def test_equal_layers_fold_into_one_choice():
    picks = []
    for layer in range(6):
        x, a, b, y = (10 * layer + k for k in range(4))
        below = (x - 7,) if layer else (-1,)
        picks += [
            Pick((x,), below, 5 * MICRO), Pick((a,), (x,), 3 * MICRO), Pick((b,), (x,), 3 * MICRO),
            Pick((b, a), (x,), 4 * MICRO), Pick((y,), (a, b, x), 1 * MICRO), Pick((y,), (b, x), 4 * MICRO),
        ]
    solution = solve(by_tensor(picks), (53,), free, lambda tensor: tensor)
    assert solution.cost == pytest.approx(6 * 10 * MICRO)
    assert solution.largest_part == 1
    assert is_solution(solution.chosen, (53,))


def test_equal_parts_are_solved_once():
    picks, roots = [], []
    for copy in range(5):
        shift = {-1: -1, **{tensor: tensor + 10 * copy for tensor in range(6)}}
        for pick in undecided():
            picks.append(Pick(tuple(map(shift.get, pick.writes)), tuple(map(shift.get, pick.reads)), pick.cost))
        roots += [shift[tensor] for tensor in (3, 4, 5)]
    solution = solve(by_tensor(picks), roots, free, lambda tensor: tensor)
    assert (solution.parts, solution.distinct_parts) == (5, 1)
    assert solution.cost == pytest.approx(5 * brute_force(undecided(), (3, 4, 5)))


def undecided() -> list[Pick]:
    """Three readers of three ways to share: nothing folds away before the solver is asked."""
    picks = [Pick((tensor,), (-1,), 7 * MICRO) for tensor in (0, 1, 2)]
    for reader, pairs in ((3, ((0,), (1,))), (4, ((1,), (2,))), (5, ((2,), (0,)))):
        picks += [Pick((reader,), pair, (1 + k) * MICRO) for k, pair in enumerate(pairs)]
    return picks


def test_without_time_a_greedy_choice_is_taken_and_reported():
    picks, roots = undecided(), (3, 4, 5)
    exact = solve(by_tensor(picks), roots, free, lambda tensor: tensor)
    hasty = solve(by_tensor(picks), roots, free, lambda tensor: tensor, seconds=0.0)
    assert (exact.status, hasty.status) == ("optimal", "greedy")
    assert is_solution(hasty.chosen, roots)
    assert exact.cost == pytest.approx(brute_force(picks, roots))
    assert hasty.cost >= exact.cost


@pytest.mark.parametrize("seed", range(8))
def test_the_greedy_choice_is_a_solution_of_any_problem(seed: int):
    picks, roots = random_problem(seed, cyclic=True)
    assert is_solution(needed(greedy(picks, free, lambda tensor: tensor), roots, free), roots)


def test_a_graph_without_time_to_choose_still_gives_a_right_program(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("luminal_onnx.ir.egraph.solve._Problem.solve_part", lambda *_: (None, False))
    graph = encoder(layers=2)
    result = space_of(graph).best()
    assert any("greedy" in note for note in result.report.notes)
    Oracle(graph).check(result.program)


def test_a_cycle_has_no_launch_order():
    a, b = Pick((0,), (1,), 1.0), Pick((1,), (0,), 1.0)
    with pytest.raises(ValueError, match="tensor"):
        launch_order({0: a, 1: b}, (0,), free)


def test_strong_components_are_the_cycles():
    found = strong_components({0: [1], 1: [2], 2: [0, 3], 3: [4], 4: [3], 5: [0]})
    assert sorted(map(sorted, found)) == [[0, 1, 2], [3, 4], [5]]


# Folding


def test_dominated_bundles_read_no_less_and_cost_no_less():
    def bundle(reads: set[int], cost: float) -> Bundle:
        return Bundle(frozenset([9]), frozenset(reads), cost, (), sum(1 << read for read in reads))

    cheap, worse, other = bundle({1}, 2.0), bundle({1, 2}, 2.0), bundle({2}, 5.0)
    assert dominated([worse, other, cheap]) == [worse]


def test_a_chain_folds_into_one_bundle():
    picks = [Pick((k,), (k - 1,), 2 * MICRO) for k in range(8)]
    picks += [Pick((k,), (k - 2,), 3 * MICRO) for k in range(1, 8) if k - 2 >= 0]
    (bundle,) = condense(picks, (7,), free, lambda tensor: tensor)
    assert bundle.cost == pytest.approx(13 * MICRO)  # 0, then 1 with 2, or 2 alone: three steps of 3 over two, two of 2
    assert bundle.writes == {7}


# Cuts and candidates


def test_every_tensor_has_a_plain_kernel_and_all_candidates_can_run():
    space = space_of(convolutional())
    for tensor, candidates in space.found.by_tensor.items():
        assert candidates
    for candidate in space.candidates:
        if candidate.kind == "region":
            assert candidate.schedule in schedules(candidate.region)
            assert len(candidate.reads) == len(candidate.region.operands)
            assert len(candidate.writes) == len(candidate.region.stores)


def test_the_plain_program_does_one_primitive_in_most_kernels():
    graph = encoder()
    space = space_of(graph)
    program = space.plain()
    best = space.best().program
    assert len(program.kernels) > 2 * len(best.kernels)
    Oracle(graph).check(program)


def test_more_cuts_never_make_the_choice_worse():
    costs = [space_of(encoder(), cuts=CutLimits(best=best)).best().report.cost for best in (1, 6, 12)]
    assert costs[0] >= costs[1] * (1 - 1e-6)
    assert costs[1] >= costs[2] * (1 - 1e-6)


def test_cuts_are_priced_exactly_once_for_what_they_share():
    space = space_of(encoder())
    finder = CutFinder(space.classes, space.found.costs)
    for stores in space.classes.stores.values():
        for key in stores:
            for cut in finder.cuts(*key):
                leaves = sum(finder._leaf_seconds.get(leaf, 0.0) for leaf in cut.leaves)
                nodes = sum(finder._node_seconds[item] for item in cut.nodes)
                assert cut.cost == pytest.approx(leaves + nodes, abs=1e-12)


@pytest.mark.parametrize("make", [encoder, convolutional])
def test_products_that_are_summed_are_never_stored(make):
    space = space_of(make())
    stored = {tensor for candidate in space.candidates for tensor in candidate.writes}
    products = {
        tensor for tensor, pairs in space.classes.stores.items()
        if any(register in space.classes.products for register, _ in pairs)
    }
    assert products and not products & stored


def test_a_tensor_beyond_the_memory_cap_is_not_stored_where_it_need_not_be():
    def make(net: Net):
        x, y = net.input("x", float32, (64, 1)), net.input("y", float32, (1, 64))
        table = net("exp", net("add", net.expand(x, (64, 64)), net.expand(y, (64, 64))))
        return net.reduce("max", net("sin", table), [1]), net.reduce("sum", table, [1])

    graph, _ = built(make)
    full, capped = space_of(graph), space_of(graph, memory_share=4 * 1000 / 140e9)

    def large(space) -> bool:
        written = {tensor for candidate in space.candidates for tensor in candidate.writes}
        return any(space.found.costs.volume(space.classes.shape_of(tensor)) > 1000 for tensor in written)

    assert large(full) and not large(capped)
    Oracle(graph).check(capped.best().program)


def test_a_value_that_others_want_is_stored_on_the_way():
    """A residual that is normalised and added again later: one kernel may write the sum and the normalised sum."""

    def make(net: Net):
        x, y = net.input("x", float32, (64, 128)), net.input("y", float32, (64, 128))
        total = net("add", x, y)
        normal = net.layer_norm(total)
        return net("add", total, net.linear(normal, 128))

    graph, _ = built(make)
    space = space_of(graph)
    double = [candidate for candidate in space.candidates if len(candidate.writes) == 2]
    assert double
    oracle = Oracle(graph)
    for candidate in double:
        assert len(candidate.region.stores) == 2
        oracle.check(space.forced(candidate))


def test_a_region_reads_each_tensor_through_one_slot():
    for candidate in space_of(encoder()).candidates:
        if candidate.region is not None:
            assert len(set(candidate.reads)) == len(candidate.reads)
            slots = [node.slot for node in candidate.region.nodes if isinstance(node, Load)]
            firsts = list(dict.fromkeys(slots))
            assert firsts == sorted(firsts)
