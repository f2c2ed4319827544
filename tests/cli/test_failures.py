"""Every way to go wrong ends in one message that names the thing, the right exit code, and nothing half-written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from small_models import mlp_model, one_graph

from luminal_onnx.cli import cli as commands

MISMATCH, UNSUPPORTED, ENVIRONMENT, INPUT, USAGE, INTERNAL = 1, 2, 3, 4, 64, 70


@pytest.fixture
def bench(cli, shelf, tmp_path, monkeypatch):
    """A folder of good and bad files to work in, and a check of how a command fails there."""
    for name in ("mlp.onnx", "mlp.luminal", "other.onnx"):
        shutil.copy(shelf / name, tmp_path)
    data = (shelf / "mlp.onnx").read_bytes()
    (tmp_path / "cut.onnx").write_bytes(data[: len(data) // 2])
    (tmp_path / "text.onnx").write_bytes(b"this is no model\n" * 9)
    (tmp_path / "empty.onnx").write_bytes(b"")
    frob = helper.make_node("Frobnicate", ["x"], ["y"], name="frob")
    onnx.save(one_graph([frob], {"x": (2, 3)}, {"y": (2, 3)}), tmp_path / "unknown.onnx")
    packed = (shelf / "mlp.luminal").read_bytes()
    (tmp_path / "cut.luminal").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "flipped.luminal").write_bytes(packed[:5000] + bytes([packed[5000] ^ 1]) + packed[5001:])
    (tmp_path / "empty.luminal").write_bytes(b"")
    np.save(tmp_path / "wide.npy", np.zeros((2, 17), np.float32))
    np.save(tmp_path / "flat.npy", np.zeros(16, np.float32))
    np.save(tmp_path / "double.npy", np.zeros((2, 16)))
    np.save(tmp_path / "many.npy", np.zeros((65, 16), np.float32))
    np.save(tmp_path / "two.npy", np.zeros((2, 16), np.float32))
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    (tmp_path / "short.raw").write_bytes(b"1234")
    (tmp_path / "junk.npz").write_bytes(b"junk")
    monkeypatch.chdir(tmp_path)

    def fails(line: str, code: int, *fragments: str) -> None:
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        done = cli(*line.split())
        assert done.code == code, done
        assert done.out == "" and "Traceback" not in done.err
        for fragment in fragments:
            assert fragment in done.err
        if code != USAGE:
            assert done.err.startswith("error: ") and done.err.count("error:") == 1
        assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    return fails


COMPILING = [
    ("compile none.onnx", INPUT, "no such file: none.onnx"),
    ("compile text.onnx", INPUT, "text.onnx is not an ONNX model", "re-export"),
    ("compile cut.onnx", INPUT, "cut.onnx is not an ONNX model"),
    ("compile empty.onnx", INPUT, "empty is not an ONNX model"),
    ("compile mlp.luminal -o m", INPUT, "mlp.luminal is not an ONNX model"),
    ("compile unknown.onnx", UNSUPPORTED, "Frobnicate", "frob"),
    ("compile mlp.onnx --dim batch", INPUT, "--dim 'batch'", "NAME=MIN:OPT:MAX"),
    ("compile mlp.onnx --dim batch=8:1", INPUT, "must not fall"),
    ("compile mlp.onnx --dim batch=1:2:3:4", INPUT, "NAME=MIN:OPT:MAX"),
    ("compile mlp.onnx --dim batch=-1", INPUT, "NAME=SIZE"),
    ("compile mlp.onnx --dim btach=8", INPUT, "no dim 'btach'", "batch"),
    ("compile mlp.onnx --shapes y:1x2", INPUT, "no input 'y'", "it has: x"),
    ("compile mlp.onnx --shapes x:1x2", INPUT, "'x'", "[1, 16]", "[1, 2]"),
    ("compile mlp.onnx --shapes x:1", INPUT, "2 axes"),
    ("compile mlp.onnx --shapes x=1", INPUT, "NAME:1x3x224x224"),
    ("compile mlp.onnx --arch sm_70", INPUT, "unknown arch 'sm_70'", "sm_80, sm_90, sm_100"),
    ("compile mlp.onnx -o none/m.luminal", INPUT, "there is no folder none"),
    ("compile mlp.onnx -o mlp.onnx", INPUT, "the model itself"),
    ("compile", USAGE, "exactly one file"),
    ("compile mlp.onnx --bogus", USAGE, "--bogus"),
    ("compile .", USAGE, "is a directory"),
    ("compile mlp.onnx -o .", USAGE, "is a directory"),
    ("compile mlp.onnx --verify-time soon", USAGE, "not a valid float"),
    ("frob", USAGE, "No such command 'frob'"),
    ("check text.onnx", INPUT, "not an ONNX model"),
    ("inspect unknown.onnx", UNSUPPORTED, "Frobnicate"),
    ("inspect none.onnx", INPUT, "no such file"),
]
RUNNING = [
    ("run none.luminal", INPUT, "no such file: none.luminal"),
    ("run mlp.onnx --device cpu", INPUT, "mlp.onnx is not a luminal-onnx artifact"),
    ("run cut.luminal --device cpu", INPUT, "cut.luminal", "truncated", "compile it again"),
    ("run flipped.luminal --device cpu", INPUT, "flipped.luminal", "altered"),
    ("run empty.luminal --device cpu", INPUT, "empty.luminal is empty"),
    ("inspect flipped.luminal", INPUT, "flipped.luminal", "altered"),
    ("verify cut.luminal mlp.onnx", INPUT, "cut.luminal", "truncated"),
    ("run mlp.luminal --device tpu", USAGE, "'tpu'"),
    ("run mlp.luminal --device cpu --dim batch=65", INPUT, "batch is 65", "1..64"),
    ("run mlp.luminal --device cpu --dim batch=0", INPUT, "batch is 0", "1..64"),
    ("run mlp.luminal --device cpu --dim batch=1:2", INPUT, "NAME=SIZE"),
    ("run mlp.luminal --device cpu --dim btach=2", INPUT, "no dim 'btach'", "batch"),
    ("run mlp.luminal --device cpu --loadInputs q:two.npy", INPUT, "'q:two.npy'", "the inputs are: x"),
    ("run mlp.luminal --device cpu --loadInputs x:none.npy", INPUT, "none.npy"),
    ("run mlp.luminal --device cpu --loadInputs x:none.raw", INPUT, "none.raw"),
    ("run mlp.luminal --device cpu --loadInputs x:wide.npy", INPUT, "input: x", "Expected: 16 Got: 17"),
    ("run mlp.luminal --device cpu --loadInputs x:flat.npy", INPUT, "rank", "Got: 1 Expected: 2"),
    ("run mlp.luminal --device cpu --loadInputs x:double.npy", INPUT, "tensor(double)", "tensor(float)"),
    ("run mlp.luminal --device cpu --loadInputs x:many.npy", INPUT, "batch in 1..64 Got: 65"),
    ("run mlp.luminal --device cpu --loadInputs x:two.npy --dim batch=3", INPUT, "batch is 3, but 2"),
    ("run mlp.luminal --device cpu --loadInputs x:objects.npy", INPUT, "objects.npy", "np.save"),
    ("run mlp.luminal --device cpu --loadInputs x:short.raw", INPUT, "short.raw holds 4 bytes", "takes 256"),
    ("run mlp.luminal --device cpu --loadInputs junk.npz", INPUT, "junk.npz"),
    ("run mlp.luminal --device cpu --val-range q:[0,1]", INPUT, "no input 'q'"),
    ("run mlp.luminal --device cpu --val-range x:[1,0]", INPUT, "NAME:[LO,HI]"),
    ("run mlp.luminal --device cpu --val-range x:[0,nan]", INPUT, "NAME:[LO,HI]"),
    ("run mlp.luminal --device cpu --save-outputs none/y.npz", INPUT, "none/y.npz"),
    ("run mlp.luminal --device cpu --iterations 0", USAGE, "0 is not in the range"),
    ("verify mlp.luminal other.onnx", INPUT, "another model", "x, z"),
    ("verify mlp.luminal text.onnx", INPUT, "text.onnx is not an ONNX model"),
    ("verify mlp.luminal none.onnx", INPUT, "no such file: none.onnx"),
    ("verify mlp.luminal mlp.onnx --dim batch=65", INPUT, "batch is 65"),
    ("verify mlp.luminal mlp.onnx --val-range q:[0,1]", INPUT, "no input 'q'"),
]


@pytest.mark.parametrize(("line", "code", "fragments"), [(row[0], row[1], row[2:]) for row in COMPILING + RUNNING])
def test_bad_input_and_usage(bench, line, code, fragments):
    bench(line, code, *fragments)


def test_check_lists_what_is_unsupported(cli, bench):
    done = cli("check", "unknown.onnx")
    assert done.code == UNSUPPORTED and "ai.onnx.Frobnicate" in done.out and done.err == ""
    done = cli("check", "unknown.onnx", "--json")
    assert done.code == UNSUPPORTED and done.json["unsupported"][0]["names"] == ["frob"]


def test_json_of_a_failure(cli, bench):
    done = cli("compile", "none.onnx", "--json")
    assert done.json == {"error": "no such file: none.onnx", "exit_code": INPUT} and done.code == INPUT


@pytest.mark.parametrize("line", ["run mlp.luminal", "verify mlp.luminal mlp.onnx --device cuda", "bench mlp.luminal"])
def test_no_gpu(bench, monkeypatch, line):
    class NoLibrary:
        def cuInit(self, flags):
            raise RuntimeError("libcuda.so.1 is not here")

    monkeypatch.setattr("luminal_onnx.runtime.cuda_driver.bindings", NoLibrary)
    bench(line, ENVIRONMENT, "driver", "--device cpu")


@pytest.mark.parametrize(
    "line", ["run mlp.luminal --device cpu", "compile mlp.onnx -o m", "verify mlp.luminal mlp.onnx"]
)
def test_no_compiler(bench, monkeypatch, tmp_path, line):
    from luminal_onnx.runtime.cpu.toolchain import toolchain

    toolchain.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("LUMINAL_ONNX_CACHE", str(tmp_path.with_name(f"{tmp_path.name}-cache")))
    bench(line, ENVIRONMENT, "g++ 11 or later", "apt-get install g++", *(["--no-verify"] if "compile" in line else []))


def test_no_cuda_headers(bench, monkeypatch):
    from luminal_onnx.runtime.cpu import toolchain as module

    module.toolchain.cache_clear()
    monkeypatch.setattr(module, "_header_roots", list)
    bench("compile mlp.onnx -o m", ENVIRONMENT, "CUDA's headers", "pip install", "CUDA_HOME")
    module.toolchain.cache_clear()


MISSING = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"onnx", "egglog", "scipy", "onnxruntime"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from luminal_onnx.cli import main
main(sys.argv[1:])
"""


