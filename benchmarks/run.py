"""One command for the benchmark: export and compile every row, then measure ours and the peers on one GPU.

    python benchmarks/run.py --out results

See docs/benchmarks.md for the method.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository root goes last: its folder luminal_onnx is only a part of the package of that name.
    HERE = Path(__file__).resolve().parent
    sys.path = [*(place for place in sys.path if Path(place).resolve() != HERE), str(HERE.parent)]

from benchmarks.children import Child, run_child
from benchmarks.rows import ROWS, Row, select
from benchmarks.tables import judged, picture, table

PEERS = ("eager", "graph", "graph-cl", "inductor", "inductor-cl", "max-autotune", "reduce-overhead")
DEFAULT_PEERS = "graph,graph-cl"
# What an H200 reaches, for runs that do not measure it.
USUAL_RATES = {
    "read_tbps": 4.55,
    "write_tbps": 4.68,
    "copy_tbps": 4.28,
    "float16_tflops": 767.0,
    "float32_tflops": 50.0,
}


class Run:
    """The state of one benchmark; what is known is written after every step, so that a run cut short leaves it."""

    def __init__(self, options: argparse.Namespace, rows: tuple[Row, ...]) -> None:
        self.options, self.rows = options, rows
        self.out, self.work = Path(options.out), Path(options.work or tempfile.mkdtemp(prefix="luminal-bench-"))
        self.out.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        self.rates = dict(USUAL_RATES)
        self.results: dict[str, dict[str, Any]] = {row.name: {"failures": []} for row in rows}
        self.about: dict[str, Any] = {"date": time.strftime("%Y-%m-%d %H:%M:%S"), "command": " ".join(sys.argv[1:])}
        self.log = (self.out / "log.txt").open("w", buffering=1)
        self.texts: list[str] = []

    def left(self) -> float:
        """Seconds that remain of the budget."""
        return self.options.budget - (time.monotonic() - self.started)

    def say(self, text: str) -> None:
        line = f"[{time.monotonic() - self.started:6.1f} s] {text}"
        print(line, flush=True)
        self.log.write(line + "\n")

    def step(self, step: str, row: Row | None, arguments: dict[str, Any], timeout: float, **environment: str) -> Child:
        """Run one step in a process; a failure is said, logged and kept with the row."""
        label = f"{step} {row.name}" if row else step
        named = {**arguments, "row": row.name} if row else arguments
        folder = self.work / (row.name if row else "machine")
        environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(self.work / "inductor"))
        child = run_child(step, named, folder, min(timeout, self.left()), **environment)
        if child.failure:
            self.say(f"{label} FAILED: {child.failure}")
            self.log.write(child.output[-6000:] + "\n")
            if row:
                self.results[row.name]["failures"].append(child.failure)
        else:
            self.say(f"{label} done in {child.seconds:.1f} s")
        return child

    def path(self, row: Row, suffix: str) -> Path:
        return self.work / f"{row.name}{suffix}"

    def save(self) -> None:
        """Write everything known: results.json and table.txt."""
        verdicts = {row.name: judged(row, self.results[row.name], self.rates) for row in self.rows}
        rows = {row.name: {"title": row.title, **verdicts[row.name], **self.results[row.name]} for row in self.rows}
        whole = {**self.about, "rates": self.rates, "seconds": round(time.monotonic() - self.started, 1), "rows": rows}
        for name, text in (("results.json", json.dumps(whole, indent=1)), ("table.txt", self.report())):
            draft = self.out / (name + ".new")
            draft.write_text(text + "\n")
            os.replace(draft, self.out / name)

    def report(self) -> str:
        about = ", ".join(f"{name} {value}" for name, value in self.about.get("machine", {}).items())
        rates = ", ".join(f"{name} {value:g}" for name, value in self.rates.items())
        return "\n".join(
            [*self.texts, f"{self.about['date']}  {about}", rates, table(self.rows, self.results, self.rates)]
        )


def prepare(run: Run, row: Row) -> None:
    """Export and compile one row; many rows may be at it at once."""
    options = run.options
    onnx, artifact = run.path(row, ".onnx"), run.path(row, ".luminal")
    few_threads = {"OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"}
    stamp = run.path(row, ".exported")
    if not (stamp.is_file() and onnx.is_file()):
        child = run.step("export", row, {"onnx": str(onnx)}, options.timeout, **few_threads)
        run.results[row.name]["export"] = child.result
        if child.failure:
            return
        stamp.touch()
    artifact.unlink(missing_ok=True)
    arguments = {"onnx": str(onnx), "artifact": str(artifact), "arch": options.arch}
    run.results[row.name]["compile"] = run.step("compile", row, arguments, options.timeout, **few_threads).result
    if options.keep:
        return
    for path in run.work.glob(f"{row.name}.onnx*"):
        path.unlink()
    stamp.unlink()


def measure(run: Run, row: Row, peers: list[str]) -> None:
    options = run.options
    artifact = run.path(row, ".luminal")
    arguments = {
        "artifact": str(artifact) if artifact.is_file() else None,
        "peers": peers,
        "rounds": 12 if options.quick else 40,
    }
    child = run.step("measure", row, arguments, options.timeout)
    run.results[row.name].update(child.result)


def kernels(run: Run, row: Row) -> None:
    artifact = run.path(row, ".luminal")
    if not artifact.is_file():
        return
    arguments = {"artifact": str(artifact), "rates": run.rates, "cold": run.options.cold}
    child = run.step("kernels", row, arguments, run.options.timeout)
    if "text" in child.result:
        run.texts.append(f"kernels of {row.title}\n{child.result.pop('text')}\n")
        run.results[row.name]["profile"] = child.result


def parse(arguments: list[str] | None) -> tuple[argparse.Namespace, tuple[Row, ...], tuple[Row, ...], list[str]]:
    parser = argparse.ArgumentParser(description="Measure compiled models and their peers on one GPU.")
    parser.add_argument("--models", default="all", help="rows, by comma: names or beginnings of them [all]")
    parser.add_argument(
        "--peers", default=DEFAULT_PEERS, help=f"by comma, of {', '.join(PEERS)}; all; none [{DEFAULT_PEERS}]"
    )
    parser.add_argument("--kernels", default="", metavar="ROWS", help="also profile these rows kernel by kernel")
    parser.add_argument("--cold", action="store_true", help="with --kernels: everything that is read comes from memory")
    parser.add_argument("--only-kernels", action="store_true", help="no table of models: only what --kernels names")
    parser.add_argument(
        "--quick", action="store_true", help="fewer samples; the usual rates of an H200 instead of measured ones"
    )
    parser.add_argument(
        "--out", default="benchmark-results", help="folder for results.json, table.txt, table.png, log.txt"
    )
    parser.add_argument("--work", help="folder for models and artifacts; kept and used again [a new temporary one]")
    parser.add_argument("--keep", action="store_true", help="keep the exported models in the work folder")
    parser.add_argument("--jobs", type=int, default=0, help="rows exported and compiled at once [half the processors]")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds that one step of one row may take")
    parser.add_argument(
        "--budget", type=float, default=1e9, help="seconds for everything; nothing is started after them"
    )
    parser.add_argument("--arch", default="sm_90", help="GPU target to compile for [sm_90]")
    parser.add_argument("--list", action="store_true", help="list the rows and stop")
    options = parser.parse_args(arguments)
    if options.list:
        for row in ROWS:
            print(f"{row.name:18} {row.title}")
        parser.exit()
    try:
        profiled = select(options.kernels) if options.kernels else ()
        rows = profiled if options.only_kernels else select(options.models)
    except ValueError as error:
        parser.error(str(error))
    peers = (
        list(PEERS)
        if options.peers == "all"
        else [name for name in options.peers.split(",") if name not in ("", "none")]
    )
    for name in peers:
        if name not in PEERS:
            parser.error(f"no peer is called {name!r}; peers: {', '.join(PEERS)}")
    every = {row.name: row for row in (*rows, *profiled)}
    return options, tuple(row for row in ROWS if row.name in every), profiled, peers


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 0 if every row was measured, 1 if something failed."""
    options, rows, profiled, peers = parse(arguments)
    run = Run(options, rows)
    jobs = options.jobs or max(1, (os.cpu_count() or 2) // 2)
    try:
        run.say(f"exporting and compiling {len(rows)} rows, {jobs} at once, in {run.work}")
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda row: prepare(run, row), rows))
        run.save()
        child = run.step("rates", None, {"measure": not options.quick}, options.timeout)
        run.about["machine"] = child.result.get("machine", {})
        run.rates.update(child.result.get("rates", {}))
        run.save()
        for row in profiled:
            kernels(run, row)
            run.save()
        for row in () if options.only_kernels else rows:
            if run.left() < 5:
                run.results[row.name]["failures"].append("not measured: the budget of seconds was spent")
                continue
            measure(run, row, peers)
            run.save()
    finally:
        run.save()
        missing = picture(rows, run.results, run.rates, run.out / "table.png")
        if missing:
            run.say(missing)
        print(run.report(), flush=True)
    return int(any(found["failures"] for found in run.results.values()))


if __name__ == "__main__":
    sys.exit(main())
