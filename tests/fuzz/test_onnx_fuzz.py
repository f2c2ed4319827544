"""Generated ONNX models against onnxruntime: what they mean once imported, then the whole road on the CPU."""

from __future__ import annotations

import onnx
import pytest
from fuzz.batches import failures_of, model_case
from fuzz.failures import Ways
from fuzz.onnx_failures import first_failure, imported, meaning_failures, shrunk_model
from fuzz.onnx_generate import OnnxCase, generate_onnx
from fuzz.oracle import expect

TOGETHER = 30
QUICK = 30
SLOW = 330
LEAST_SHARE = 0.9
BATCHES = [
    pytest.param(first, id=str(first), marks=[pytest.mark.slow] if first >= QUICK else [])
    for first in range(0, SLOW, TOGETHER)
]


@pytest.mark.parametrize("first", BATCHES)
def test_no_model_differs(first: int) -> None:
    found = list(failures_of(model_case, range(first, first + TOGETHER), Ways(randoms=1)))
    assert not found, f"{len(found)} failures\n\n" + "\n\n".join(found)


def test_many_operators_are_drawn() -> None:
    drawn = {node.op_type for seed in range(300) for node in generate_onnx(seed).model.graph.node}
    assert len(drawn) >= 80


def test_comparisons_tell_and_see_a_wrong_operator() -> None:
    shares, seen, tried = [], 0, 0
    for seed in range(60):
        case = generate_onnx(seed)
        model, _ = imported(case)
        for binding in model.bindings:
            shares += [expected.share for expected in expect(model.graph, binding.feeds, binding.dims)]
        changed = onnx.ModelProto.FromString(case.model.SerializeToString())
        sums = [node for node in changed.graph.node if node.op_type == "Add"]
        for node in sums:
            node.op_type = "Sub"
        if sums:
            tried += 1
            wrong = imported(OnnxCase(seed, changed, case.dims, case.feeds))[0]
            seen += wrong is None or next(meaning_failures(case, wrong), None) is not None
    assert sum(shares) / len(shares) > LEAST_SHARE
    assert seen >= LEAST_SHARE * tried > 10


@pytest.mark.parametrize("kind", ["Tanh", "Transpose", "Softmax"])
def test_a_planted_bug_is_shrunk_to_one_node(kind: str) -> None:
    def contains(case: OnnxCase) -> bool:
        return any(node.op_type == kind for node in case.model.graph.node)

    case = next(c for c in map(generate_onnx, range(1000)) if contains(c) and len(c.model.graph.node) >= 8)
    small = shrunk_model(case, None, contains)
    assert [node.op_type for node in small.model.graph.node] == [kind]
    assert first_failure(small) is None
