"""Shared pytest set-up: tests import the tolerance table by name, GPU tests run only where there is a GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def _gpu_present() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or os.environ.get("LUMINAL_ONNX_GPU_TESTS") == "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _gpu_present():
        return
    kept = [item for item in items if item.get_closest_marker("gpu") is None]
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("gpu")])
    items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly which real models were not tested: a run without them proves less."""
    from parity.fixtures import CANNOT_BE_FETCHED

    skipped = [r.longrepr[2] for r in terminalreporter.stats.get("skipped", []) if isinstance(r.longrepr, tuple)]
    missing = [reason.removeprefix("Skipped: ") for reason in skipped if CANNOT_BE_FETCHED in reason]
    if missing:
        packages = sorted({reason.split()[0] for reason in missing})
        terminalreporter.section("REAL MODELS WERE NOT TESTED", sep="!", red=True, bold=True)
        terminalreporter.line(f"{len(missing)} tests were skipped, since these packages {CANNOT_BE_FETCHED}:")
        terminalreporter.line("  " + ", ".join(packages))
        terminalreporter.line(missing[0].splitlines()[-1])
        terminalreporter.line("LUMINAL_ONNX_REQUIRE_REAL_MODELS=1 makes this a failure.")
