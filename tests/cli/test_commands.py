"""What each command prints, as text and as JSON, when all goes well."""

from __future__ import annotations

import shlex

import numpy as np
import onnx
import pytest
from small_models import gemm_relu_model
from tolerances import MODEL, assert_close

from luminal_onnx import InferenceSession, __version__
from luminal_onnx.plan.records import LtStep
from luminal_onnx.runtime.artifact import Artifact


def test_compile_says_what_the_model_became(cli, model, tmp_path):
    target = tmp_path / "name with blanks.luminal"
    done = cli("compile", model, "-o", target, "--dim", "batch=1:4:64", "--arch", "sm_90", "--arch", "sm_80")
    assert done.code == 0 and done.err == ""
    for text in (
        "mlp, 3 ONNX nodes, opset 17",
        "x: float32[batch, 16]",
        "batch 1..64 (opt 4)",
        "0 host ops",
        "sm_90, sm_80, PTX",
        "against onnxruntime, at batch=1",
    ):
        assert text in done.out
    assert [line for line in done.out.splitlines() if line != line.rstrip()] == []
    proposed = [line.partition("#")[0].strip() for line in done.out.partition("try next")[2].splitlines() if line]
    assert [shlex.split(line)[2] for line in proposed] == [str(target)] * 3
    assert InferenceSession(target, device="cpu").get_inputs()[0].shape == ["batch", 16]
    assert cli(*shlex.split(proposed[0])[1:]).code == 0


def test_compile_proposes_to_bound_dims(cli, model, tmp_path):
    done = cli("compile", model, "-o", tmp_path / "a", "--no-verify", "--arch", "sm_90")
    assert "unverified: not asked for" in done.out
    assert f"luminal-onnx compile {model} --dim batch=1:8:32" in done.out
    done = cli("compile", model, "-o", tmp_path / "b", "--no-verify", "--arch", "sm_90", "--dim", "batch=7")
    assert "float32[7, 16]" in done.out and "--dim" not in done.out


def test_compile_json(cli, model, tmp_path):
    found = cli("compile", model, "-o", tmp_path / "m", "--shapes", "x:5x16", "--arch", "sm_90,sm_90", "--json").json
    assert found["arches"] == ["sm_90"] and found["inputs"] == ["x: float32[5, 16]"] and found["dims"] == {}
    assert found["verification"]["status"] == "passed" and found["verification"]["same_file"]
    (row,) = found["verification"]["outputs"]
    assert row["ok"] and 0 <= row["error"] <= row["tolerance"] < row["spread"]
    assert found["statistics"]["kernels"] >= 2 and found["host_ops"] == 0
    phases = dict(found["seconds"])
    total = phases.pop("total")
    assert list(phases) == ["start", "import", "search", "codegen", "nvrtc", "write", "verify", "report"]
    assert 0 < sum(phases.values()) <= total + 1e-3  # they are rounded
    assert found["bytes"] == (tmp_path / "m").stat().st_size


