"""A small model and its artifact, and a way to call the command line as a user would."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from luminal_onnx.cli import main

sys.path.insert(0, str(Path(__file__).parent))

from small_models import mlp_model, one_graph


@dataclass(frozen=True)
class Result:
    """What one command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its --json object; constants that are no JSON are refused."""

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def cli(capsys):
    """Call the command line in this process."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(stopped.value.code, printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def shelf(tmp_path_factory) -> Path:
    """A folder with mlp.onnx, its artifact mlp.luminal (batch 1 to 64, opt 4), and other.onnx, another model."""
    folder = tmp_path_factory.mktemp("shelf")
    onnx.save(mlp_model(), folder / "mlp.onnx")
    add = helper.make_node("Add", ["x", "z"], ["y"])
    onnx.save(one_graph([add], {"x": (2, 3), "z": (2, 3)}, {"y": (2, 3)}), folder / "other.onnx")
    with pytest.raises(SystemExit) as stopped:
        main(["compile", str(folder / "mlp.onnx"), "--dim", "batch=1:4:64", "--arch", "sm_90", "--quiet"])
    assert stopped.value.code == 0
    return folder


@pytest.fixture
def mlp(shelf) -> Path:
    return shelf / "mlp.luminal"


@pytest.fixture
def model(shelf) -> Path:
    return shelf / "mlp.onnx"
