"""Dims against brute force: the algebra, printing, proofs and simplification are checked on every small assignment."""

import copy
import itertools
import pickle
import random
import shutil
import subprocess

import numpy as np
import pytest
from luminal_onnx.plan import dims
from luminal_onnx.plan.dims import (
    Expr,
    Range,
    bounds,
    ceil_div,
    divides,
    evaluate,
    exact_div,
    index_axes,
    index_symbol,
    linear_terms,
    maximum,
    minimum,
    parse,
    product,
    prove_less,
    prove_nonnegative,
    simplify,
    substitute,
    symbol,
    symbols,
    to_c,
)
from luminal_onnx.plan.errors import InvalidInput

batch, seq, heads = symbol("batch"), symbol("seq"), symbol("heads")
i0, i1, i2, i3 = (index_symbol(axis) for axis in range(4))


def random_pair(rng: random.Random, depth: int):
    """A random dim and the Python function of (env, indices) that it should mean, built side by side."""
    kind = rng.randrange(9) if depth else rng.randrange(3)
    if kind == 0:
        value = rng.randint(-4, 9)
        return value, lambda env, at: value
    if kind == 1:
        name = rng.choice("ab")
        return symbol(name), lambda env, at: env[name]
    if kind == 2:
        axis = rng.randrange(2)
        return index_symbol(axis), lambda env, at: at[axis]
    left, f = random_pair(rng, depth - 1)
    if kind in (6, 7):
        divisor = rng.choice([1, 2, 3, 4, 6, 12, symbol("a"), symbol("b"), 2 * symbol("a"), symbol("a") + symbol("b")])
        g = lambda env: evaluate(divisor, env)  # noqa: E731
        if kind == 6:
            return left // divisor, lambda env, at: f(env, at) // g(env)
        return left % divisor, lambda env, at: f(env, at) % g(env)
    right, h = random_pair(rng, depth - 1)
    if kind == 3:
        return left + right, lambda env, at: f(env, at) + h(env, at)
    if kind == 4:
        return left - right, lambda env, at: f(env, at) - h(env, at)
    if kind == 5:
        return left * right, lambda env, at: f(env, at) * h(env, at)
    if rng.random() < 0.5:
        return maximum(left, right), lambda env, at: max(f(env, at), h(env, at))
    return minimum(left, right), lambda env, at: min(f(env, at), h(env, at))


ASSIGNMENTS = [
    ({"a": a, "b": b}, (x, y)) for a in (1, 2, 3, 5) for b in (1, 2, 4) for x in (0, 1, 5) for y in (0, 2, 7)
]


@pytest.mark.parametrize("seed", range(12))
def test_random_dims_have_the_value_of_plain_arithmetic(seed):
    rng = random.Random(seed)
    for _ in range(150):
        dim, meaning = random_pair(rng, 4)
        assert parse(str(dim)) == dim, dim
        for env, at in ASSIGNMENTS:
            assert evaluate(dim, env, at) == meaning(env, at), (str(dim), env, at)
        env = ASSIGNMENTS[0][0]
        arrays = np.arange(4)[:, None], np.arange(5)[None, :]
        values = np.broadcast_to(evaluate(dim, env, arrays), (4, 5))
        assert values.tolist() == [[meaning(env, (x, y)) for y in range(5)] for x in range(4)]


