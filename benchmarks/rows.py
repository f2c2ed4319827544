"""The rows of the benchmark: which model at which size and dtype, its floor and the bar that we hold ourselves to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table.

    `model` names a builder in `models.py`, `sizes` its arguments. `floor_ms` is what no program can beat on an H200, as
    worked out by hand from bytes, operations and launches; None takes the roofline that `measure.py` counts. `bar_ms` is
    the most that we allow ourselves; the bar of a run is the smaller of it and 0.97 times the best peer.
    """

    name: str
    title: str
    model: str
    sizes: tuple[int, ...]
    dtype: str
    floor_ms: float | None = None
    bar_ms: float | None = None


ROWS = (
    Row("bert-1x128-f32", "BERT-base 1x128 f32", "bert", (1, 128), "float32", 0.5, 1.4),
    Row("bert-1x128-f16", "BERT-base 1x128 f16", "bert", (1, 128), "float16", 0.1, 0.55),
    Row("bert-32x128-f16", "BERT-base 32x128 f16", "bert", (32, 128), "float16", 1.0, 2.0),
    Row("vit-8-f16", "ViT-B/16 batch 8 f16", "vit", (8,), "float16", 0.45, 0.95),
    Row(
        "llama-decode-f16",
        "Llama-3-8B dims, 4 layers, decode 1, 1024 cached, f16",
        "llama",
        (1, 1024),
        "float16",
        0.39,
        0.52,
    ),
    Row("dlrm-32x2048-f32", "DLRMv1, 32 tables, batch 2048, f32", "dlrm", (32, 2048), "float32", 0.06, 0.25),
    Row("resnet50-1-f32", "ResNet-50 batch 1 f32", "resnet50", (1,), "float32"),
    Row("resnet50-1-f16", "ResNet-50 batch 1 f16", "resnet50", (1,), "float16"),
    Row("resnet50-32-f16", "ResNet-50 batch 32 f16", "resnet50", (32,), "float16"),
)


def select(names: str) -> tuple[Row, ...]:
    """Return the rows that a comma-separated list asks for: "all", full names, or beginnings such as "bert".

    Raises ValueError, naming the rows there are.
    """
    if names == "all":
        return ROWS
    wanted = [name for name in names.split(",") if name]
    for name in wanted:
        if not any(row.name.startswith(name) for row in ROWS):
            raise ValueError(f"no row begins with {name!r}; rows: {', '.join(row.name for row in ROWS)}")
    return tuple(row for row in ROWS if any(row.name.startswith(name) for name in wanted))
