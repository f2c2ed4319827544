"""What a compile may cost: time, memory, and how much of the time is accounted for. On two cores, one arch, no GPU."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from luminal_onnx.models import bert, resnet50, save

pytestmark = pytest.mark.slow

COLD_SECONDS, WARM_SECONDS, SEARCH_SECONDS = 60.0, 6.0, 5.0
PEAK_BYTES = 3 * 2**30
ATTRIBUTED = 0.95
BUILDERS = {"bert": bert, "resnet50": resnet50}


@pytest.fixture(scope="module", params=sorted(BUILDERS))
def full_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BERT-base with 12 layers, and ResNet-50, at their published sizes."""
    module = BUILDERS[request.param]
    path = tmp_path_factory.mktemp("full") / f"{request.param}.onnx"
    return Path(save(module.build(**module.FULL), path))


def _compile(model: Path, cache: Path, output: Path) -> tuple[float, dict]:
    """Compile in a process of its own; return its wall seconds and the report that it printed.

    Python keeps its compiled modules, as it does unless it is told not to.
    """
    arguments = ["compile", str(model), "-o", str(output), "--arch", "sm_90", "--no-verify", "--json"]
    code = "from luminal_onnx.cli import main; main()"
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "LUMINAL_ONNX_CACHE": str(cache), "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - started, json.loads(done.stdout)


def test_full_models_compile_within_the_budget(full_model: Path, tmp_path: Path) -> None:
    cold, first = _compile(full_model, tmp_path / "cache", tmp_path / "a.luminal")
    warm, again = _compile(full_model, tmp_path / "cache", tmp_path / "b.luminal")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    assert cold <= COLD_SECONDS, f"cold compile took {cold:.1f} s"
    assert warm <= WARM_SECONDS, f"warm compile took {warm:.1f} s"
    assert peak <= PEAK_BYTES, f"peak was {peak / 2**30:.2f} GiB"
    assert again["seconds"]["search"] <= SEARCH_SECONDS
    for wall, report in ((cold, first), (warm, again)):
        attributed = sum(value for name, value in report["seconds"].items() if name != "total")
        assert attributed >= ATTRIBUTED * wall, f"{attributed:.2f} of {wall:.2f} s are accounted for: {report['seconds']}"
