"""What is installed: every package and data file is listed in pyproject.toml, and importing the runtime stays light."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
PACKAGES = {name: ROOT / folder for name, folder in SETUPTOOLS["package-dir"].items()}
NOT_INSTALLED = {"__pycache__"}


def test_every_package_has_a_folder():
    assert sorted(PACKAGES) == sorted(SETUPTOOLS["packages"])
    assert [str(folder) for folder in PACKAGES.values() if not (folder / "__init__.py").is_file()] == []


def test_every_folder_with_python_is_a_package():
    parts = {folder.relative_to(ROOT).parts[0] for folder in PACKAGES.values()}
    folders = {path.parent for part in parts for path in (ROOT / part).rglob("*.py")}
    assert folders == set(PACKAGES.values())


def test_every_data_file_is_installed():
    left_out = []
    for name, folder in PACKAGES.items():
        patterns = SETUPTOOLS["package-data"].get(name, [])
        for path in folder.iterdir():
            if path.is_dir():
                if path not in PACKAGES.values() and path.name not in NOT_INSTALLED:
                    left_out.append(str(path.relative_to(ROOT)))
            elif path.suffix not in (".py", ".pyc") and not any(fnmatch(path.name, pattern) for pattern in patterns):
                left_out.append(str(path.relative_to(ROOT)))
    assert left_out == []


def test_the_data_is_there():
    for name, patterns in SETUPTOOLS["package-data"].items():
        assert any(list(PACKAGES[name].glob(pattern)) for pattern in patterns), name


def test_the_version_is_stated_once():
    from luminal_onnx import __version__

    assert PROJECT["project"]["version"] == __version__


def test_the_runtime_imports_nothing_of_the_compiler():
    script = (
        "import sys, luminal_onnx, luminal_onnx.runtime.session\n"
        "heavy = {'onnx', 'egglog', 'scipy', 'sympy', 'onnxruntime', 'torch'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_kernel_family_is_counted():
    from luminal_onnx.ir import schedule
    from luminal_onnx.pipeline import TEMPLATES

    named = {value for key, value in vars(schedule).items() if key.isupper() and isinstance(value, str)}
    assert named and named <= set(TEMPLATES)
