"""Models that importers get wrong: imported, interpreted, compared with stored outputs (`tests/cases/README.md`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases.known_failures import KNOWN_FAILURES
from luminal_onnx.importer import load
from luminal_onnx.ir import interpreter
from tolerances import REDUCTION, assert_close

CASES = sorted(
    path.parent
    for path in (Path(__file__).parent.parent / "cases").glob("*/model.onnx")
    if path.parent.name not in KNOWN_FAILURES
)


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_case_gives_its_stored_outputs(folder: Path) -> None:
    graph = load(folder / "model.onnx").graph
    with np.load(folder / "io.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    sets = sorted({name.rsplit("_", 1)[1] for name in arrays})
    assert sets
    for number in sets:
        feeds = {name: arrays[f"in_{name}_{number}"] for name in graph.input_names}
        for name, got in zip(graph.output_names, interpreter.run(graph, feeds), strict=True):
            expected = arrays[f"out_{name}_{number}"]
            assert got.dtype == expected.dtype, name
            assert_close(got, expected, REDUCTION, vacuous_ok=True)
        assert any(np.any(array) for name, array in arrays.items() if name.startswith("out_") and name.endswith(number))
