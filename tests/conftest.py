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
