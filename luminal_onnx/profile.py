"""Where a run's time goes: each kernel's time against what its bytes and operations would take at the GPU's rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from luminal_onnx.plan.dims import evaluate
from luminal_onnx.plan.dtypes import bfloat16, float16, float64
from luminal_onnx.plan.lt import LtMatmul
from luminal_onnx.runtime.binding import BoundPlan
from luminal_onnx.runtime.launches import CopyLaunch, KernelLaunch, Launch
from luminal_onnx.runtime.step_times import StepTime, signature

LIBRARY = "cublaslt"
COPY = "copy"


@dataclass(frozen=True)
class Rates:
    """Bytes and operations a second of the GPU: memory, 16-bit floats on tensor cores, others without them."""

    bandwidth: float
    half_flops: float
    f32_flops: float
    f64_flops: float


def rates_of(arch: str) -> Rates:
    """Return the rates by which kernels for an architecture are chosen."""
    from luminal_onnx.ir.target import target

    known = target(arch)
    return Rates(known.bandwidth, known.half_flops, known.f32_flops, known.f64_flops)


def profile(bound: BoundPlan, times: Sequence[StepTime], rates: Rates, run_seconds: float) -> dict[str, Any]:
    """Return a table as plain data: `kernels`, the longest in all first, equal ones in one row; `families`; totals.

    `run_seconds` is the time of a whole run. The share of the roofline is the longer of bytes / bandwidth and
    operations / rate, over the time. Kernels whose inputs lie in the cache may exceed it.
    """
    groups: dict[Any, dict[str, Any]] = {}
    for position, step in enumerate(times):
        launch = step.launch
        key = signature(launch)
        if key not in groups:
            groups[key] = _described(launch, bound, step.seconds, rates)
        groups[key]["steps"].append(position)
        groups[key]["nodes"].append(list(launch.origin))
    kernels = list(groups.values())
    for row in kernels:
        row["count"] = len(row["steps"])
        row["total_us"] = row["us"] * row["count"]
    kernels.sort(key=lambda row: -row["total_us"])
    total = sum(row["total_us"] for row in kernels)
    families: dict[str, dict[str, float]] = {}
    for row in kernels:
        family = families.setdefault(row["family"], {"launches": 0, "us": 0.0, "roofline_us": 0.0})
        family["launches"] += row["count"]
        family["us"] += row["total_us"]
        family["roofline_us"] += row["roofline_us"] * row["count"]
    for row in (*kernels, *families.values()):
        row["share"] = (row["total_us"] if "total_us" in row else row["us"]) / total if total else 0.0
    return {
        "arch": bound.plan.arch,
        "run_us": run_seconds * 1e6,
        "sum_us": total,
        "launches": len(times),
        "roofline_us": sum(row["roofline_us"] * row["count"] for row in kernels),
        "rates": vars(rates),
        "families": dict(sorted(families.items(), key=lambda item: -item[1]["us"])),
        "kernels": kernels,
    }


def _described(launch: Launch, bound: BoundPlan, seconds: float, rates: Rates) -> dict[str, Any]:
    if isinstance(launch, KernelLaunch):
        record = launch.kernel
        dims = {**bound.dims, **launch.late}
        moved, flops = (int(evaluate(value, dims)) for value in (record.bytes_moved, record.flops))
        family = family_of(record.name)
        rate = rates.half_flops if family == "matmul_mma" else rates.f32_flops
        name, shape = (
            record.name,
            {"grid": list(launch.grid), "block": list(record.block), "shared": record.shared_bytes},
        )
    elif isinstance(launch, CopyLaunch):
        family, name, shape = COPY, f"{launch.bytes} bytes", {}
        moved, flops, rate = 2 * launch.bytes, 0, rates.f32_flops
    else:
        family, name, shape = LIBRARY, _library_name(launch.matmul), {}
        moved, flops = library_work(launch.matmul)
        type_ = launch.matmul.type_a
        half = type_ in (float16, bfloat16)
        rate = rates.half_flops if half else rates.f64_flops if type_ == float64 else rates.f32_flops
    roofline = max(moved / rates.bandwidth, flops / rate)
    return {
        "name": name,
        "family": family,
        **shape,
        "us": seconds * 1e6,
        "bytes": moved,
        "flops": flops,
        "gbps": moved / seconds / 1e9,
        "tflops": flops / seconds / 1e12,
        "roofline_us": roofline * 1e6,
        "roofline_share": roofline / seconds,
        "bound_by": "bytes" if moved / rates.bandwidth >= flops / rate else "operations",
        "steps": [],
        "nodes": [],
    }


def family_of(name: str) -> str:
    """Return the family of a generated kernel, with which its name begins."""
    from luminal_onnx.pipeline import TEMPLATES

    return next((family for family in TEMPLATES if name.startswith(family)), "other")


def library_work(matmul: LtMatmul) -> tuple[int, int]:
    """Return the bytes that a library call must move, matrices shared by a batch once, and its operations."""
    m, n, k, batch = matmul.m, matmul.n, matmul.k, matmul.batch
    copies_a, copies_b = (1 if stride == 0 else batch for stride in (matmul.stride_a, matmul.stride_b))
    read = matmul.type_a.size * k * (m * copies_a + n * copies_b)
    copies_c = 0 if not matmul.has_c else 1 if matmul.stride_c == 0 else batch
    results = m * n * (batch + copies_c) + (m if matmul.has_bias else 0)
    return read + matmul.type_d.size * results, 2 * m * n * k * batch


def _library_name(matmul: LtMatmul) -> str:
    batch = f" x{matmul.batch}" if matmul.batch != 1 else ""
    flags = "".join("T" if transposed else "N" for transposed in (matmul.transpose_a, matmul.transpose_b))
    extra = " +C" if matmul.has_c else ""
    extra += f" {matmul.epilogue}" if matmul.epilogue != "default" else ""
    return f"{matmul.m}x{matmul.n}x{matmul.k}{batch} {matmul.type_a}→{matmul.type_d} {flags}{extra}"


def format_profile(found: Mapping[str, Any], most: int = 40, name_width: int = 64) -> str:
    """Return the profile as text: the `most` longest kernels, then the families, then how the parts add up."""
    lines = [f"{'us':>8} {'n':>4} {'total':>8} {'share':>6} {'GB/s':>6} {'TF/s':>6} {'roof':>5}  kernel · ONNX nodes"]
    for row in found["kernels"][:most]:
        lines.append(_line(row["us"], row["count"], row["total_us"], row) + f"  {_what(row, name_width)}")
    rest = found["kernels"][most:]
    if rest:
        lines.append(f"{'':>13} {sum(row['total_us'] for row in rest):8.1f}  …and {len(rest)} kinds of kernel more")
    lines.append("")
    for family, row in found["families"].items():
        share = row["roofline_us"] / row["us"] if row["us"] else 0.0
        lines.append(
            f"{'':>8} {row['launches']:4d} {row['us']:8.1f} {row['share']:6.1%} {'':>13} {share:5.0%}  {family}"
        )
    lines.append(
        f"steps in all {found['sum_us']:.1f} us ({found['launches']} launches), a whole run {found['run_us']:.1f} us, "
        f"sum of the steps' rooflines {found['roofline_us']:.1f} us"
    )
    return "\n".join(lines)


def _line(us: float, count: int, total: float, row: Mapping[str, Any]) -> str:
    return (
        f"{us:8.2f} {count:4d} {total:8.1f} {row['share']:6.1%} {row['gbps']:6.0f} {row['tflops']:6.1f} "
        f"{row['roofline_share']:5.0%}"
    )


def _what(row: Mapping[str, Any], width: int) -> str:
    name = row["name"] if row["family"] not in (LIBRARY, COPY) else f"{row['family']} {row['name']}"
    name = name if len(name) <= width else name[: width - 1] + "…"
    nodes = row["nodes"][0] if row["nodes"] else []
    first = nodes[0].strip("/") if nodes else "-"
    return f"{name} · {first}" + (f" +{len(nodes) - 1}" if len(nodes) > 1 else "")