def without_compile_extra(line: str, folder: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", MISSING, *line.split()]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "line", ["compile mlp.onnx", "check mlp.onnx", "inspect mlp.onnx", "verify mlp.luminal mlp.onnx"]
)
def test_without_the_compile_extra(bench, tmp_path, line):
    done = without_compile_extra(line, tmp_path)
    assert done.returncode == ENVIRONMENT and done.stdout == ""
    assert "Python package 'onnx" in done.stderr and "pip install 'luminal-onnx[compile]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_artifacts_need_no_compile_extra(bench, tmp_path):
    for line in ("inspect mlp.luminal", "run mlp.luminal --device cpu", "env"):
        done = without_compile_extra(line, tmp_path)
        assert done.returncode == 0 and done.stderr == ""


def test_an_artifact_that_is_wrong(cli, bench, tmp_path):
    other = mlp_model()
    other.graph.initializer[2].raw_data = bytes(len(other.graph.initializer[2].raw_data))
    onnx.save(other, "zeros.onnx")
    for weight in (1.0, 2.0):
        other.graph.initializer[2].raw_data = np.full((32, 4), weight, np.float32).tobytes()
        onnx.save(other, f"w{weight:.0f}.onnx")
    assert cli("compile", "w1.onnx", "--arch", "sm_90", "--quiet").code == 0
    done = cli("verify", "w1.luminal", "w2.onnx")
    assert done.code == MISMATCH and "WRONG" in done.out and "'y' differs" in done.out
    assert "w1.luminal was compiled from another file than w2.onnx" in done.out
    found = cli("verify", "w1.luminal", "w2.onnx", "--json")
    assert found.code == MISMATCH and found.json["status"] == "mismatch" and not found.json["outputs"][0]["ok"]


