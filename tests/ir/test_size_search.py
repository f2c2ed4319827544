"""Programs with sizes that are known only when they run: whatever is chosen, a size is read before it is needed."""

from __future__ import annotations

import numpy as np
import pytest
from luminal_onnx.ir import interpreter
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.graph import symbols_in
from luminal_onnx.ir.program import Program, RegionKernel, SizeRead
from luminal_onnx.ir.program_reference import run_program
from luminal_onnx.ir.search import search
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import float32, int64
from search_tools import TARGET, space_of
from size_graphs import positives, rows_and_rows, rows_and_rows_expected
from tolerances import REDUCTION, assert_close

LENGTHS = (0, 1, 7, 12)


def feeds(length: int, share: float = 0.6) -> np.ndarray:
    rng = np.random.default_rng(length)
    x = rng.uniform(0.2, 1, (length, 4)).astype(np.float32)
    return np.where(rng.random((length, 1)) < share, x, -x)


def check(program: Program) -> None:
    """Compare with NumPy at several sizes, and see that each size is read before any kernel has it."""
    known = {"n"}
    for kernel in program.kernels:
        if isinstance(kernel, SizeRead):
            known.add(kernel.symbol)
        elif isinstance(kernel, RegionKernel):
            shapes = tuple(operand.shape for operand in kernel.region.operands)
            assert symbols_in((tuple(map(vars, kernel.region.nodes)), shapes)) <= known
    assert known == {"n", "kept", "again"}
    for length in LENGTHS:
        x = feeds(length)
        for got, want in zip(run_program(program, {"x": x}, {"n": length}), rows_and_rows_expected(x), strict=True):
            assert_close(got, want.astype(np.float32), REDUCTION, vacuous_ok=length < 2)


def test_the_best_and_the_plain_program_are_right() -> None:
    space = space_of(rows_and_rows())
    best = space.best()
    check(best.program)
    check(space.plain())
    assert best.report.kernels["size"] == 2


def test_random_programs_are_right() -> None:
    space = space_of(rows_and_rows())
    programs = [program for program in map(space.random, range(24)) if program is not None]
    assert len(programs) >= 20 and len({tuple(map(str, program.kernels)) for program in programs}) > 10
    for program in programs:
        check(program)


def test_every_candidate_is_right() -> None:
    space = space_of(rows_and_rows())
    found = [program for program in map(space.forced, space.candidates) if program is not None]
    assert len(found) > 0.8 * len(space.candidates)
    for program in found:
        check(program)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_none_and_all(share: float) -> None:
    program = search(rows_and_rows(), TARGET).program
    x = feeds(9, share)
    expected = interpreter.run(rows_and_rows(), {"x": x})
    for got, want in zip(run_program(program, {"x": x}, {"n": 9}), expected, strict=True):
        assert_close(got, want, REDUCTION, vacuous_ok=True)


def test_sizes_that_can_be_are_read_together() -> None:
    b = Builder("two", {"n": Range(1, 8, 64)})
    n = symbol("n")
    x = b.input("x", float32, (n,))
    counts = [b.reduce("sum", b.cast(b("greater", x, bound), int64), [0]) for bound in (0, 0.5)]
    for name, count in zip(("more", "fewer"), counts, strict=True):
        b.output(name, b.expand(b.reduce("max", x, [0]), (b.size(name, count, 0, n),)))
    program = search(b.graph, TARGET).program
    reads = [place for place, kernel in enumerate(program.kernels) if isinstance(kernel, SizeRead)]
    assert len(reads) == 2 and reads[1] == reads[0] + 1
    x = np.linspace(-1, 1, 8).astype(np.float32)
    more, fewer = run_program(program, {"x": x}, {"n": 8})
    np.testing.assert_array_equal(more, [1] * 4)
    np.testing.assert_array_equal(fewer, [1] * 2)


def test_a_fed_number_may_be_a_size() -> None:
    b = Builder("fed")
    count = b.input("count", int64, ())
    b.output("y", b.iota((b.size("k", count, 0, 9),), 3))
    program = search(b.graph, TARGET).program
    assert isinstance(program.kernels[0], SizeRead)
    (y,) = run_program(program, {"count": np.array(4)}, {})
    np.testing.assert_array_equal(y, [3] * 4)


def test_a_graph_without_sizes_waits_for_nothing() -> None:
    graph = positives()
    assert any(candidate.waits for candidate in space_of(graph).candidates)
    b = Builder("plain", {"n": Range(1, 8, 64)})
    b.output("y", b("mul", b.input("x", float32, (symbol("n"),)), 2))
    assert not any(candidate.waits for candidate in space_of(b.graph).candidates)