@pytest.mark.parametrize("seed", range(12))
def test_simplify_and_bounds_hold_on_every_point_of_the_space(seed):
    rng = random.Random(1000 + seed)
    changed = 0
    for _ in range(60):
        dim, _ = random_pair(rng, 4)
        if rng.random() < 0.5:
            dim = (dim + rng.randint(0, 3) * i0 * symbol("a")) // rng.choice([2, 6, symbol("a")])
        low_a, low_b = rng.randint(0, 2), rng.randint(0, 3)
        ranges = {"a": Range(low_a, low_a + 1, low_a + 2), "b": Range(low_b, low_b, low_b + 2)}
        extents = (rng.choice([1, 3, symbol("a"), symbol("a") * 2]), rng.choice([2, symbol("b"), symbol("a") + 1]))
        plain = simplify(dim, ranges, extents)
        assert simplify(plain, ranges, extents) == plain
        changed += plain != dim
        low, high = bounds(dim, ranges, extents)
        for a, b in itertools.product(range(low_a, low_a + 3), range(low_b, low_b + 3)):
            env = {"a": a, "b": b}
            for at in itertools.product(*(range(evaluate(extent, env)) for extent in extents)):
                try:
                    value = evaluate(dim, env, at)
                except ZeroDivisionError:
                    continue
                assert evaluate(plain, env, at) == value, (str(dim), str(plain), env, at)
                assert (low is None or low <= value) and (high is None or value <= high), (str(dim), low, high, env, at)
    assert changed > 5


