"""The e-graph itself: the rule files' hygiene, handles, lifting, facts that must not contradict, bounded saturation."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from search_graphs import Net, convolutional, encoder, indexing
from search_tools import Eyes, Oracle, built, space_of

from luminal_onnx.ir.egraph.culprits import culprits, smallest_set
from luminal_onnx.ir.egraph.engine import Engine, FactConflict, split_commands
from luminal_onnx.ir.egraph.handles import Handles, over_shape, squeezed, squeezed_expr, squeezed_view
from luminal_onnx.ir.egraph.lift import pushable, splat_bits
from luminal_onnx.ir.egraph.rulebook import RULE_SETS, all_commands, rule_set_text, selected
from luminal_onnx.ir.egraph.saturate import Limits, saturate
from luminal_onnx.plan.dims import Range, index_symbol, symbol
from luminal_onnx.plan.dtypes import float32
from luminal_onnx.plan.errors import LuminalError, UnsoundRewrite
from luminal_onnx.plan.view import identity, pad, reshape, select, transpose

# Rule files


def parsed(text: str) -> list:
    """Read one s-expression as nested lists; strings keep their quotes."""
    stack: list[list] = [[]]
    for token in re.findall(r'"[^"]*"|[()]|[^\s()"]+', text):
        if token == "(":
            stack.append([])
        elif token == ")":
            inner = stack.pop()
            stack[-1].append(inner)
        else:
            stack[-1].append(token)
    return stack[0][0]


def rules() -> list[tuple[str, str, list]]:
    return [(command.rule, command.rule_set, parsed(command.text)) for command in all_commands() if command.rule]


def declared_names() -> set[str]:
    expressions = [parsed(command.text) for command in all_commands()]
    return {e[1] for e in expressions if e[0] in ("constructor", "relation", "function")}


def test_every_rule_has_a_unique_kebab_case_name():
    names = [name for name, _, _ in rules()]
    assert len(names) > 60
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


def test_no_command_is_a_rule_without_a_name():
    assert all(command.rule for command in all_commands() if command.text.startswith(("(rule ", "(rewrite")))


@pytest.mark.parametrize("rule_set", RULE_SETS)
def test_rules_of_a_file_belong_to_its_rule_set(rule_set: str):
    for text in split_commands(rule_set_text(rule_set)):
        if text.startswith("(rule "):
            assert f":ruleset {rule_set}" in text


def test_rules_have_at_most_ten_premises():
    assert max(len(expression[1]) for _, _, expression in rules()) <= 10


def unbound_in_primitives(body: list, declared: set[str]) -> list[str]:
    """Variables that a primitive of a rule body uses before an atom of the e-graph has bound them."""

    def variables(term) -> set[str]:
        if isinstance(term, list):
            return set().union(*map(variables, term[1:])) if term else set()
        return set() if term[0] in '"-0123456789' else {term}

    bound: set[str] = set()
    bad = []
    for atom in body:
        parts = atom[1:] if atom[0] == "=" else [atom]
        primitives = [p for p in parts if isinstance(p, list) and p[0] not in declared]
        bad += [name for p in primitives for name in variables(p) - bound]
        bound |= variables(["and", *parts])
    return bad


def test_primitives_use_only_variables_bound_before_them():
    declared = declared_names()
    assert {name for name, _, expression in rules() if unbound_in_primitives(expression[1], declared)} == set()


def test_the_lint_sees_a_primitive_that_comes_too_early():
    declared = {"Vec"}
    assert sorted(unbound_in_primitives(parsed("((= s (* m n)) (= v (Vec m n s)))"), declared)) == ["m", "n"]
    assert unbound_in_primitives(parsed("((= v (Vec m n s)) (= s (* m n)))"), declared) == []


def test_commands_are_split_past_comments_and_strings():
    text = '; (not this)\n(a "x)y" (b))\n(c) ; (nor this)\n'
    assert split_commands(text) == ['(a "x)y" (b))', "(c)"]


def test_dropped_rules_are_left_out_and_extra_ones_come_last():
    planted = '(rule ((= r (E1 f a d))) ((union r a)) :ruleset extra :name "planted")'
    commands = selected(without=("load-store",), extra=(planted,))
    names = [command.rule for command in commands if command.rule]
    assert "load-store" not in names
    assert names[-1] == "planted"


# Engine


def test_a_refused_command_is_a_clear_error():
    with pytest.raises(LuminalError, match="egglog refused"):
        Engine().declare(["(constructor Twice (Nowhere) Nowhere)"])


def test_two_values_of_one_fact_are_a_conflict_that_names_the_fact():
    engine = Engine()
    engine.declare(split_commands('(sort R) (constructor N (i64) R) (function size (R) i64 :no-merge)'))
    engine.declare(["(set (size (N 1)) 4)"])
    with pytest.raises(FactConflict, match="size"):
        engine.declare(["(set (size (N 1)) 5)"])


# Handles

N = symbol("n")
RANGES = {"n": Range(1, 8, 64)}


def test_small_dims_are_their_own_handles_and_others_are_interned():
    handles = Handles(RANGES)
    assert handles.dim(0) == 0 and handles.dim(7) == 7
    assert handles.dim(-3) < 0 and handles.thing(handles.dim(-3)) == -3
    assert handles.dim(N + 1) == handles.dim(1 + N) != handles.dim(N)
    assert handles.thing(handles.dim(2 * N)) == 2 * N


def test_things_of_different_kinds_never_share_a_handle():
    handles = Handles({})
    assert handles.intern("shape", (2, 3)) != handles.intern("extents", (2, 3))


def test_views_that_read_the_same_flat_elements_share_a_handle():
    handles = Handles(RANGES)
    by_rows = select((4, 6), (6,), [2, index_symbol(0)])
    flat = select((24,), (6,), [index_symbol(0) + 12])
    assert handles.view(by_rows) == handles.view(flat)
    assert handles.view(by_rows) != handles.view(select((24,), (6,), [index_symbol(0) + 6]))
    assert handles.view(by_rows) != handles.view(select((30,), (6,), [index_symbol(0) + 12]))


def test_padding_with_another_value_is_another_view():
    handles = Handles({})
    views = [pad((4,), (1,), (1,), fill) for fill in (0.0, -0.0, 1.0, 0)]
    assert len({handles.view(view) for view in views}) == 4


def test_a_view_is_rewritten_over_another_shape_of_as_many_elements():
    view = transpose((4, 6), (1, 0))
    over = over_shape(view, (2, 12), {})
    data = np.arange(24)
    np.testing.assert_array_equal(over.apply(data.reshape(2, 12)), view.apply(data.reshape(4, 6)))
    assert over_shape(view, (5, 5), {}) is None


def test_axes_of_extent_one_vanish_from_shapes_views_and_expressions():
    assert squeezed((1, N, 1, 3)) == (N, 3)
    assert squeezed_expr(5 * index_symbol(1) + index_symbol(3) + index_symbol(0), (1, N, 1, 3)) == (
        5 * index_symbol(0) + index_symbol(1)
    )
    view = squeezed_view(transpose((1, 4, 6), (2, 0, 1)), {})
    assert view.in_shape == (4, 6) and view.out_shape == (6, 4)
    data = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(view.apply(data), data.T)


# Lifting


@pytest.mark.parametrize(
    "array, bits",
    [
        (np.full((3, 4), 2.5, np.float32), np.float32(2.5).tobytes()),
        (np.array(-0.0, np.float64), np.float64(-0.0).tobytes()),
        (np.array([0.0, -0.0, 0.0, 0.0], np.float32), None),
        (np.array([1, 1, 1, 2, 1, 1], np.int64), None),
        (np.array([np.nan] * 5, np.float32), np.float32(np.nan).tobytes()),
        (np.zeros((0, 3), np.float32), None),
    ],
)
def test_only_arrays_of_one_exact_element_are_constants(array: np.ndarray, bits: bytes | None):
    assert splat_bits(array) == bits


def test_values_with_one_use_are_pushable_and_a_reshape_counts_as_its_uses():
    def make(net: Net):
        x = net.input("x", float32, (4, 6))
        once = net("exp", x)
        twice = net("sin", x)
        reshaped = net("cos", x)
        flat = net.reshape(reshaped, (24,))
        return (
            net("neg", net.transpose(once, (1, 0))),
            net("add", net("neg", twice), net("exp", twice)),
            net("neg", flat),
            net("sin", flat),
        )

    graph, _ = built(make)
    nodes = graph.nodes()
    found = {nodes[number].attrs["fn"] for number in pushable(graph, nodes) if nodes[number].op == "elementwise"}
    assert "exp" in found
    assert not {"sin", "cos"} & found


# Facts and culprits

PLANTED = {
    "erase-cast": ("r-dtype", indexing, "((= r (E1 \"cast\" a d))) ((union r a))"),
    "erase-sum": ("space", encoder, "((= r (Red f a e d))) ((union r a))"),
    "any-store-is-free": ("t-count", encoder, "((= t (Store r s)) (= r (Load u v d))) ((union t u))"),
    "all-constants-are-one": ("r-const", convolutional, "((= a (Const b d)) (= c (Const e d))) ((union a c))"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_unsound_rule_is_caught_and_named(name: str):
    fact, make, rule = PLANTED[name]
    planted = f'(rule {rule} :ruleset extra :name "{name}")'
    with pytest.raises(UnsoundRewrite, match=f"{fact}.*Rules that lead to it: {name}\\."):
        saturate(make(), extra=(planted,))


def test_a_rule_that_only_changes_values_is_found_by_running_programs():
    graph, _ = built(lambda net: net("exp", net("neg", net.linear(net.input("x", float32, (3, 4)), 5))))
    planted = '(rule ((= r (E1 "neg" a d))) ((union r a)) :ruleset extra :name "erase-sign")'
    oracle = Oracle(graph)

    def differs(dropped) -> bool:
        space = space_of(graph, without=tuple(dropped), extra=(planted,))
        for candidate in space.candidates:
            program = space.forced(candidate)
            if program is not None:
                try:
                    oracle.check(program)
                except AssertionError:
                    return True
        return False

    assert smallest_set(differs, extra=(planted,)) == ("erase-sign",)


def test_the_search_for_culprits_ends_when_its_time_is_over():
    planted = '(rule ((= r (E1 "cast" a d))) ((union r a)) :ruleset extra :name "erase-cast")'
    assert culprits(indexing(), Limits(), extra=(planted,)) == ("erase-cast",)
    names = culprits(indexing(), Limits(seconds=0.0), extra=(planted,))
    assert "erase-cast" in names and len(names) > 20


def test_the_search_for_culprits_asks_no_more_once_it_is_over():
    asked = []
    smallest_set(lambda dropped: bool(asked.append(dropped)), is_over=lambda: len(asked) >= 3)
    assert len(asked) == 3


# Saturation


def test_saturation_reports_what_it_did():
    report = Eyes(encoder()).saturated.report
    assert report.stop == "saturated"
    assert report.nodes > 500 and report.demands > 50 and report.rounds >= 3
    assert report.matches["load-store"] > 0 and report.matches["row-broadcast"] > 0


@pytest.mark.parametrize("limits, stop", [(Limits(rounds=1), "rounds"), (Limits(rows=10), "rows")])
def test_a_limit_stops_saturation_and_is_reported(limits: Limits, stop: str):
    graph = encoder()
    assert saturate(graph, limits).report.stop == stop
    result = space_of(graph, limits=limits).best()
    assert any(stop in note for note in result.report.notes)
    Oracle(graph).check(result.program)


@pytest.mark.parametrize("limits, stop", [(Limits(rows=3000), "rows"), (Limits(seconds=0.2), "seconds")])
def test_limits_hold_within_a_round(limits: Limits, stop: str):
    """A rule that never ends: E1 of itself once more, at every iteration."""
    endless = '(rule ((= r (E1 "neg" a d))) ((E1 "neg" r d)) :ruleset extra :name "endless")'
    graph, _ = built(lambda net: net("exp", net("neg", net.input("x", float32, (3, 4)))))
    report = saturate(graph, replace(limits, iterations=10**6, rounds=10**6), extra=(endless,)).report
    assert report.stop == stop and report.rounds <= 1 and report.seconds < 20


def test_the_identity_view_of_a_squeezed_shape_needs_no_copy():
    def make(net: Net):
        x = net("exp", net.input("x", float32, (1, 4, 1, 6)))
        return x, net("neg", net.reshape(x, (4, 6, 1)))

    graph, (x, y) = built(make)
    eyes = Eyes(graph)
    operand = y.node.inputs[0]
    assert eyes.tensor(operand) == eyes.tensor(x)
    assert eyes.operand(operand) == eyes.register(x)


def test_handles_of_identity_and_reshape_are_one():
    handles = Handles({})
    assert handles.view(identity((4, 6))) != handles.view(reshape((4, 6), (24,)))
    assert handles.view(reshape((4, 6), (24,))) == handles.view(identity((24,)))
