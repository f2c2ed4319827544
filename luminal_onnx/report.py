"""What the command line prints: tables for people, plain dicts for `--json`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from luminal_onnx.plan.buckets import Bucket, bucket_of
from luminal_onnx.plan.control import placed_steps
from luminal_onnx.plan.records import KernelStep, Plan, Port
from luminal_onnx.plan.signature import InputPort, OutputPort
from luminal_onnx.runtime.binding import plan_memory_for

if TYPE_CHECKING:
    from luminal_onnx.feeding import Feeds
    from luminal_onnx.importer import Report
    from luminal_onnx.runtime.artifact import Artifact


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`, which does not call it a failure that `head` has read enough."""
        raise BrokenPipeError


# Where there is no terminal, lines are as long as they need to be: names and paths stay whole.
console = _Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else 1000)

PHASES = {
    "import": "reading the model",
    "search": "rewriting and choosing kernels",
    "codegen": "writing CUDA C++",
    "nvrtc": "compiling kernels",
    "write": "writing the artifact",
    "verify": "running the kernels on the CPU, comparing with onnxruntime",
    "report": "summing up",
}


def _show(table: Table) -> None:
    """Print a table; where nobody sees colours, without the blanks that fill its last column."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def _count(number: int, thing: str, ending: str = "s") -> str:
    return f"{number} {thing}{ending if number != 1 else ''}"


def _dims_text(dims: Mapping[str, Sequence[int]], defaults: Sequence[str] = ()) -> str:
    """Dims with their ranges; what one size only has as `batch 1`, a range that nobody stated as the default."""
    return ", ".join(
        f"{name} {low}" if low == high else f"{name} {low}..{high} (opt {opt}{', default' * (name in defaults)})"
        for name, (low, opt, high) in dims.items()
    )


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


def format_port(port: Port | InputPort | OutputPort) -> str:
    """Return a port as `x: float32[batch, 16]`; what differs between buckets is shown as `?` and `...`."""
    shape = ["..."] if port.shape is None else ["?" if dim is None else str(dim) for dim in port.shape]
    return f"{port.name}: {port.dtype}[{', '.join(shape)}]"


def peak_bytes(plan: Plan) -> dict[str, int]:
    """Return the arena bytes that a run needs with every dim at its `min`, `opt` and `max`."""
    ends = ("min", "opt", "max")
    at = {end: {name: getattr(bounds, end) for name, bounds in plan.ranges.items()} for end in ends}
    return {end: plan_memory_for(plan, sizes).peak_bytes for end, sizes in at.items()}


def weight_bytes(plans: Sequence[Plan]) -> int:
    """Return the bytes of all weights that the plans use."""
    weights = {buffer.name: buffer for plan in plans for buffer in plan.buffers if buffer.kind == "weight"}
    return sum(prod(buffer.shape) * buffer.dtype.size for buffer in weights.values())


def bucket_facts(artifact: Artifact) -> list[dict[str, Any]]:
    """Return for each bucket its sizes, the outputs' types there, its launches, and its peak bytes at each end."""
    plans = artifact.plans(artifact.arches[0])
    return [
        {
            "dims": _sizes(bucket),
            "outputs": [format_port(port) for port in plan.outputs],
            "launches": len(list(plan.steps())),
            "peak_bytes": peak_bytes(plan),
        }
        for bucket, plan in zip(artifact.buckets, plans)
    ]


def _sizes(bucket: Bucket) -> dict[str, list[int]]:
    return {name: [bounds.min, bounds.opt, bounds.max] for name, bounds in bucket.items()}