def test_equal_polynomials_are_equal_objects():
    assert (batch + seq) ** 2 == batch**2 + 2 * batch * seq + seq * seq
    assert hash((batch + 1) * (seq + 1)) == hash(1 + seq + batch * seq + batch)
    assert (batch + seq) * (batch - seq) != batch * batch
    assert maximum(batch, seq) == maximum(seq, batch)
    assert copy.deepcopy(batch * seq // 3) == batch * seq // 3
    assert pickle.loads(pickle.dumps((batch + 5) % seq)) == (batch + 5) % seq


def test_constants_are_plain_ints():
    constants = [batch - batch, (batch + 3) - batch, 0 * batch, (4 * batch) % 4, batch // batch, seq % seq, batch**0]
    assert [type(value) for value in constants] == [int] * len(constants)
    assert constants == [0, 3, 0, 0, 1, 0, 1]
    assert type(product([np.int64(2), True, 3])) is int
    assert np.int64(3) * batch == batch * 3 and type(np.int64(3) + batch) is Expr


def test_an_expr_is_no_int_and_has_no_truth_value():
    assert batch != 1 and 1 != batch
    with pytest.raises(TypeError, match="truth value of the dim batch"):
        bool(batch)
    with pytest.raises(TypeError):
        batch < 3  # noqa: B015
    with pytest.raises(TypeError):
        batch + 1.5
    with pytest.raises(ZeroDivisionError):
        batch // 0


def test_exact_quotients_need_no_atom():
    assert (64 * batch * seq) // (64 * seq) == batch
    assert (64 * batch * seq + 64 * i0) // 64 == batch * seq + i0
    assert (seq + 5) // 4 == 1 + (seq + 1) // 4
    assert (seq // 4) // 3 == seq // 12
    assert (seq % 12) // 4 == seq // 4 % 3
    assert (seq % 12) % 4 == seq % 4
    assert (2 * seq + 1) // 4 == seq // 2
    assert ceil_div(8 * seq, 4) == 2 * seq
    assert exact_div((batch + seq) * (batch + 3), batch + seq) == batch + 3
    assert exact_div(batch * seq + 1, seq) is None
    assert exact_div(batch, 0) is None and exact_div(0, batch) == 0 and exact_div(6 * batch, 4) is None


@pytest.mark.parametrize(
    "text",
    ["2*batch*seq + (seq + 3)//4 % 2", "max(batch, 3)", "i0", '"i0"', '2*"my dim"', "-(seq//4)", "(-seq)//4", "-7",
     "seq**3 - 1", "min(i0*seq + i1, 5)//3", "i0 % (batch + seq)"],
)  # fmt: skip
def test_printed_dims_read_back(text):
    assert str(parse(text)) == text


def test_a_symbol_named_like_an_index_is_another_thing():
    assert symbol("i0") != i0 and parse('"i0" - i0') == symbol("i0") - i0
    assert symbols(symbol("i0") + i1) == {"i0"} and index_axes(symbol("i0") + i1 // seq) == {1}


@pytest.mark.parametrize("text", ["", "batch +", "batch seq", "max(1)", "3 // 0", "a ? b", "(a", "a ** b", ")"])
def test_unreadable_dims_say_so(text):
    with pytest.raises(InvalidInput, match="cannot read the dim"):
        parse(text)


def test_substitution_is_simultaneous():
    assert substitute(batch - seq, {"batch": seq, "seq": batch}) == seq - batch
    assert substitute(i0 * seq + i1, {"seq": 4}, {0: i1, 1: 2}) == 4 * i1 + 2
    assert substitute((seq + 3) // 4, {"seq": 4 * batch}) == batch
    assert substitute(maximum(seq, 3), {"seq": 2}) == 3


def test_less_is_proven_for_symbolic_row_major_offsets():
    assert prove_less(i1, seq, {}, (batch, seq))
    assert prove_less(i0 * heads + i1, batch * heads, {}, (batch, heads))
    assert prove_less(
        ((i0 * heads + i1) * seq + i2) * 64 + i3, batch * heads * seq * 64, {}, (batch, heads, seq, 64)
    )
    assert prove_less(batch * seq - 1 - (i0 * seq + i1), batch * seq, {}, (batch, seq))
    assert prove_less(seq // 4 * 4, seq + 1)
    assert prove_less(64 * ((seq - 1) // 64), seq, {"seq": Range(1, 1, 99)})
    assert prove_less(i0 // 4, seq, {}, (4 * seq,))
    assert prove_less((i0 * seq + i1) // 2, seq, {}, (2, seq))
    assert prove_less(seq, 4097, {"seq": Range(1, 8, 4096)})
    assert prove_less(i0 % seq, seq, {}, (batch,))


def test_what_is_false_is_not_proven():
    assert not prove_less(i0, seq, {}, (batch, seq))
    assert not prove_less(i0 * heads + i1, batch * heads - 1, {}, (batch, heads))
    assert not prove_less(seq, 4096, {"seq": Range(1, 8, 4096)})
    assert not prove_nonnegative(seq - 1)
    assert not prove_nonnegative(i0 - 1, {}, (seq,))


def test_bounds_of_correlated_terms_are_tight():
    ranges = {"seq": Range(1, 8, 4096)}
    assert bounds(4096 - seq, ranges) == (0, 4095)
    assert bounds(seq - 64 * (seq // 64)) == (0, 63)
    assert bounds(seq - 1 - i0, ranges, (seq,)) == (0, 4095)
    assert bounds(i0 * 3 - 2, {}, (5,)) == (-2, 10)
    assert bounds(batch) == (0, None)
    assert bounds(7) == (7, 7)


def test_simplify_undoes_row_major_numbering():
    extents = (batch, seq, heads, 64)
    flat = ((i0 * seq + i1) * heads + i2) * 64 + i3
    assert simplify(flat // 64 % heads, {}, extents) == i2
    assert simplify(flat // (64 * heads) % seq, {}, extents) == i1
    assert simplify(flat // (64 * heads * seq), {}, extents) == i0
    assert simplify(flat % (64 * heads * seq), {}, extents) == (i1 * heads + i2) * 64 + i3
    assert simplify((i0 * (seq + batch) + i1) // (seq + batch), {}, (3, seq + batch)) == i0
    assert simplify((4 * i0 + i1) // 12, {}, (6, 4)) == i0 // 3
    assert simplify((seq - 1 - i0) // seq, {}, (seq,)) == 0
    assert simplify((12 * i0 + 4 * i1 + 2 * i2 + 1) % 24, {}, (3, 5, 2)) == 4 * ((3 * i0 + i1) % 6) + 2 * i2 + 1


def test_simplify_puts_quotient_and_remainder_together():
    x = i0 + seq * i1
    assert simplify(12 * (x // 12) + 4 * (x // 4 % 3) + x % 4) == x
    assert simplify(batch * (i0 // batch) + i0 % batch) == i0


def test_simplify_resolves_extremes_by_range():
    ranges = {"seq": Range(4, 5, 6)}
    assert simplify(maximum(seq, 3), ranges) == seq
    assert simplify(minimum(seq, 3), ranges) == 3
    assert simplify(maximum(seq, 5), ranges) == maximum(5, seq)
    assert simplify(minimum(i0, seq - 1), {}, (seq,)) == i0


def test_divides():
    assert divides(4, 8 * seq * batch + 4) and not divides(8, 8 * seq + 4)
    assert divides(4, seq + 4, {"seq": Range(8, 8, 8)}) and divides(3, (3 * seq) % 9) and divides(5, 0)
    assert not divides(2, seq // 2)


def test_linear_terms():
    assert linear_terms(3 + seq + i0 * seq + 2 * i1, (0, 1, 2)) == (3 + seq, {0: seq, 1: 2, 2: 0})
    assert linear_terms(i0 * i1, (0, 1)) is None
    assert linear_terms(i0 // 2, (0,)) is None
    assert linear_terms(i0 * i1, (0,)) == (0, {0: i1})
    assert linear_terms(5, (0,)) == (5, {0: 0})


def c_name(atom) -> str:
    return str(atom.expr)


def test_c_text():
    assert to_c(i0 * seq + 3, c_name) == "i0*seq + 3"
    assert to_c((i0 + 3) // 4 % seq, c_name) == "(i0 + 3) / 4 % seq"
    assert to_c((i0 - seq) // 4, c_name) == "floor_div(i0 - seq, 4)"
    assert to_c((seq - batch) // 4, c_name, ranges={"seq": Range(4, 4, 4), "batch": Range(1, 1, 4)}) == (
        "(seq - batch) / 4"
    )
    assert to_c((seq - i0) % 4, c_name, index_extents=(seq,)) == "(seq - i0) % 4"
    assert to_c(2 * i0 - 1, c_name, "long long") == "2LL*i0 - 1LL"
    assert to_c(seq * 2**40, c_name) == "1099511627776LL*seq"
    with pytest.raises(ValueError, match="int or long long"):
        to_c(seq, c_name, "short")


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("type_name", ["int", "long long"])
def test_c_text_computes_what_evaluate_does(tmp_path, type_name):
    rng = random.Random(11)
    ranges = {"a": Range(1, 2, 5), "b": Range(1, 2, 5)}
    cases = [random_pair(rng, 4)[0] for _ in range(120)]
    rows = "\n".join(
        f'  printf("%lld\\n", (long long)({to_c(dim, c_name, type_name, ranges)}));' for dim in cases
    )
    source = f"""
#include <cstdio>
#include <cstdlib>
using T = {type_name};
static T max(T a, T b) {{ return a > b ? a : b; }}
static T min(T a, T b) {{ return a < b ? a : b; }}
static T floor_div(T a, T b) {{ return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }}
static T floor_mod(T a, T b) {{ return a - b * floor_div(a, b); }}
int main(int, char** argv) {{
  T a = atoi(argv[1]), b = atoi(argv[2]), i0 = atoi(argv[3]), i1 = atoi(argv[4]);
  (void)a, (void)b, (void)i0, (void)i1;
{rows}
}}
"""
    (tmp_path / "dims.cpp").write_text(source)
    subprocess.run(["g++", "-O0", "-o", tmp_path / "dims", tmp_path / "dims.cpp"], check=True, timeout=120)
    assert " / " in source and "floor_div(" in source.split("main", 1)[1]
    for env, at in ASSIGNMENTS[::9]:
        arguments = [str(value) for value in (env["a"], env["b"], *at)]
        found = subprocess.run([tmp_path / "dims", *arguments], check=True, capture_output=True, text=True).stdout
        assert [int(line) for line in found.split()] == [evaluate(dim, env, at) for dim in cases]


def test_a_range_must_be_in_order():
    with pytest.raises(InvalidInput, match="0 <= min <= opt <= max"):
        Range(1, 0, 4)


def test_the_public_names_are_complete():
    assert all(hasattr(dims, name) for name in dims.__all__)
