"""Compile, run on the CPU and compare every real model, and print a table:

    python tests/parity/sweep.py results.json [--only PART] [--timeout SECONDS] [--jobs N]

Each model has a process of its own, so that one which hangs or crashes costs only itself. `results.json` is updated after each.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from parity.fixtures import catalogue

COLUMNS = ("import", "search", "codegen", "host", "run")
# What a model may take of address space, so that one that grows without bound fails alone.
MEMORY = 16 << 30


def measure(model_id: str, record: dict[str, Any], save) -> None:
    """Fill `record` with what came of a model; `save` is called as it grows."""
    from luminal_onnx.runtime.session import InferenceSession
    from parity.cpu_road import Stages, compile_for_cpu
    from parity.real_bar import RealBar
    from parity.real_cases import compilations, source

    def tell(stage: str) -> None:
        record["stage"] = stage
        save()

    stages = Stages(tell)
    record["seconds"] = stages.seconds
    with stages.stage("fetch"):
        model = source(model_id)
        ways = compilations(model_id)
    with stages.stage("reference"):
        sets = [feeds for way in ways for feeds in way.sets]
        bar = RealBar(model_id, model, sets)
    actual = []
    with tempfile.TemporaryDirectory() as folder:
        for number, way in enumerate(ways):
            path = Path(folder) / f"{number}.luminal"
            artifact, record["notes"] = compile_for_cpu(path, model, stages, way.dims)
            record["kernels"] = len(list(artifact.plan("sm_90").steps()))
            with stages.stage("host"):
                session = InferenceSession(artifact, device="cpu")
            with session:
                for feeds in way.sets:
                    with stages.stage("run"):
                        actual.append(session.run(None, feeds))
    record["stage"] = "compare"
    record["share"] = max(bar.hold(actual).values(), default=0.0)
    record["stage"] = "done"


def child(model_id: str, path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    record: dict[str, Any] = {}

    def save() -> None:
        path.write_text(json.dumps(record))

    try:
        measure(model_id, record, save)
    except BaseException as error:
        lines = str(error).strip().splitlines() or [""]
        record["error"] = f"{type(error).__name__}: {lines[0]}"
        record["detail"] = str(error)
        raise
    finally:
        record["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        save()


def run_one(model_id: str, timeout: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        command = [sys.executable, __file__, "--child", model_id, str(path)]
        begin = time.perf_counter()
        error = None
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
            if done.returncode != 0:
                error = f"exit status {done.returncode}"
            log = done.stderr
        except subprocess.TimeoutExpired as expired:
            error = f"longer than {timeout:.0f} s"
            log = (expired.stderr or b"").decode()
        record = json.loads(path.read_text()) if path.exists() else {}
    if error is not None:
        record.setdefault("error", error)
        record["log"] = log[-6000:]
    return {"id": model_id, "wall": time.perf_counter() - begin, **record}


def row(record: dict[str, Any]) -> str:
    seconds = record.get("seconds", {})
    cells = [f"{record['id'].replace('onnxruntime', 'ort')[:48]:48}"]
    cells += [f"{seconds[name]:8.1f}" if name in seconds else " " * 8 for name in COLUMNS]
    cells.append(f"{record.get('kernels', ''):>7}")
    cells.append(f"{record['share']:9.1e}" if "share" in record else " " * 9)
    status = "ok" if "error" not in record else f"{record.get('stage', 'start')}: {record['error'][:150]}"
    return " ".join([*cells, status])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("results", type=Path)
    options.add_argument("--only", default="", help="parts of ids, separated by commas")
    options.add_argument("--timeout", type=float, default=600.0)
    options.add_argument("--jobs", type=int, default=1)
    chosen = options.parse_args()
    wanted = [i for i in catalogue() if any(part in i for part in chosen.only.split(","))]
    found = {r["id"]: r for r in json.loads(chosen.results.read_text())} if chosen.results.exists() else {}
    print(" ".join([f"{'model':48}", *(f"{name + ' s':>8}" for name in COLUMNS), "kernels", "    share", "status"]))
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for record in pool.map(lambda i: run_one(i, chosen.timeout), wanted):
            print(row(record), flush=True)
            found[record["id"]] = record
            chosen.results.write_text(json.dumps(list(found.values()), indent=1))
    good = [record for record in found.values() if "error" not in record]
    print(f"{len(good)} of {len(found)} good")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--child":
        child(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
