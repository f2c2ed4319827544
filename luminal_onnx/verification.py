"""`verify`: run an artifact's own kernels on the CPU and compare every output with onnxruntime's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal_onnx.extras import needs_compile_extra
from luminal_onnx.feeding import check_names, make_feeds
from luminal_onnx.plan.buckets import Bucket
from luminal_onnx.plan.errors import InvalidInput
from luminal_onnx.plan.signature import Signature
from luminal_onnx.runtime.artifact import Artifact
from luminal_onnx.runtime.input_dims import bind_dims
from luminal_onnx.runtime.session import InferenceSession
from luminal_onnx.sampling import ValueRange, free_symbols, index_ranges, sample_feeds

if TYPE_CHECKING:
    import onnx

# The error that each dtype may show, as a share of (max - min) of the output over all input sets.
CLASSES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
# Below this share of its peak an output's spread proves nothing.
LEAST_SPREAD = 1e-3
INPUT_SETS = 4

Feed = dict[str, np.ndarray]
# What is said of the inputs, and as many feeds as are run.
_InputSet = tuple[str, list[Feed]]

# Sizes tried for every symbolic dim, smallest first, kept inside the compiled range.
_SIZES = (1, 2, 3, 5, 8, 16, 32, 64)


@dataclass(frozen=True)
class _Limit:
    """How long the check may take, and the moment at which that is over."""

    seconds: float
    deadline: float

    def is_over(self) -> bool:
        return time.monotonic() > self.deadline


class _Refused(Exception):
    """onnxruntime cannot load the model, so there is nothing to compare with."""


def verify(
    artifact: Artifact | str | PathLike[str],
    model: str | PathLike[str] | bytes | onnx.ModelProto,
    *,
    seconds: float = 60.0,
    seed: int = 0,
    value_ranges: Mapping[str, ValueRange] | None = None,
    feeds: list[Feed] | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Compare `artifact` run on `device` with onnxruntime on `model`; return what was found, never raise on a mismatch.

    `status` is "passed", "mismatch" or "unverified" (with a `reason`); `outputs` lists for each output its largest error,
    its spread and the tolerance; `same_file` says whether the artifact was compiled from this very model. Without
    `feeds`, four seeded input sets at the smallest shapes in each bucket that onnxruntime accepts and whose outputs vary.
    No run is begun after `seconds`; one that was begun is finished.

    Raises InvalidModel if `model` cannot be read, InvalidInput if its inputs or outputs are not those of the artifact,
    or if `value_ranges` names no input.
    """
    with needs_compile_extra("checking against onnxruntime"):
        import onnxruntime  # noqa: F401 - asked for early, so that nothing is run in vain

        from luminal_onnx.importer.protobuf import read
    source = read(model)
    opened = Artifact.open(artifact)
    same_file = opened.manifest["model"].get("sha256") == source.sha256
    try:
        reference = _reference_session(model)
    except _Refused as refused:
        return {"status": "unverified", "reason": str(refused), "same_file": same_file}
    with InferenceSession(opened, device=device) as session:
        signature = session.signature
        _check_signature(signature, reference, opened.where)
        check_names("value_ranges", value_ranges or {}, [port.name for port in signature.inputs])
        ranges = {**index_ranges(source.model), **(value_ranges or {})}
        limit = _Limit(seconds, time.monotonic() + seconds)
        if feeds:
            found = _compare_runs(session, reference, _given_sets(signature, feeds), limit, given=True)
        else:
            sets = [_made_up_sets(signature, bucket, ranges, seed) for bucket in opened.buckets]
            found = _joined([_compare_runs(session, reference, inputs, limit, given=False) for inputs in sets])
    return {**found, "device": device, "same_file": same_file}


def given_feeds(
    artifact: Artifact,
    model: str | PathLike[str],
    sizes: Mapping[str, int],
    files: Sequence[str],
    value_ranges: Mapping[str, ValueRange],
    seed: int,
) -> list[Feed]:
    """Return input sets for `verify` from files and sizes, as `make_feeds` reads them: one if files hold every input."""
    with needs_compile_extra("checking against onnxruntime"):
        from luminal_onnx.importer.protobuf import read
    signature = artifact.signature
    inputs = {port.name for port in signature.inputs}
    ranges = {name: limits for name, limits in index_ranges(read(model).model).items() if name in inputs}
    sets = []
    for number in range(INPUT_SETS):
        feeds = make_feeds(signature, sizes=sizes, files=files, ranges={**ranges, **value_ranges}, seed=seed + number)
        sets.append(feeds.arrays)
        if not feeds.made_up:
            break
    return sets


def _compare_runs(
    session: InferenceSession, reference: Any, inputs: Iterator[_InputSet], limit: _Limit, given: bool
) -> dict[str, Any]:
    """Compare at the first of `inputs` whose outputs vary, else at one where most do, which proves less."""
    out_of_time = f"ran out of time after {limit.seconds:g} s"
    why = "no shape in range was accepted by onnxruntime"
    best: tuple[list[str], str, list[Feed], list[list[np.ndarray]]] | None = None
    for label, feeds in inputs:
        if limit.is_over():
            why = out_of_time
            break
        try:
            expected = [reference.run(None, feed) for feed in feeds]
        except Exception as error:  # noqa: BLE001 - onnxruntime raises its own kinds for shapes that a model cannot take
            why = f"onnxruntime at {label}: {str(error).splitlines()[0][:200]}"
            continue
        constant = [] if given else _constant_outputs(session.signature, expected)
        if best is None or len(constant) < len(best[0]):
            best = (constant, label, feeds, expected)
        if not constant:
            break
    if best is None:
        return {"status": "unverified", "reason": why}
    constant, label, feeds, expected = best
    actual = []
    for feed in feeds:
        if limit.is_over():
            return {"status": "unverified", "reason": out_of_time, "at": label}
        actual.append(session.run(None, feed))
    found = {**_compare(session.signature, actual, expected), "at": label}
    if constant and found["status"] == "passed":
        reason = f"{_listed('output', constant)} showed nothing: the same values for all inputs that were tried"
        found.update(status="unverified", reason=reason)
    return found


