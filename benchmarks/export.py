"""Write a row's module as ONNX, by torch's own exporter."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import onnx
import torch

from benchmarks.failures import one_line
from benchmarks.models import Bag, build
from benchmarks.rows import Row

OPSET = 18


def export(row: Row, path: Path) -> dict[str, Any]:
    """Write the row's module to `path`; return which exporter did it and in how many seconds.

    The exporter that traces a run is tried first, as it is quicker; then the one that is built on torch.export. One that
    writes a file which is no valid ONNX, such as a product of float16 and float32, has failed.
    """
    warnings.filterwarnings("ignore")
    torch.backends.mha.set_fastpath_enabled(False)  # its operator has no ONNX form; the long form is the same function
    Bag.exporting = True
    workload = build(row)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = workload.module.to(device)
    arguments = tuple(value.to(device) for value in workload.inputs.values())
    failures = []
    for name, dynamo in (("trace", False), ("dynamo", True)):
        started = time.perf_counter()
        try:
            with torch.no_grad():
                torch.onnx.export(
                    module,
                    arguments,
                    str(path),
                    dynamo=dynamo,
                    opset_version=OPSET,
                    input_names=list(workload.inputs),
                    **({"verbose": False} if dynamo else {"do_constant_folding": True}),
                )
            onnx.checker.check_model(str(path), full_check=True)
            return {"exporter": name, "seconds": round(time.perf_counter() - started, 2), "failures": failures}
        except Exception as error:  # whatever an exporter or the checker raises, the other may succeed
            failures.append(f"{name}: {one_line(error)}")
    raise RuntimeError("no exporter could write it: " + "; ".join(failures))
