"""What the command line prints: tables for people, plain dicts for `--json`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from luminal_onnx.plan.records import KernelStep, Plan, Port
from luminal_onnx.runtime.binding import plan_memory_for

if TYPE_CHECKING:
    from luminal_onnx.importer import Report
    from luminal_onnx.runtime.artifact import Artifact

# Where there is no terminal to ask, tables are given room enough for kernel names.
console = Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)

PHASES = {
    "import": "reading the model",
    "search": "rewriting and choosing kernels",
    "codegen": "writing CUDA C++",
    "nvrtc": "compiling kernels",
    "write": "writing the artifact",
    "verify": "running the kernels on the CPU, comparing with onnxruntime",
    "save": "saving",
}


@contextmanager
def progress(enabled: bool) -> Iterator[Callable[[str], None]]:
    """Show the running phase on a terminal; print nothing where there is none."""
    if not (enabled and console.is_terminal):
        yield lambda phase: None
        return
    with console.status("starting") as status:
        yield lambda phase: status.update(PHASES.get(phase, phase))


def format_bytes(count: float) -> str:
    """Return a byte count with a binary unit, three significant digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def format_port(port: Port) -> str:
    return f"{port.name}: {port.dtype}[{', '.join(map(str, port.shape))}]"


def peak_bytes(plan: Plan, which: str) -> int:
    """Return the arena bytes that a run needs with every dim at its `opt` or `max`."""
    return plan_memory_for(plan, {name: getattr(bounds, which) for name, bounds in plan.ranges.items()}).peak_bytes


def weight_bytes(plan: Plan) -> int:
    """Return the bytes of all weights that the plan uses."""
    return sum(prod(buffer.shape) * buffer.dtype.size for buffer in plan.buffers if buffer.kind == "weight")


def summarize(artifact: Artifact, path: Path) -> dict[str, Any]:
    """Return what `compile` reports: the model, what it became, the check, the file."""
    plan = artifact.plan(artifact.arches[0])
    manifest = artifact.manifest
    return {
        "artifact": str(path),
        "bytes": path.stat().st_size,
        "arches": list(artifact.arches),
        "model": manifest["model"],
        "statistics": manifest["statistics"],
        "search": manifest["search"],
        "inputs": [format_port(port) for port in plan.inputs],
        "outputs": [format_port(port) for port in plan.outputs],
        "dims": {name: [bounds.min, bounds.opt, bounds.max] for name, bounds in plan.ranges.items()},
        "weight_bytes": weight_bytes(plan),
        "peak_bytes": {"opt": peak_bytes(plan, "opt"), "max": peak_bytes(plan, "max")},
        "host_ops": manifest["statistics"]["host_ops"],
        "verification": manifest["verification"],
        "warnings": manifest["warnings"],
        "seconds": manifest["seconds"],
    }


def _facts() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def print_compiled(summary: dict[str, Any]) -> None:
    """Print the report of a compile: imported, became, checked, where it is, what to try next."""
    model, statistics = summary["model"], summary["statistics"]
    table = _facts()
    table.add_row("model", f"{model['name']}, {model['nodes']} ONNX nodes, opset {model['opset']}")
    for label in ("inputs", "outputs"):
        table.add_row(label, "\n".join(summary[label]))
    if summary["dims"]:
        table.add_row("dims", ", ".join(f"{name} {low}..{high} (opt {opt})" for name, (low, opt, high) in summary["dims"].items()))
    templates = ", ".join(f"{count} {name}" for name, count in statistics["templates"].items())
    calls = statistics["cublaslt_calls"]
    became = f"{statistics['kernels']} kernels ({statistics['distinct_kernels']} distinct: {templates or 'none'})"
    table.add_row("became", f"{became}, {calls} cuBLASLt call{'s' * (calls != 1)}, {statistics['host_ops']} host ops")
    peak = summary["peak_bytes"]
    memory = f"weights {format_bytes(summary['weight_bytes'])}, arena {format_bytes(peak['opt'])}"
    table.add_row("memory", memory + (f" (up to {format_bytes(peak['max'])})" if peak["max"] != peak["opt"] else ""))
    seconds = summary["seconds"]
    table.add_row("time", ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items()))
    table.add_row("file", f"{summary['artifact']} ({format_bytes(summary['bytes'])}; {', '.join(summary['arches'])}, PTX)")
    console.print()
    console.print(table)
    print_verification(summary["verification"])
    for warning in summary["warnings"]:
        console.print(Text(f"warning: {warning}", style="yellow"))
    console.print("\ntry next", style="bold")
    console.print(f"  luminal-onnx run {summary['artifact']} --device cpu     # its kernels, on this CPU")
    console.print(f"  luminal-onnx run {summary['artifact']}                  # on an NVIDIA GPU")
    console.print(f"  luminal-onnx inspect {summary['artifact']}              # every kernel, and the nodes it covers")


