"""The report of the environment never fails, and says what to install."""

from __future__ import annotations

import json

from fake_gpu import FakeDriver
from luminal_onnx.runtime.environment import describe


def test_everything_is_told():
    told = describe()
    json.dumps(told)
    for name in ("driver", "gpus", "nvrtc", "cublaslt", "cuda_headers", "c++"):
        entry = told[name]
        assert entry["required"] and (entry["found"] or entry["problem"])
    assert told["packages"]["numpy"]["found"] and told["packages"]["numpy"]["for"] == "run"
    assert told["packages"]["egglog"]["for"] == "compile"
    assert next(iter(told["packages"])) == "click"


def test_nothing_found_is_no_failure(monkeypatch):
    def nothing(*arguments, **options):
        raise RuntimeError("not here")

    monkeypatch.setattr("luminal_onnx.runtime.environment.metadata.version", nothing)
    monkeypatch.setattr("luminal_onnx.runtime.cpu.toolchain.toolchain", nothing)
    monkeypatch.setattr("luminal_onnx.runtime.cuda_driver.bindings", nothing)
    told = describe()
    assert told["driver"] == {"found": None, "required": "13.0 (driver 580 or newer)", "problem": "not here"}
    assert told["c++"]["problem"] == "not here"
    assert "luminal-onnx[gpu]" in told["cublaslt"]["problem"]
    assert told["packages"]["numpy"]["problem"] == "pip install 'luminal-onnx'"


def test_gpus_are_listed(monkeypatch):
    fake = FakeDriver({}, gpus=2)
    monkeypatch.setattr("luminal_onnx.runtime.cuda_driver.bindings", lambda: fake)
    told = describe()
    assert told["driver"]["found"] == "CUDA 13.0"
    assert told["gpus"]["found"][1] == {
        "device": "cuda:1",
        "name": "Fake GPU",
        "arch": "sm_90",
        "memory_bytes": 1 << 30,
    }
