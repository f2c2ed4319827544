"""The benchmark's own arithmetic, and that a child that fails costs only itself. Needs no torch and no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # last: the root's folder luminal_onnx is only a part of the package of that name

from benchmarks import children
from benchmarks.failures import LONGEST, last_line, one_line
from benchmarks.rows import ROWS, Row, select
from benchmarks.run import USUAL_RATES, parse
from benchmarks.tables import judged, table

ROW = Row("one", "One", "bert", (1,), "float32", floor_ms=0.5, bar_ms=1.4)
FREE = Row("two", "Two", "resnet50", (1,), "float16")


def found(**times: float) -> dict:
    return {"contenders": {name.replace("_", "-"): {"ms": ms, "error": 1e-6} for name, ms in times.items()}}


def test_rows_are_chosen_by_beginnings_in_their_own_order():
    assert select("all") == ROWS
    assert [row.name for row in select("dlrm,bert-1x128")] == ["bert-1x128-f32", "bert-1x128-f16", "dlrm-32x2048-f32"]
    with pytest.raises(ValueError, match="no row begins with 'gpt'"):
        select("gpt")


def test_the_bar_is_the_smaller_of_the_rows_own_and_a_share_of_the_best_peer():
    verdict = judged(ROW, found(ours=1.0, graph=3.0, inductor=1.2), USUAL_RATES)
    assert verdict["best_peer"] == "inductor" and verdict["bar_ms"] == pytest.approx(0.97 * 1.2)
    assert verdict["ahead"] is True and verdict["floor_share"] == pytest.approx(0.5)
    assert judged(ROW, found(ours=1.5, graph=3.0), USUAL_RATES)["bar_ms"] == 1.4
    assert judged(ROW, found(ours=1.5, graph=3.0), USUAL_RATES)["ahead"] is False
    assert judged(ROW, {"failures": []}, USUAL_RATES)["ahead"] is None


def test_who_is_wrong_is_neither_ahead_nor_best():
    results = found(ours=1.0, graph=3.0, inductor=0.1)
    results["contenders"]["inductor"]["failure"] = "WRONG OUTPUTS"
    assert judged(ROW, results, USUAL_RATES)["best_peer"] == "graph"
    results["contenders"]["ours"]["failure"] = "WRONG OUTPUTS"
    assert judged(ROW, results, USUAL_RATES)["ahead"] is False


def test_rows_without_a_floor_take_the_roofline():
    by_bytes = judged(FREE, {**found(ours=2.0), "bytes": 4_550_000_000, "flops": 1}, USUAL_RATES)
    assert by_bytes["floor_ms"] == pytest.approx(1.0) and by_bytes["floor_share"] == pytest.approx(0.5)
    by_flops = judged(FREE, {**found(ours=2.0), "bytes": 1, "flops": 767_000_000_000}, USUAL_RATES)
    assert by_flops["floor_ms"] == pytest.approx(1.0)


def test_the_table_shows_what_was_measured_and_what_failed():
    results = {"one": {**found(ours=1.0, graph=3.0), "failures": ["compile: exit 1: no"]}, "two": {}}
    results["one"]["contenders"]["inductor"] = {"failure": "RuntimeError: out of luck"}
    text = table((ROW, FREE), results, USUAL_RATES)
    lines = text.splitlines()
    assert lines[0].split()[:4] == ["row", "ours", "graph", "inductor"]
    assert lines[2].split()[:6] == ["one", "1.000", "3.000", "-", "1.400", "ahead"]
    assert lines[3].split()[:2] == ["two", "-"]
    assert "one: compile: exit 1: no" in lines and "one: inductor: RuntimeError: out of luck" in lines


def test_failures_are_one_line():
    assert one_line(ValueError("first\nsecond")) == "ValueError: first"
    assert one_line(ValueError()) == "ValueError: no message"
    assert last_line("a\n b \n\n") == "b" and last_line("\n") == "no output"
    assert len(last_line("x" * 1000)) == LONGEST


@pytest.fixture
def step(tmp_path, monkeypatch):
    """Have children run this program instead of the steps."""

    def install(program: str):
        (tmp_path / "benchmarks").mkdir()
        (tmp_path / "benchmarks" / "steps.py").write_text(program)
        monkeypatch.setattr(children, "ROOT", tmp_path)
        return tmp_path / "work"

    return install


def test_a_child_that_hangs_leaves_what_it_had(step):
    folder = step("import sys, time\nopen(sys.argv[3], 'w').write('{\"ms\": 3}')\nprint('half way')\ntime.sleep(60)\n")
    started = time.monotonic()
    child = children.run_child("measure", {}, folder, 2.0)
    assert time.monotonic() - started < 20
    assert child.result == {"ms": 3} and child.failure == "measure: stopped after 2 s: half way"


def test_a_child_that_fails_says_so_in_one_line(step):
    folder = step("import sys\nprint('noise')\nsys.exit('KernelFault: it broke')\n")
    child = children.run_child("measure", {"row": "one"}, folder, 20.0)
    assert child.failure == "measure: exit 1: KernelFault: it broke" and child.result == {}


def test_options_are_checked_before_anything_runs(capsys):
    options, rows, profiled, peers = parse(["--models", "dlrm", "--kernels", "vit", "--peers", "none"])
    assert [row.name for row in rows] == ["vit-8-f16", "dlrm-32x2048-f32"] and [row.name for row in profiled] == [
        "vit-8-f16"
    ]
    assert peers == [] and options.budget > 1e6
    _, rows, _, _ = parse(["--kernels", "vit", "--only-kernels"])
    assert [row.name for row in rows] == ["vit-8-f16"]
    for wrong in (["--models", "gpt"], ["--peers", "jax"]):
        with pytest.raises(SystemExit):
            parse(wrong)
    assert "no peer is called 'jax'" in capsys.readouterr().err


def test_a_run_without_torch_or_gpu_still_writes_its_results(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--models", "dlrm", "--quick", "--timeout", "20"]
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    blocker = tmp_path / "blocked" / "torch"
    blocker.mkdir(parents=True)
    (blocker / "__init__.py").write_text("raise ImportError('no torch here')\n")
    done = subprocess.run(
        [*command, *folders],
        env={"PATH": "", "PYTHONPATH": str(blocker.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert "export: exit 1: ImportError: no torch here" in results["rows"]["dlrm-32x2048-f32"]["failures"]
    assert "no torch here" in (tmp_path / "out" / "table.txt").read_text()