def _check_signature(signature: Signature, reference: Any, where: str) -> None:
    """Raise InvalidInput if onnxruntime's model has not the artifact's inputs and outputs."""
    for what, ports, arguments in (
        ("input", signature.inputs, reference.get_inputs()),
        ("output", signature.outputs, reference.get_outputs()),
    ):
        have, wanted = [port.name for port in ports], [argument.name for argument in arguments]
        if sorted(have) != sorted(wanted):
            raise InvalidInput(
                f"{where} was compiled from another model: it has the {_listed(what, have)}, "
                f"the given model the {_listed(what, wanted)}"
            )


def _listed(what: str, names: list[str]) -> str:
    return f"{what}{'s' * (len(names) != 1)} {', '.join(names) or 'none'}"


def _given_sets(signature: Signature, feeds: list[Feed]) -> Iterator[_InputSet]:
    shapes = [feeds[0][port.name].shape for port in signature.inputs if port.name in feeds[0]]
    dims = bind_dims(signature, shapes) if len(shapes) == len(signature.inputs) else {}
    sizes = _sizes_text({name: dims[name] for name in free_symbols(signature.inputs) if name in dims})
    yield sizes or "the given inputs", feeds


def _joined(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one result for what was found in each bucket: of each output the largest error, of problems the first."""
    first = next((one for one in found if one["status"] == "mismatch"), None)
    first = first or next((one for one in found if one["status"] != "passed"), found[0])
    if len(found) == 1 or first["status"] == "mismatch":
        return first
    compared = [one["outputs"] for one in found if "outputs" in one]
    worst = [max(rows, key=lambda row: row["error"] / (row["tolerance"] or 1.0)) for rows in zip(*compared)]
    at = "; ".join(one["at"] for one in found if "outputs" in one)
    return {**first, **({"outputs": worst, "at": at} if compared else {})}


def _made_up_sets(
    signature: Signature, bucket: Bucket, ranges: Mapping[str, ValueRange], seed: int
) -> Iterator[_InputSet]:
    """Yield seeded input sets at ever larger sizes of a bucket, at last at each dim's opt."""
    bounds = {name: bucket[name] for name in free_symbols(signature.inputs)}
    choices = [{name: min(max(size, b.min), b.max) for name, b in bounds.items()} for size in _SIZES]
    choices.append({name: b.opt for name, b in bounds.items()})
    for dims in [dims for position, dims in enumerate(choices) if dims not in choices[:position]]:
        label = _sizes_text(dims) or "the model's fixed shapes"
        yield label, [sample_feeds(signature.inputs, dims, ranges, seed + index) for index in range(INPUT_SETS)]


def _sizes_text(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in dims.items())


def _constant_outputs(signature: Signature, runs: list[list[np.ndarray]]) -> list[str]:
    """Return the float outputs that hardly differ from one element or input set to another."""
    names = []
    for port, arrays in zip(signature.outputs, zip(*runs)):
        if port.dtype.is_float:
            spread, peak = _spread(arrays)
            if not spread > LEAST_SPREAD * peak:
                names.append(port.name)
    return names


def _spread(arrays: tuple[np.ndarray, ...]) -> tuple[float, float]:
    """Return (max - min, peak magnitude) over the finite elements of all arrays."""
    flat = np.concatenate([np.asarray(array).astype(np.float64).ravel() for array in arrays])
    flat = flat[np.isfinite(flat)]
    return (float(np.ptp(flat)), float(np.abs(flat).max())) if flat.size else (0.0, 0.0)


def _compare(signature: Signature, actual: list[list[np.ndarray]], expected: list[list[np.ndarray]]) -> dict[str, Any]:
    rows = []
    for position, port in enumerate(signature.outputs):
        got = tuple(run[position] for run in actual)
        want = tuple(np.asarray(run[position]) for run in expected)
        rows.append({"name": port.name, "dtype": port.dtype.name, **_compare_output(port.dtype.is_float, got, want)})
    bad = [row for row in rows if not row["ok"]]
    if bad:
        first = bad[0]
        reason = (
            f"output {first['name']!r} differs from onnxruntime: {first['found']}, allowed {first['tolerance']:.3g}"
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
    scale = spread if spread > LEAST_SPREAD * peak else peak
    tolerance = CLASSES[want[0].dtype.name] * scale
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


def _reference_session(model: str | PathLike[str] | bytes | onnx.ModelProto) -> Any:
    import onnx
    import onnxruntime

    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(
            source if isinstance(source, bytes) else fspath(source), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # it raises kinds of its own
        raise _Refused(f"onnxruntime cannot load the model to compare with: {str(error)[:300]}") from error
