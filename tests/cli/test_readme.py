"""What README and the guide say is run as it stands there."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from luminal_onnx.importer import load, registry
from luminal_onnx.ir.interpreter import run
from luminal_onnx.models.__main__ import main as write_model
from luminal_onnx.plan import errors
from onnx import helper
from small_models import one_graph
from tolerances import ELEMENTWISE, assert_close

from luminal_onnx import models
from luminal_onnx.cli import cli as commands

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "docs" / "adding-an-operator.md").read_text()
ON_A_GPU = "# on an NVIDIA GPU"


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands_in(text: str, program: str) -> list[str]:
    return re.findall(rf"^    ({re.escape(program)} .*)$", text, re.MULTILINE)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder that looks like a checkout to the examples."""
    (tmp_path / "models").mkdir()
    shutil.copy(Path(models.__file__).parent / "digits.onnx", tmp_path / "models")
    monkeypatch.chdir(tmp_path)


def test_the_command_lines(cli, workplace):
    lines = commands_in(README, "luminal-onnx")
    assert len(lines) == 4
    for line in lines:
        done = cli(*shlex.split(line, comments=True)[1:])
        assert done.code == 0 or (line.endswith(ON_A_GPU) and done.code == 3), (line, done)


def test_the_python_example(workplace):
    (block,) = python_blocks(README)
    names: dict = {}
    exec(compile(block, "README.md", "exec"), names)  # noqa: S102
    assert names["probabilities"].shape == (2, 10)
    np.testing.assert_allclose(names["probabilities"].sum(axis=1), np.ones(2), **vars(ELEMENTWISE["float32"]))


def test_the_sample_model(workplace, capsys):
    (line,) = commands_in(README, "python -m luminal_onnx.models")
    small = ["--layers", "1", "--hidden", "32", "--heads", "2", "--seq", "8"]  # the last of equal flags counts
    assert write_model([*shlex.split(line)[3:], *small]) == 0
    assert len(onnx.load("bert.onnx").graph.node) > 40


def test_the_table_of_commands_is_complete():
    table = README[README.index("| command |") : README.index("## Inside")]
    listed = re.findall(r"^\| `(\w+)[^|]*` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(commands.commands)


def test_the_exit_codes():
    stated = re.search(r"Exit codes: (.*?)\.\n\n", README, re.DOTALL)[1]
    codes = {int(code) for code in re.findall(r"\b(\d+) [a-z]", stated)}
    raised = {error.exit_code for error in vars(errors).values() if isinstance(error, type)}
    assert codes == raised | {0, 64}


@pytest.mark.parametrize("page", ["README.md", "docs/models.md", "docs/adding-an-operator.md", "docs/architecture.md", "docs/kernels.md"])
def test_links_and_paths_exist(page):
    text = (ROOT / page).read_text()
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert ((ROOT / page).parent / link).exists(), link
    for path in re.findall(r"`((?:importer|ir|codegen|runtime|plan|models|tests|docs|benchmarks)/[\w/]*[\w.]*)`", text):
        assert (ROOT / path).exists(), path


def test_make_has_what_readme_names():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert f"\n{target}: " in makefile


def test_the_example_operator():
    (block,) = python_blocks(GUIDE)
    key = ("com.example", "SquaredRelu")
    try:
        exec(compile(block, "adding-an-operator.md", "exec"), {})  # noqa: S102
        node = helper.make_node("SquaredRelu", ["x"], ["y"], domain=key[0], scale=0.5)
        model = one_graph([node], {"x": (2, "n")}, {"y": (2, "n")})
        model.opset_import.append(helper.make_opsetid(key[0], 1))
        x = np.random.default_rng(3).standard_normal((2, 7)).astype(np.float32)
        (y,) = run(load(model).graph, {"x": x})
        assert_close(y, 0.5 * np.maximum(x, 0) ** 2)
    finally:
        registry._TABLE.pop(key, None)


def test_the_versions_that_the_guide_names():
    operator, versions = re.search(r'`@onnx_op\("(\w+)", ([\d, ]+)\)`', GUIDE).groups()
    registered = [entry.since for entry in registry.registered() if (entry.domain, entry.name) == ("", operator)]
    assert registered == [int(version) for version in versions.split(",")]