def test_a_mismatch_leaves_no_file(bench, monkeypatch):
    from luminal_onnx import verification

    compare = verification._compare

    def off_by_one(plan, actual, expected):
        return compare(plan, [[array + 1 for array in run] for run in actual], expected)

    monkeypatch.setattr(verification, "_compare", off_by_one)
    bench("compile mlp.onnx -o wrong.luminal", MISMATCH, "'y' differs from onnxruntime", "no file was written")


def test_no_time_to_verify(cli, bench):
    done = cli("verify", "mlp.luminal", "mlp.onnx", "--verify-time", 0)
    assert done.code == MISMATCH and "unverified: ran out of time" in done.out
    done = cli("compile", "mlp.onnx", "-o", "late.luminal", "--verify-time", 0)
    assert done.code == 0 and "unverified: ran out of time" in done.out
    assert cli("inspect", "late.luminal", "--json").json["verification"]["status"] == "unverified"


def test_a_constant_output_is_told(cli, bench):
    zero = one_graph(
        [helper.make_node("Mul", ["x", "none"], ["zero"]), helper.make_node("Neg", ["x"], ["y"])],
        {"x": (2, 3)},
        {"zero": (2, 3), "y": (2, 3)},
        {"none": np.zeros((2, 3), np.float32)},
    )
    onnx.save(zero, "zero.onnx")
    done = cli("compile", "zero.onnx", "--arch", "sm_90")
    assert done.code == 0 and "unverified: output zero showed nothing" in done.out and "y " in done.out


def test_internal_errors_ask_for_a_report(bench, monkeypatch):
    def breaks(*arguments, **options):
        raise RuntimeError("the unforeseen")

    monkeypatch.setattr("luminal_onnx.pipeline.statistics", breaks)
    bench("compile mlp.onnx -o m --no-verify", INTERNAL, "RuntimeError: the unforeseen", "--verbose", "report")


def test_interruption(cli, bench, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("luminal_onnx.pipeline.statistics", interrupted)
    done = cli("compile", "mlp.onnx", "-o", "m", "--no-verify")
    assert done.code == 130 and done.err.strip() == "interrupted; nothing was written"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_stops_early_is_no_failure(mlp, form):
    script = "import sys; from luminal_onnx.cli import main; main(sys.argv[1:])"
    running = subprocess.Popen(
        [sys.executable, "-c", script, "inspect", str(mlp), *form], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running.stdout.close()
    assert running.stderr.read() == b"" and running.wait() == 0


def test_every_command_takes_json():
    for name, command in commands.commands.items():
        assert "as_json" in {option.name for option in command.params}, name
