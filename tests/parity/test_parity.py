"""Models through the whole road: import, search, code generation, artifact, session on the CPU, against onnxruntime."""

from __future__ import annotations

import pytest

import luminal_onnx
from parity.cases import BUILT, REAL, SLOW_REAL, Case
from parity.comparison import assert_parity, onnxruntime_outputs

CASES = [pytest.param(case, id=case.name) for case in (*BUILT, *REAL)]
CASES += [pytest.param(case, id=case.name, marks=pytest.mark.slow) for case in SLOW_REAL]


@pytest.mark.parametrize("case", CASES)
def test_matches_onnxruntime_on_the_cpu_road(case: Case) -> None:
    model = case.build()
    sets = case.feeds(model)
    names, expected = onnxruntime_outputs(model, sets)
    artifact = luminal_onnx.compile(model, dims=case.dims, arches=["sm_90"], verify=False)
    with luminal_onnx.InferenceSession(artifact, device="cpu") as session:
        actual = [session.run(None, feeds) for feeds in sets]
    assert_parity(names, actual, expected)
