"""Each step of a run in a process of its own: what crashes, hangs or leaks there cannot hurt the rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.failures import last_line

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Child:
    """What a process left: its result, as far as it came, and why it ended early (None if it did not)."""

    result: dict[str, Any]
    failure: str | None
    seconds: float
    output: str


def run_child(step: str, arguments: Mapping[str, Any], folder: Path, timeout: float, **environment: str) -> Child:
    """Run a step of `steps.py` and wait for it, at most `timeout` seconds; never raises for what happens there."""
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / f"{step}.json"
    log = folder / f"{step}.log"
    result.unlink(missing_ok=True)
    command = [sys.executable, str(ROOT / "benchmarks" / "steps.py"), step, json.dumps(arguments), str(result)]
    started = time.monotonic()
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            start_new_session=True,
        )
        failure = None
        try:
            code = process.wait(max(timeout, 0.0))
            if code != 0:
                failure = f"exit {code}"
        except subprocess.TimeoutExpired:
            failure = f"stopped after {timeout:.0f} s"
        finally:
            _end(process)
    output = log.read_text(errors="replace")
    if failure:
        failure = f"{step}: {failure}: {last_line(output)}"
    found = json.loads(result.read_text()) if result.is_file() else {}
    return Child(found, failure, round(time.monotonic() - started, 1), output)


def _end(process: subprocess.Popen) -> None:
    """End the process and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