def test_compile_quiet_and_verbose(cli, model, tmp_path, caplog):
    common = ("compile", model, "--onnx", model, "--no-verify")
    assert cli(*common).code == 64  # one of the two
    done = cli("compile", "--onnx", model, "--saveEngine", tmp_path / "q", "--no-verify", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    with caplog.at_level("INFO", logger="luminal_onnx"):
        cli("compile", model, "-o", tmp_path / "v", "--no-verify", "--quiet", "--verbose")
    assert {"import", "search", "nvrtc", "write"} <= {record.getMessage().split()[0] for record in caplog.records}


def test_the_default_target_lies_beside_the_model(cli, model):
    assert (model.with_suffix(".luminal")).is_file()


def test_run_prints_outputs(cli, mlp, tmp_path):
    saved = tmp_path / "out.npz"
    done = cli("run", mlp, "--device", "cpu", "--dim", "batch=3", "--save-outputs", saved)
    assert done.code == 0 and "on cpu, at batch=3, made-up values for x" in done.out and "float32[3, 4]" in done.out
    with np.load(saved) as outputs:
        assert outputs["y"].shape == (3, 4)
    found = cli("run", "--loadEngine", mlp, "--device", "cpu", "--iterations", 2, "--json").json
    assert found["device"] == "cpu" and found["dims"] == {"batch": 4} and found["made_up"] == ["x"]
    (row,) = found["outputs"]
    assert row["shape"] == [4, 4] and row["min"] <= row["mean"] <= row["max"] and len(row["first"]) == 6


@pytest.mark.parametrize("kind", ["npy", "npz", "raw"])
def test_run_on_files(cli, mlp, tmp_path, kind):
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    file, saved = tmp_path / f"x.{kind}", tmp_path / "y.npz"
    write = {"npy": lambda: np.save(file, x), "npz": lambda: np.savez(file, x=x), "raw": lambda: x.tofile(file)}
    write[kind]()
    done = cli(
        "run", mlp, "--device", "cpu", "--loadInputs", file if kind == "npz" else f"x:{file}", "--save-outputs", saved
    )
    assert done.code == 0 and "the given inputs" in done.out
    (expected,) = InferenceSession(mlp, device="cpu").run(None, {"x": x})
    with np.load(saved) as outputs:
        assert_close(outputs["y"], expected, MODEL)


def test_run_bounds_made_up_values(cli, mlp, tmp_path):
    args = ("run", mlp, "--device", "cpu", "--json", "--val-range", "x:[0,0]")
    (row,) = cli(*args).json["outputs"]
    assert row["first"][:4] != [0.0] * 4  # the biases are left
    (again,) = cli(*args, "--seed", 7).json["outputs"]
    assert row == again  # nothing random is left


def test_values_that_json_lacks_are_texts(cli, mlp, tmp_path):
    np.save(tmp_path / "x.npy", np.full((1, 16), np.inf, np.float32))
    (row,) = cli("run", mlp, "--device", "cpu", "--json", "--loadInputs", f"x:{tmp_path / 'x.npy'}").json["outputs"]
    assert {row["max"], *row["first"]} & {"inf", "-inf", "nan"}


def test_verify(cli, mlp, model, tmp_path):
    done = cli("verify", mlp, model)
    assert done.code == 0 and "at batch=1" in done.out and "ok" in done.out and "another file" not in done.out
    found = cli("verify", mlp, model, "--dim", "batch=7", "--json").json
    assert found["status"] == "passed" and found["at"] == "batch=7" and found["device"] == "cpu"
    np.save(tmp_path / "x.npy", np.zeros((1, 16), np.float32))  # a single row: nothing spreads but over y
    assert cli("verify", mlp, model, "--loadInputs", f"x:{tmp_path / 'x.npy'}").code == 0


def test_inspect_an_artifact(cli, mlp):
    done = cli("inspect", mlp)
    assert done.code == 0
    for text in ("format 1", "sm_90, PTX", "batch 1..64 (opt 4)", "passed at batch=1", "fc1", "fc2"):
        assert text in done.out
    found = cli("inspect", mlp, "--json").json
    assert found["format_version"] == 1 and len(found["steps"]) == found["statistics"]["launches"]
    assert {node for step in found["steps"] for node in step["covers"]} == {"fc1", "act", "fc2"}


def test_inspect_and_check_a_model(cli, model):
    done = cli("inspect", model)
    assert done.code == 0 and "Gemm 1, MatMul 1, Relu 1" in done.out and "[" not in done.out.partition("dims")[2]
    assert cli("inspect", model, "--json").json["operators"] == {"Gemm": 1, "MatMul": 1, "Relu": 1}
    assert "supported" in cli("check", model).out
    assert cli("check", model, "--json").json == {"ok": True, "unsupported": []}


def test_env(cli):
    done = cli("env")
    assert done.code == 0 and f"luminal-onnx {__version__}" in done.out
    for text in ("to run artifacts on a GPU", "to compile", "nvrtc", "numpy"):
        assert text in done.out
    assert cli("env", "--json").json["packages"]["numpy"]["for"] == "run"


def test_version_and_help(cli):
    assert __version__ in cli("--version").out
    assert "compile" in cli("-h").out
    assert cli("compile", "--help").code == 0


def test_strict_nan_keeps_the_librarys_relu_out(cli, tmp_path):
    """cuBLASLt's relu turns NaN into 0. The product is of a size at which the library is chosen."""
    onnx.save(gemm_relu_model(2048, 256), tmp_path / "wide.onnx")
    epilogues = {}
    for flags in ([], ["--strict-nan"]):
        done = cli("compile", tmp_path / "wide.onnx", "-o", tmp_path / "wide.luminal", "--arch", "sm_90", "--no-verify", *flags)
        assert done.code == 0, done.err
        with Artifact.open(tmp_path / "wide.luminal") as artifact:
            steps = list(artifact.plan("sm_90").steps())
        epilogues[bool(flags)] = [step.matmul.epilogue for step in steps if isinstance(step, LtStep)]
    assert epilogues == {False: ["relu_bias"], True: ["bias"]}
