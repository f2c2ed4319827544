"""Every real model through the whole road on the CPU, held to onnxruntime at every shape that it was recorded with."""

from __future__ import annotations

from pathlib import Path

import pytest
from luminal_onnx.runtime.session import InferenceSession
from parity.cpu_road import Stages, compile_for_cpu
from parity.fixtures import catalogue
from parity.known_failures import KNOWN_FAILURES
from parity.real_bar import RealBar
from parity.real_cases import DIMS, OPT_NOISE, SETS, TWINS, compilations, source

pytestmark = pytest.mark.slow


def _marks(model_id: str) -> list[pytest.MarkDecorator]:
    reason = KNOWN_FAILURES.get(model_id)
    return [] if reason is None else [pytest.mark.xfail(reason=reason)]


@pytest.mark.parametrize("model_id", [pytest.param(name, marks=_marks(name)) for name in catalogue()])
def test_real_model_agrees_with_onnxruntime(model_id: str, tmp_path: Path) -> None:
    model, ways = source(model_id), compilations(model_id)
    bar = RealBar(model_id, model, [feeds for way in ways for feeds in way.sets])
    actual = []
    for number, way in enumerate(ways):
        artifact, _ = compile_for_cpu(tmp_path / f"{number}.luminal", model, Stages(), way.dims)
        with InferenceSession(artifact, device="cpu") as session:
            actual += [session.run(None, feeds) for feeds in way.sets]
    bar.hold(actual)


@pytest.mark.parametrize("model_id", catalogue())
def test_every_recorded_shape_is_run(model_id: str) -> None:
    recorded = [
        {name: tuple(shape) for name, (_, shape) in run["input_shapes"].items()}
        for run in catalogue()[model_id]["runs"]
    ]
    sets = [feeds for way in compilations(model_id) for feeds in way.sets]
    shapes = [{name: array.shape for name, array in feeds.items()} for feeds in sets]
    assert len(shapes) >= 2
    assert all(shape in shapes for shape in recorded)
    assert len(shapes) == max(2, len(recorded))


@pytest.mark.parametrize("table", [DIMS, OPT_NOISE, SETS, TWINS, KNOWN_FAILURES])
def test_tables_name_known_models(table: dict) -> None:
    assert set(table) <= set(catalogue())
