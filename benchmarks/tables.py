"""The results as a table, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import Row

OURS = "ours"


def judged(row: Row, found: Mapping[str, Any], rates: Mapping[str, float]) -> dict[str, Any]:
    """Return what the table says of one row: our time, the best peer's, the bar, the floor and how near we are."""
    contenders: Mapping[str, Any] = found.get("contenders", {})
    times = {name: entry["ms"] for name, entry in contenders.items() if "ms" in entry}
    wrong = {name for name, entry in contenders.items() if "failure" in entry}
    peers = {name: ms for name, ms in times.items() if name != OURS and name not in wrong}
    best = min(peers, key=peers.__getitem__, default=None)
    roofline = roofline_ms(row, found, rates)
    floor = row.floor_ms if row.floor_ms is not None else roofline
    limits = [row.bar_ms] if row.bar_ms is not None else []
    if best is not None:
        limits.append(0.97 * peers[best])
    bar = min(limits, default=None)
    ours = times.get(OURS)
    return {
        "ours_ms": ours,
        "best_peer": best,
        "best_peer_ms": peers.get(best) if best else None,
        "bar_ms": bar,
        "ahead": None if ours is None or bar is None else ours <= bar and OURS not in wrong,
        "roofline_ms": roofline,
        "floor_ms": floor,
        "floor_share": floor / ours if floor and ours else None,
        "error": contenders.get(OURS, {}).get("error"),
    }


def roofline_ms(row: Row, found: Mapping[str, Any], rates: Mapping[str, float]) -> float | None:
    """Return the longer of what the bytes and the operations of a row take at the measured rates."""
    if "flops" not in found:
        return None
    return max(found["bytes"] / rates["read_tbps"], found["flops"] / rates[f"{row.dtype}_tflops"]) / 1e9


def table(rows: Sequence[Row], results: Mapping[str, Any], rates: Mapping[str, float]) -> str:
    """Return the table as text, and below it one line for everything that went wrong."""
    peers = list(
        dict.fromkeys(name for row in rows for name in results.get(row.name, {}).get("contenders", {}) if name != OURS)
    )
    head = ["row", OURS, *peers, "bar", "", "floor", "of floor", "error", "compile s"]
    body, remarks = [], []
    for row in rows:
        found = results.get(row.name, {})
        verdict = judged(row, found, rates)
        contenders = found.get("contenders", {})
        share = verdict["floor_share"]
        ahead = {None: "", True: "ahead", False: "BEHIND"}[verdict["ahead"]]
        seconds = found.get("compile", {}).get("seconds")
        body.append(
            [
                row.name,
                *(_number(contenders.get(name, {}).get("ms")) for name in (OURS, *peers)),
                _number(verdict["bar_ms"]),
                ahead,
                _number(verdict["floor_ms"]),
                "-" if share is None else f"{share:.0%}",
                "-" if verdict["error"] is None else f"{verdict['error']:.1e}",
                "-" if seconds is None else f"{seconds:.1f}",
            ]
        )
        failures = [*found.get("failures", ())]
        failures += [f"operations could not be counted: {found['uncounted']}"] if "uncounted" in found else []
        failures += [f"{name}: {entry['failure']}" for name, entry in contenders.items() if "failure" in entry]
        remarks += [f"{row.name}: {failure}" for failure in failures]
    widths = [max(len(line[at]) for line in (head, *body)) for at in range(len(head))]
    lines = ["  ".join(cell.ljust(w) if at == 0 else cell.rjust(w) for at, (cell, w) in enumerate(zip(line, widths)))
             for line in (head, *body)]  # fmt: skip
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], *remarks])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def picture(rows: Sequence[Row], results: Mapping[str, Any], rates: Mapping[str, float], path: Path) -> str | None:
    """Draw times over the floor, a group of bars a row; return why there is no picture, or None."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return "no picture: matplotlib is not installed"
    shown = [row for row in rows if judged(row, results.get(row.name, {}), rates)["floor_ms"]]
    shown = [row for row in shown if any("ms" in e for e in results[row.name].get("contenders", {}).values())]
    if not shown:
        return "no picture: nothing was timed"
    names = list(dict.fromkeys(name for row in shown for name in results[row.name]["contenders"]))
    figure, axes = pyplot.subplots(figsize=(11, 0.9 + 0.22 * len(shown) * (len(names) + 1)))
    height = 0.85 / len(names)
    for number, name in enumerate(names):
        places, widths = [], []
        for at, row in enumerate(shown):
            ms = results[row.name]["contenders"].get(name, {}).get("ms")
            if ms is not None:
                places.append(at + number * height)
                widths.append(ms / judged(row, results[row.name], rates)["floor_ms"])
        axes.barh(places, widths, height, label=name)
    axes.set_yticks([at + 0.4 for at in range(len(shown))], [row.title for row in shown])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("time over the floor (1 is as fast as the hardware allows)")
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return None