def _whole_peak(artifact: Artifact, buckets: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the peak bytes at each end of the whole range; the greatest of all buckets stands for its max."""
    found = {}
    for end in ("min", "opt", "max"):
        sizes = {name: getattr(bounds, end) for name, bounds in artifact.signature.ranges.items()}
        within = bucket_of(sizes, artifact.buckets)
        found[end] = buckets[within or 0]["peak_bytes"][end]
    return {**found, "max": max(bucket["peak_bytes"]["max"] for bucket in buckets)}


def summarize(artifact: Artifact, path: Path) -> dict[str, Any]:
    """Return what `compile` reports: the model, what it became, the check, the file."""
    signature, manifest = artifact.signature, artifact.manifest
    buckets = bucket_facts(artifact)
    return {
        "artifact": str(path),
        "bytes": path.stat().st_size,
        "arches": list(artifact.arches),
        "model": manifest["model"],
        "statistics": manifest["statistics"],
        "search": manifest["search"],
        "inputs": [format_port(port) for port in signature.inputs],
        "outputs": [format_port(port) for port in signature.outputs],
        "dims": _sizes(signature.ranges),
        "default_dims": [name for name in manifest["model"].get("unbounded", ()) if name in signature.ranges],
        "buckets": buckets,
        "weight_bytes": weight_bytes(artifact.plans(artifact.arches[0])),
        "peak_bytes": _whole_peak(artifact, buckets),
        "host_ops": manifest["statistics"]["host_ops"],
        "decisions": manifest["statistics"].get("decisions", []),
        "verification": manifest["verification"],
        "warnings": manifest["warnings"],
        "seconds": manifest["seconds"],
    }


def _facts() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def print_compiled(summary: dict[str, Any], source: str) -> None:
    """Print the report of a compile: imported, became, checked, where it is, what to try next."""
    model, statistics = summary["model"], summary["statistics"]
    table = _facts()
    table.add_row("model", f"{model['name']}, {_count(model['nodes'], 'ONNX node')}, opset {model['opset']}")
    for label in ("inputs", "outputs"):
        table.add_row(label, "\n".join(summary[label]))
    _add_dims(table, summary)
    templates = ", ".join(f"{count} {name}" for name, count in statistics["templates"].items())
    kernels = f"{_count(statistics['kernels'], 'kernel')} ({statistics['distinct_kernels']} distinct)"
    calls = _count(statistics["cublaslt_calls"], "cuBLASLt call")
    table.add_row("became", f"{kernels}, {calls}, {_count(statistics['host_ops'], 'host op')}")
    if statistics["decisions"]:
        table.add_row("read back", "\n".join(statistics["decisions"]))
    if templates:
        table.add_row("kernels", templates)
    table.add_row("memory", _memory_text(summary))
    seconds = dict(summary["seconds"])
    total = seconds.pop("total")
    table.add_row("time", f"{total:.1f} s: " + ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()))
    table.add_row(
        "file", f"{summary['artifact']} ({format_bytes(summary['bytes'])}; {', '.join(summary['arches'])}, PTX)"
    )
    console.print()
    _show(table)
    print_verification(summary["verification"])
    for split in model.get("splits", ()):
        console.print(f"note: {split}", style="italic")
    for warning in summary["warnings"]:
        console.print(Text(f"warning: {warning}", style="yellow"))
    originals = model["dims"]
    _print_next(summary["artifact"], source, [originals.get(name, name) for name in summary["default_dims"]])


def _add_dims(table: Table, summary: dict[str, Any]) -> None:
    """Add the range of each dim and, where it is cut, the buckets with what differs between them."""
    if summary["dims"]:
        table.add_row("dims", _dims_text(summary["dims"], summary["default_dims"]))
    buckets = summary["buckets"]
    for number, bucket in enumerate(buckets if len(buckets) > 1 else ()):
        facts = [
            _dims_text(bucket["dims"]),
            _count(bucket["launches"], "launch", "es"),
            _arena_text(bucket["peak_bytes"]),
        ]
        outputs = [port for port in bucket["outputs"] if port not in summary["outputs"]]
        table.add_row("buckets" if number == 0 else "", "; ".join(facts + outputs))


def _memory_text(summary: dict[str, Any]) -> str:
    return f"weights {format_bytes(summary['weight_bytes'])}, {_arena_text(summary['peak_bytes'])}"


def _arena_text(peak: Mapping[str, int]) -> str:
    """How large the arena is at each end of a range: its peak bytes."""
    if len(set(peak.values())) == 1:
        return f"arena {format_bytes(peak['opt'])}"
    return "arena " + ", ".join(f"{format_bytes(size)} at {end}" for end, size in peak.items())


def _print_next(artifact: str, source: str, unbounded: Sequence[str]) -> None:
    file = shlex.quote(artifact)
    steps = [
        (f"luminal-onnx run {file} --device cpu", "its kernels, on this CPU"),
        (f"luminal-onnx run {file}", "on an NVIDIA GPU"),
        (f"luminal-onnx inspect {file}", "every kernel, and the nodes it covers"),
    ]
    if unbounded:
        dims = " ".join(f"--dim {shlex.quote(f'{name}=1:8:32')}" for name in unbounded)
        steps.append((f"luminal-onnx compile {shlex.quote(source)} {dims}", "say which sizes to be fast at"))
    width = max(len(command) for command, _ in steps)
    console.print("\ntry next", style="bold")
    for command, why in steps:
        console.print(f"  {command:{width}}  # {why}")


def print_verification(result: dict[str, Any]) -> None:
    """Print the check against onnxruntime, one line an output, and why it shows less than it should."""
    if "outputs" in result:
        device = "CPU" if result.get("device", "cpu") == "cpu" else "GPU"
        console.print(f"\nits kernels on the {device} against onnxruntime, at {result.get('at', '?')}", style="italic")
        table = Table(box=None, pad_edge=False)
        for column in ("output", "dtype", "largest error", "allowed", "spread", ""):
            table.add_column(column, justify="left" if column in ("output", "dtype", "") else "right")
        for row in result["outputs"]:
            verdict = Text("ok", style="green") if row["ok"] else Text("WRONG", style="bold red")
            numbers = (f"{row['error']:.3g}", f"{row['tolerance']:.3g}", f"{row['spread']:.3g}")
            table.add_row(row["name"], row["dtype"], *numbers, verdict)
        _show(table)
    if result["status"] == "mismatch":
        console.print(Text(result["reason"], style="bold red"))
    elif result["status"] != "passed":
        console.print(Text(f"\nunverified: {result['reason']}", style="yellow"))


def print_origin(result: dict[str, Any], artifact: str, model: str) -> None:
    """Print a warning if the artifact was compiled from another file than the one it is compared with."""
    if not result["same_file"]:
        console.print(Text(f"warning: {artifact} was compiled from another file than {model}", style="yellow"))


def details(artifact: Artifact, path: Path) -> dict[str, Any]:
    """Return everything `inspect` shows of an artifact."""
    rows = []
    for bucket, plan in enumerate(artifact.plans(artifact.arches[0])):
        for position, (step, inside) in enumerate(placed_steps(plan.root)):
            is_kernel = isinstance(step, KernelStep)
            record = step.kernel if is_kernel else step.matmul
            rows.append(
                {
                    "bucket": bucket,
                    "step": position,
                    "kind": "kernel" if is_kernel else "cublaslt",
                    "name": record.name if is_kernel else f"{record.m}x{record.n}x{record.k} {record.type_a}",
                    "grid": [str(size) for size in record.grid] if is_kernel else [],
                    "block": list(record.block) if is_kernel else [],
                    "inside": list(inside),
                    "covers": list(step.origin),
                }
            )
    return {**summarize(artifact, path), "format_version": artifact.manifest["version"], "steps": rows}


def print_details(found: dict[str, Any]) -> None:
    """Print what `details` returned: the facts, then every step."""
    table = _facts()
    model = found["model"]
    table.add_row("artifact", f"{found['artifact']} ({format_bytes(found['bytes'])}, format {found['format_version']})")
    table.add_row("model", f"{model['name']}, {_count(model['nodes'], 'ONNX node')}, sha256 {model['sha256'][:16]}…")
    table.add_row("arches", ", ".join(found["arches"]) + ", PTX")
    for label in ("inputs", "outputs"):
        table.add_row(label, "\n".join(found[label]))
    _add_dims(table, found)
    table.add_row("memory", _memory_text(found))
    table.add_row("checked", _checked_text(found["verification"]))
    table.add_row("host ops", str(found["host_ops"]))
    if found["decisions"]:
        table.add_row("read back", "\n".join(found["decisions"]))
    _show(table)
    for number, bucket in enumerate(found["buckets"]):
        console.print()
        if len(found["buckets"]) > 1:
            console.print(_dims_text(bucket["dims"]), style="bold")
        _show(_steps_table([row for row in found["steps"] if row["bucket"] == number]))


def _steps_table(rows: Sequence[dict[str, Any]]) -> Table:
    steps = Table(box=None, pad_edge=False)
    nested = any(row["inside"] for row in rows)
    for column in ("#", *(["in"] if nested else []), "kernel", "grid", "block", "covers"):
        whole = column == "kernel" and console.width >= 100  # names are for copying
        steps.add_column(column, overflow="fold", no_wrap=whole, justify="right" if column == "#" else "left")
    for row in rows:
        covers = ", ".join(row["covers"][:4]) + (
            f" and {len(row['covers']) - 4} more" if len(row["covers"]) > 4 else ""
        )
        where = [", ".join(row["inside"])] if nested else []
        size = _grid_text(row["grid"]), "x".join(map(str, row["block"]))
        steps.add_row(str(row["step"]), *where, row["name"], *size, covers)
    return steps


def _checked_text(result: dict[str, Any]) -> str:
    if "outputs" not in result:
        return f"{result['status']}: {result['reason']}"
    errors = ", ".join(f"{row['name']} {row['error']:.3g}" for row in result["outputs"])
    reason = f" ({result['reason']})" if result["reason"] else ""
    return f"{result['status']}{reason} at {result['at']}; largest error: {errors}"


def _grid_text(grid: Sequence[str]) -> str:
    """A grid without its trailing ones, sums in parentheses: (batch + 3)//4, 2*batch x 8."""
    sizes = list(grid)
    while len(sizes) > 1 and sizes[-1] == "1":
        sizes.pop()
    return " x ".join(sizes)


def print_model(summary: dict[str, Any]) -> None:
    """Print what the importer says of a model."""
    table = _facts()
    for name, value in summary.items():
        if name == "dims":
            shown = ", ".join(
                ours if ours == original else f"{ours} ({original!r})" for ours, original in value.items()
            )
        elif name == "weight_bytes":
            name, shown = "weights", format_bytes(value)
        elif isinstance(value, dict):
            shown = ", ".join(f"{key} {count}" for key, count in value.items())
        elif isinstance(value, list):
            shown = "\n".join(map(str, value))
        else:
            shown = str(value)
        if shown:
            table.add_row(name, shown)
    _show(table)


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


def print_arrays(rows: Sequence[dict[str, Any]], feeds: Feeds, device: str, read_backs: int) -> None:
    """Print outputs, one line each, under a line that says where and on what they were computed, and how many scalars a
    run read back to decide what comes next."""
    sizes = ", ".join(f"{name}={size}" for name, size in feeds.sizes.items())
    made_up = f"made-up values for {', '.join(feeds.made_up)}" if feeds.made_up else "the given inputs"
    console.print(f"on {device}, {f'at {sizes}, ' if sizes else ''}{made_up}", style="italic")
    if read_backs:
        console.print(f"{_count(read_backs, 'scalar')} read back to decide what comes next", style="italic")
    table = Table(box=None, pad_edge=False)
    for column in ("output", "type", "min", "max", "mean", "first values"):
        table.add_column(column, justify="right" if column in ("min", "max", "mean") else "left")
    for row in rows:
        statistics = [f"{row[key]:.4g}" if key in row else "-" for key in ("min", "max", "mean")]
        first = " ".join(f"{value:.4g}" for value in row.get("first", ()))
        table.add_row(row["name"], f"{row['dtype']}{row['shape']}", *statistics, first)
    _show(table)


# What a part of the environment is for, in the order in which people ask.
PURPOSES = {
    "to run artifacts on a GPU": ("driver", "gpus", "cublaslt"),
    "to run their kernels on the CPU": ("c++", "cuda_headers", "cache"),
    "to compile": ("nvrtc",),
}
PACKAGES = {
    "run": "packages always needed",
    "compile": "packages to compile",
    "gpu": "packages for cuBLASLt",
    "test": "packages to test",
}


def print_environment(found: dict[str, Any]) -> None:
    """Print what was found and what is needed by purpose, then what to do about each thing that is missing."""
    console.print(
        f"luminal-onnx {found['luminal-onnx'] or '(not installed)'}, Python {found['python']['found']}, {found['platform']}"
    )
    groups = {title: {name: found[name] for name in names} for title, names in PURPOSES.items()}
    for name, entry in found["packages"].items():
        groups.setdefault(PACKAGES.get(entry["for"], entry["for"]), {})[name] = entry
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column()
    advice: dict[str, list[str]] = {}
    for title, entries in groups.items():
        table.add_row(Text(title, style="bold cyan"))
        for name, entry in entries.items():
            shown = Text("missing", style="red") if entry.get("problem") else Text(_found_text(entry["found"]))
            table.add_row(f"  {name}", shown, f"needs {entry['required']}" if entry["required"] else "")
            if entry.get("problem"):
                advice.setdefault(" ".join(entry["problem"].split()), []).append(name)
    console.print()
    _show(table)
    if advice:
        console.print("\nmissing", style="bold")
    for problem, names in advice.items():
        console.print(Text(f"  {', '.join(names)}: {problem}"))


def _found_text(found: Any) -> str:
    if isinstance(found, list):
        return "; ".join(f"{gpu['device']} {gpu['name']} ({gpu['arch']})" for gpu in found)
    return str(found)