def print_verification(result: dict[str, Any]) -> None:
    """Print the check against onnxruntime, one line an output."""
    if "outputs" not in result:
        console.print(Text(f"\nunverified: {result['reason']}", style="yellow"))
        return
    table = Table(title=f"against onnxruntime, at {result.get('at', '?')}", title_justify="left", box=None, pad_edge=False)
    for column in ("output", "dtype", "largest error", "allowed", "spread", ""):
        table.add_column(column, justify="left" if column in ("output", "dtype", "") else "right")
    for row in result["outputs"]:
        verdict = Text("ok", style="green") if row["ok"] else Text("WRONG", style="bold red")
        numbers = (f"{row['error']:.3g}", f"{row['tolerance']:.3g}", f"{row['spread']:.3g}")
        table.add_row(row["name"], row["dtype"], *numbers, verdict)
    console.print()
    console.print(table)
    if result["status"] == "mismatch":
        console.print(Text(result["reason"], style="bold red"))


def details(artifact: Artifact, path: Path) -> dict[str, Any]:
    """Return everything `inspect` shows of an artifact."""
    plan = artifact.plan(artifact.arches[0])
    rows = []
    for position, step in enumerate(plan.steps()):
        is_kernel = isinstance(step, KernelStep)
        record = step.kernel if is_kernel else step.matmul
        rows.append(
            {
                "step": position,
                "kind": "kernel" if is_kernel else "cublaslt",
                "name": record.name if is_kernel else f"{record.m}x{record.n}x{record.k} {record.type_a}",
                "grid": [str(size) for size in record.grid] if is_kernel else [],
                "block": list(record.block) if is_kernel else [],
                "covers": list(step.origin),
            }
        )
    return {**summarize(artifact, path), "format_version": artifact.manifest["version"], "steps": rows}


def print_details(found: dict[str, Any]) -> None:
    table = _facts()
    model = found["model"]
    table.add_row("artifact", f"{found['artifact']} ({format_bytes(found['bytes'])}, format {found['format_version']})")
    table.add_row("model", f"{model['name']}, sha256 {model['sha256'][:16]}…")
    table.add_row("arches", ", ".join(found["arches"]) + ", PTX")
    for label in ("inputs", "outputs"):
        table.add_row(label, "\n".join(found[label]))
    if found["dims"]:
        table.add_row("dims", ", ".join(f"{name} {low}..{high} (opt {opt})" for name, (low, opt, high) in found["dims"].items()))
    peak = found["peak_bytes"]
    table.add_row("memory", f"weights {format_bytes(found['weight_bytes'])}, arena {format_bytes(peak['opt'])} at opt, {format_bytes(peak['max'])} at max")
    table.add_row("checked", found["verification"]["status"])
    table.add_row("host ops", str(found["host_ops"]))
    console.print(table)
    steps = Table(box=None, pad_edge=False)
    for column in ("#", "kernel", "grid", "block", "covers"):
        steps.add_column(column)
    for row in found["steps"]:
        covers = ", ".join(row["covers"][:4]) + (f" and {len(row['covers']) - 4} more" if len(row["covers"]) > 4 else "")
        steps.add_row(str(row["step"]), row["name"], "x".join(row["grid"]), "x".join(map(str, row["block"])), covers)
    console.print()
    console.print(steps)


def print_model(summary: dict[str, Any]) -> None:
    table = _facts()
    for name, value in summary.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(name, shown)
    console.print(table)


def print_check(found: Report) -> None:
    """Print everything unsupported in a model, or that there is nothing."""
    console.print(Text(str(found), style="green" if found.ok else "red"))


def describe_arrays(names: Sequence[str], arrays: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    """Return name, dtype, shape and statistics of each array."""
    rows = []
    for name, array in zip(names, arrays):
        row: dict[str, Any] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
        if array.size:
            wide = array.astype(np.float64)
            row.update(min=float(wide.min()), max=float(wide.max()), mean=float(wide.mean()))
            row["first"] = wide.ravel()[:6].tolist()
        rows.append(row)
    return rows


def print_arrays(rows: Sequence[dict[str, Any]], device: str) -> None:
    table = Table(title=f"outputs (device {device})", title_justify="left", box=None, pad_edge=False)
    for column in ("output", "type", "min", "max", "mean", "first values"):
        table.add_column(column, justify="right" if column in ("min", "max", "mean") else "left")
    for row in rows:
        statistics = [f"{row[key]:.4g}" if key in row else "-" for key in ("min", "max", "mean")]
        first = " ".join(f"{value:.4g}" for value in row.get("first", ()))
        table.add_row(row["name"], f"{row['dtype']}{row['shape']}", *statistics, first)
    console.print(table)


def print_environment(found: dict[str, Any]) -> None:
    """Print what was found and what is needed, one line a thing, problems in red."""
    from luminal_onnx.runtime.environment import rows

    table = Table(box=None, pad_edge=False)
    for column in ("what", "found", "needed", ""):
        table.add_column(column, overflow="fold")
    for name, have, required, problem in rows(found):
        table.add_row(name, have, required, Text(problem or "", style="red"))
    console.print(table)
