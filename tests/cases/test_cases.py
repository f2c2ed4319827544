"""Models that importers get wrong, through the whole road: compiled, run on the CPU, compared with stored outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases.known_failures import KNOWN_FAILURES
from luminal_onnx.plan.errors import UnsupportedModel
from luminal_onnx.runtime.session import InferenceSession
from parity.cpu_road import Stages, compile_for_cpu
from tolerances import REDUCTION, assert_close

CASES = [
    pytest.param(
        path.parent,
        id=path.parent.name,
        marks=[pytest.mark.xfail(reason=KNOWN_FAILURES[path.parent.name], raises=UnsupportedModel)]
        if path.parent.name in KNOWN_FAILURES
        else [],
    )
    for path in sorted(Path(__file__).parent.glob("*/model.onnx"))
]


@pytest.mark.parametrize("folder", CASES)
def test_compiled_case_gives_its_stored_outputs(folder: Path, tmp_path: Path) -> None:
    artifact, _ = compile_for_cpu(tmp_path / "case.luminal", str(folder / "model.onnx"), Stages())
    with np.load(folder / "io.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    sets = sorted({name.rsplit("_", 1)[1] for name in arrays})
    assert sets
    with InferenceSession(artifact, device="cpu", check_kernels=True) as session:
        inputs, outputs = ([port.name for port in ports] for ports in (session.get_inputs(), session.get_outputs()))
        for number in sets:
            results = session.run(None, {name: arrays[f"in_{name}_{number}"] for name in inputs})
            for name, got in zip(outputs, results, strict=True):
                expected = arrays[f"out_{name}_{number}"]
                assert got.dtype == expected.dtype, name
                assert_close(got, expected, REDUCTION, vacuous_ok=True)
