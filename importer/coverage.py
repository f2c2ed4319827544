"""The page `docs/operators.md`: every operator of ONNX, and which of its versions are imported.

python -m luminal_onnx.importer.coverage > docs/operators.md
"""

from __future__ import annotations

from collections import defaultdict

from onnx import defs

from . import registry

OLDEST_OPSET = 7
_HEAD = """# Operators

Which versions of ONNX's operators are imported: those that opset {oldest} and later mean. Written by
`python -m luminal_onnx.importer.coverage`. `luminal-onnx check model.onnx` says what of a model is not supported.

Everything is compiled for inference. Shapes must follow from dims: an operator whose result has a size that only data
decides is not supported. Loops and recurrent layers run any number of steps; a loop whose end data decides has room for the
rows of as many trips as its trip count says, or of 4096 if that is data too.

| operator | versions | limits |
|---|---|---|
"""
_LIMITS = {
    "If": "where data decides, the branches must give results of equal ranks and types",
    "Loop": "states keep their shapes, unless the number of trips is fixed and below 1025",
    "Scan": "states keep their shapes, unless the number of steps is fixed and below 1025",
    "NonZero": "of tensors that are known at import",
    "Compress": "a constant condition",
    "TopK": "compares every pair of a row",
    "DFT": "a fixed length",
    "STFT": "a fixed frame length",
    "Dropout": "inference only",
}


def markdown() -> str:
    """Return the page."""
    found: dict[tuple[str, str], list[registry.Operator]] = defaultdict(list)
    for operator in registry.registered():
        found[operator.domain, operator.name].append(operator)
    lines = []
    for name in sorted({schema.name for schema in defs.get_all_schemas() if schema.domain == ""}):
        versions = found.get(("", name))
        if versions:
            lines.append(_line(name, versions, _missing(name, versions)))
    rest = sorted(key for key in found if key[0] != "" or not defs.has(key[1]))
    lines += [_line(".".join(part for part in key if part), found[key], []) for key in rest]
    absent = sorted(name for name in _standard_names() if ("", name) not in found)
    return _HEAD.format(oldest=OLDEST_OPSET) + "\n".join(lines) + "\n\n" + _absent_text(absent)


def reachable(name: str) -> set[int]:
    """Return the schema versions of a standard operator that an opset from the oldest supported on means."""
    opsets = range(OLDEST_OPSET, defs.onnx_opset_version() + 1)
    return {defs.get_schema(name, opset, "").since_version for opset in opsets if defs.has(name, opset, "")}


def _missing(name: str, versions: list[registry.Operator]) -> list[int]:
    absent = reachable(name) - {version.since for version in versions}
    return sorted(since for since in absent if not defs.get_schema(name, since, "").deprecated)


def _standard_names() -> set[str]:
    return {schema.name for schema in defs.get_all_schemas() if schema.domain == "" and reachable(schema.name)}


def _line(name: str, versions: list[registry.Operator], missing: list[int]) -> str:
    limits = [_LIMITS[name]] if name in _LIMITS else []
    if missing:
        limits.append(f"not version {', '.join(map(str, missing))}")
    for attribute, values in versions[-1].only.items():
        limits.append(f"`{attribute}` {' or '.join(str(value) for value in values)}")
    return f"| {name} | {', '.join(str(version.since) for version in versions)} | {'; '.join(limits)} |"


def _absent_text(absent: list[str]) -> str:
    return f"Not imported: {', '.join(absent)}.\n"


if __name__ == "__main__":
    print(markdown(), end="")
