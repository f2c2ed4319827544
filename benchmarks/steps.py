"""The steps of a benchmark, each a process: `steps.py STEP ARGUMENTS RESULT`, arguments and result as JSON."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository root goes last: its folder luminal_onnx is only a part of the package of that name.
    HERE = Path(__file__).resolve().parent
    sys.path = [*(place for place in sys.path if Path(place).resolve() != HERE), str(HERE.parent)]

from benchmarks.failures import one_line
from benchmarks.rows import Row, select


def export_step(arguments: dict[str, Any], save) -> None:
    from benchmarks.export import export

    save(export(_row(arguments), Path(arguments["onnx"])))


def compile_step(arguments: dict[str, Any], save) -> None:
    from benchmarks.ours import compile_model

    save(compile_model(Path(arguments["onnx"]), Path(arguments["artifact"]), arguments["arch"]))


def measure_step(arguments: dict[str, Any], save) -> None:
    from benchmarks.measure import measure

    artifact = Path(arguments["artifact"]) if arguments["artifact"] else None
    measure(_row(arguments), artifact, arguments["peers"], arguments["rounds"], save)


def rates_step(arguments: dict[str, Any], save) -> None:
    from benchmarks.rates import machine, measure_rates

    found = {"machine": machine()}
    save(found)
    if arguments["measure"]:
        save({**found, "rates": measure_rates()})


def kernels_step(arguments: dict[str, Any], save) -> None:
    from benchmarks.kernels import profile

    profile(_row(arguments), Path(arguments["artifact"]), arguments["rates"], arguments["cold"], save)


STEPS = {
    "export": export_step,
    "compile": compile_step,
    "measure": measure_step,
    "rates": rates_step,
    "kernels": kernels_step,
}


def _row(arguments: dict[str, Any]) -> Row:
    (row,) = (row for row in select("all") if row.name == arguments["row"])
    return row


def main(step: str, arguments: str, result: str) -> None:
    """Run a step; its result is written whole each time that it knows more. The last line printed says what failed."""

    def save(found: dict[str, Any]) -> None:
        draft = Path(result + ".new")
        draft.write_text(json.dumps(found))
        os.replace(draft, result)

    try:
        STEPS[step](json.loads(arguments), save)
    except Exception as error:
        traceback.print_exc()
        print(one_line(error), file=sys.stderr, flush=True)
        os._exit(1)  # a broken GPU context could hang an orderly exit
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
