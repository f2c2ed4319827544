"""The search on real architectures and on every operator: whatever may be chosen computes what the model means."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from search_tools import TARGET, Oracle
from tolerances import MODEL, assert_close

sys.path.insert(0, str(Path(__file__).parent.parent / "importer"))

import op_table
from test_operators import SUBJECTS, one_node_model, opset_of_version

from luminal_onnx.importer import load
from luminal_onnx.ir.feeds import bind_feeds
from luminal_onnx.ir.interpreter import run
from luminal_onnx.ir.program import Program
from luminal_onnx.ir.program_reference import run_program
from luminal_onnx.ir.search import SearchSpace
from luminal_onnx.models import bert, llama, resnet50
from luminal_onnx.models.inputs import sample_inputs

DIGITS = Path(bert.__file__).with_name("digits.onnx")
MODELS = {
    "digits": lambda: onnx.load(DIGITS),
    "bert": bert.build,
    "bert, symbolic": lambda: bert.build(dynamic=True),
    "llama": llama.build,
    "resnet": resnet50.build,
}


class ModelOracle(Oracle):
    """Compares with the interpreter on the model's own sample inputs."""

    def __init__(self, graph, feeds: dict[str, np.ndarray]) -> None:
        self.feeds = feeds
        self.dims = bind_feeds(graph, feeds)[1]
        self.expected = run(graph, feeds, self.dims)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_all_programs_of_a_model_are_equal(name: str, capsys: pytest.CaptureFixture):
    """The best, the plain, 32 random ones and one for each candidate; nearly all candidates must have been run."""
    model = MODELS[name]()
    graph = load(model).graph
    space, oracle = SearchSpace(graph, TARGET), ModelOracle(graph, sample_inputs(model))
    oracle.check(space.best().program, MODEL)
    oracle.check(space.plain(), MODEL)
    for seed in range(32):
        program = space.random(seed)
        if program is not None:
            oracle.check(program, MODEL)
    run_count = 0
    for candidate in space.candidates:
        program = space.forced(candidate)
        if program is not None:
            oracle.check(program, MODEL)
            run_count += 1
    with capsys.disabled():
        print(f" {name}: {run_count} of {len(space.candidates)} candidates run", end="")
    assert run_count >= 0.95 * len(space.candidates)


def check_case(graph, feeds: dict[str, np.ndarray], case: op_table.Case) -> None:
    dims = bind_feeds(graph, feeds)[1]
    expected = run(graph, feeds, dims)
    space = SearchSpace(graph, TARGET)
    programs: list[Program | None] = [space.best().program, space.plain(), space.random(0), space.random(1)]
    for program in filter(None, programs):
        for actual, wanted in zip(run_program(program, feeds, dims), expected, strict=True):
            assert actual.dtype == wanted.dtype
            assert_close(actual, wanted, case.classes, vacuous_ok=True)  # the importer's tests see to that


@pytest.mark.slow
@pytest.mark.parametrize("operator, number", SUBJECTS)
def test_programs_of_an_operator_are_equal(operator, number: int):
    case = op_table.load_all()[operator.domain, operator.name][number]
    opset = opset_of_version(operator.since) if operator.domain == "" else 1
    feeds = {f"x{k}": a for k, a in enumerate(case.inputs) if a is not None and k not in case.constant}
    for symbolic in (False, True) if case.dims else (False,):
        check_case(load(one_node_model(operator.domain, operator.name, opset, case, symbolic)).graph, feeds, case)
