"""`verify`: run an artifact's own kernels on the CPU and compare every output with onnxruntime's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal_onnx.plan.errors import InvalidInput, MissingDependency
from luminal_onnx.plan.records import Plan
from luminal_onnx.runtime.session import InferenceSession
from luminal_onnx.sampling import ValueRange, free_symbols, index_ranges, sample_feeds

if TYPE_CHECKING:
    import onnx

    from luminal_onnx.runtime.artifact import Artifact

# The error that each dtype may show, as a share of (max - min) of the output over all input sets.
CLASSES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
# Below this share of its peak an output's spread proves nothing.
LEAST_SPREAD = 1e-3
INPUT_SETS = 4
# Sizes tried for every symbolic dim, smallest first, kept inside the compiled range.
_SIZES = (1, 2, 3, 5, 8, 16, 32, 64)


def verify(
    artifact: Artifact | str | PathLike[str],
    model: str | PathLike[str] | bytes | onnx.ModelProto,
    *,
    seconds: float = 60.0,
    seed: int = 0,
    value_ranges: Mapping[str, ValueRange] | None = None,
    feeds: list[dict[str, np.ndarray]] | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Compare `artifact` run on `device` with onnxruntime on `model`; return what was found, never raise on a mismatch.

    `status` is "passed", "mismatch" or "unverified" (with a `reason`); `outputs` lists for each output its largest error,
    its spread and the tolerance. Without `feeds`, four seeded input sets at the smallest shapes in range that onnxruntime
    accepts and whose outputs vary.
    """
    deadline = time.monotonic() + seconds
    try:
        reference = _reference_session(model)
    except InvalidInput as refused:
        return {"status": "unverified", "reason": str(refused)}
    ranges = {**index_ranges(_graph_of(model)), **(value_ranges or {})}
    with InferenceSession(artifact, device=device) as session:
        plan = session.plan
        why = "no shape in range was accepted by onnxruntime"
        for label, candidate in _input_sets(plan, ranges, seed, feeds):
            try:
                expected = [reference.run(None, item) for item in candidate]
            except Exception as error:  # onnxruntime raises its own kinds for shapes that a model cannot take
                why = f"onnxruntime at {label}: {str(error).splitlines()[0][:200]}"
                continue
            constant = _constant_outputs(plan, expected)
            if constant and feeds is None:
                why = f"outputs {', '.join(constant)} do not vary at {label}"
                continue
            actual = []
            for item in candidate:
                if time.monotonic() > deadline:
                    return {"status": "unverified", "reason": f"ran out of time after {seconds:g} s", "at": label}
                actual.append(session.run(None, item))
            return {**_compare(plan, actual, expected), "at": label, "device": device}
    return {"status": "unverified", "reason": why}


def _input_sets(
    plan: Plan, ranges: Mapping[str, ValueRange], seed: int, feeds: list[dict[str, np.ndarray]] | None
) -> Iterator[tuple[str, list[dict[str, np.ndarray]]]]:
    if feeds is not None:
        yield "the given inputs", feeds
        return
    names = free_symbols(plan.inputs)
    tried = set()
    for size in _SIZES if names else (1,):
        dims = {}
        for name in names:
            bounds = plan.ranges[name]
            dims[name] = min(max(size, bounds.min), bounds.max)
        key = tuple(dims.values())
        if key in tried:
            continue
        tried.add(key)
        label = ", ".join(f"{name}={value}" for name, value in dims.items()) or "the model's fixed shapes"
        yield label, [sample_feeds(plan.inputs, dims, ranges, seed + index) for index in range(INPUT_SETS)]


def _constant_outputs(plan: Plan, runs: list[list[np.ndarray]]) -> list[str]:
    names = []
    for port, arrays in zip(plan.outputs, zip(*runs)):
        if port.dtype.is_float and not _spread(arrays)[0] > LEAST_SPREAD * _spread(arrays)[1]:
            names.append(port.name)
    return names


def _spread(arrays: tuple[np.ndarray, ...]) -> tuple[float, float]:
    """Return (max - min, peak magnitude) over the finite elements of all arrays."""
    flat = np.concatenate([np.asarray(array).astype(np.float64).ravel() for array in arrays])
    flat = flat[np.isfinite(flat)]
    return (float(np.ptp(flat)), float(np.abs(flat).max())) if flat.size else (0.0, 0.0)


def _compare(plan: Plan, actual: list[list[np.ndarray]], expected: list[list[np.ndarray]]) -> dict[str, Any]:
    rows = []
    for position, port in enumerate(plan.outputs):
        got = tuple(run[position] for run in actual)
        want = tuple(np.asarray(run[position]) for run in expected)
        rows.append({"name": port.name, "dtype": port.dtype.name, **_compare_output(port.dtype.is_float, got, want)})
    bad = [row for row in rows if not row["ok"]]
    if bad:
        first = bad[0]
        reason = (
            f"output {first['name']!r} differs from onnxruntime: {first['found']}, allowed {first['tolerance']:.3g}; "
            "no file was written. This is a bug: please report the model"
        )
        return {"status": "mismatch", "reason": reason, "outputs": rows}
    return {"status": "passed", "reason": "", "outputs": rows}


def _compare_output(is_float: bool, got: tuple[np.ndarray, ...], want: tuple[np.ndarray, ...]) -> dict[str, Any]:
    for have, need in zip(got, want):
        if have.shape != need.shape or have.dtype != need.dtype:
            found = f"{have.dtype}{list(have.shape)} instead of {need.dtype}{list(need.shape)}"
            return {"ok": False, "error": float("inf"), "spread": 0.0, "tolerance": 0.0, "found": found}
    if not is_float:
        wrong = sum(int((have != need).sum()) for have, need in zip(got, want))
        return {"ok": wrong == 0, "error": wrong, "spread": 0.0, "tolerance": 0.0, "found": f"{wrong} elements differ"}
    spread, peak = _spread(want)
    tolerance = CLASSES[want[0].dtype.name] * spread
    error = 0.0
    for have, need in zip(got, want):
        have, need = have.astype(np.float64), need.astype(np.float64)
        same = (have == need) | (np.isnan(have) & np.isnan(need))
        with np.errstate(invalid="ignore"):
            distance = np.where(same, 0.0, np.abs(have - need))
        distance = np.where(np.isnan(distance), np.inf, distance)
        error = max(error, float(distance.max(initial=0.0)))
    return {
        "ok": error <= tolerance,
        "error": error,
        "spread": spread,
        "peak": peak,
        "tolerance": tolerance,
        "found": f"largest error {error:.3g} where outputs spread over {spread:.3g}",
    }


def _graph_of(model: str | PathLike[str] | bytes | onnx.ModelProto) -> onnx.ModelProto:
    import onnx

    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, bytes):
        return onnx.load_model_from_string(model)
    return onnx.load(fspath(model), load_external_data=False)


def _reference_session(model: str | PathLike[str] | bytes | onnx.ModelProto) -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as missing:
        raise MissingDependency(
            "checking against onnxruntime needs it: pip install 'luminal-onnx[compile]', or compile with --no-verify"
        ) from missing
    import onnx

    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(
            source if isinstance(source, bytes) else fspath(source), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the reference itself cannot load it: nothing to compare with
        raise InvalidInput(f"onnxruntime cannot load the model to compare with: {str(error)[:300]}") from error
