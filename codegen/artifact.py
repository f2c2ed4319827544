"""Write `model.luminal`, the one file that holds a compiled model. The format is told in `runtime/artifact_format.py`."""

from __future__ import annotations

import hashlib
import json
import platform
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from os import PathLike
from typing import Any, BinaryIO

import numpy as np

from ..plan.buckets import Bucket, cover_problem
from ..plan.errors import LuminalError
from ..plan.records import LtStep, Plan
from ..plan.signature import Signature, check_bucket_plan, signature_of
from ..runtime import artifact_format as form
from ..runtime.atomic_file import atomic_file
from ..runtime.tensor_file import header_bytes, tensor_bytes, write_order

MINIMUM = {"cuda": "13.0", "driver": "580"}
_RECORDED_PACKAGES = (
    "luminal-onnx",
    "numpy",
    "ml_dtypes",
    "onnx",
    "onnxruntime",
    "egglog",
    "scipy",
    "cuda-bindings",
    "nvidia-cuda-nvrtc",
)
_CHUNK = 1 << 22


def write_artifact(
    path: str | PathLike[str],
    *,
    manifest_info: Mapping[str, Any],
    plans: Mapping[str, Plan | Sequence[Plan]],
    cubins: Mapping[str, Mapping[str, bytes]],
    ptx: Mapping[str, bytes | str],
    sources: Mapping[str, str],
    weights: Mapping[str, np.ndarray],
    extras: Mapping[str, bytes] | None = None,
    signature: Signature | None = None,
    buckets: Sequence[Bucket] = (),
) -> None:
    """Write an artifact under `path`, whole or not at all.

    `manifest_info` joins the manifest and may not name one of its own keys but "versions". `plans` and `cubins` go by
    arch; `cubins`, `ptx` and `sources` by the SHA-256 of the kernel's text; `extras` are further members. Where the range
    is cut into `buckets`, every arch has a plan for each, and `signature` tells of the whole. Equal arguments give equal
    bytes. Raises InvalidInput if the file cannot be written, LuminalError if the parts do not fit together.
    """
    by_bucket = {arch: (given,) if isinstance(given, Plan) else tuple(given) for arch, given in plans.items()}
    _check_parts(by_bucket, cubins, ptx, sources, weights)
    manifest = _manifest(manifest_info, by_bucket, signature, buckets)
    members: dict[str, bytes] = {}
    for arch, of_arch in by_bucket.items():
        members.update({form.plan_member(arch, at): _json(plan.to_json()) for at, plan in enumerate(of_arch)})
    for arch, kernels in cubins.items():
        members.update({form.cubin_member(arch, source): bytes(image) for source, image in kernels.items()})
    members.update({form.ptx_member(source): _as_bytes(text) for source, text in ptx.items()})
    members.update({form.source_member(source): _as_bytes(text) for source, text in sources.items()})
    for name, data in (extras or {}).items():
        if name in members or name in (form.MANIFEST, form.WEIGHTS):
            raise LuminalError(f"extra {name!r} has the name of a part of the artifact")
        members[name] = _as_bytes(data)

    with atomic_file(path) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.comment = form.SEAL + b"0" * form.DIGITS
            sections = {form.WEIGHTS: _write_weights(archive, weights)}
            for name, data in sorted(members.items()):
                archive.writestr(_info(name), data)
                sections[name] = {"sha256": form.sha256(data), "bytes": len(data)}
            archive.writestr(_info(form.MANIFEST), _json({**manifest, "sections": sections}))
        _seal(file)


def _check_parts(plans, cubins, ptx, sources, weights) -> None:
    """Raise LuminalError unless every plan finds its weights, and its kernels as a cubin, PTX or source."""
    if not plans:
        raise LuminalError("an artifact needs a plan for at least one arch")
    for arch, plan in ((arch, plan) for arch, of_arch in plans.items() for plan in of_arch):
        if plan.arch != arch:
            raise LuminalError(f"the plan under arch {arch} is for {plan.arch}")
        plan.validate()
        for buffer in plan.buffers:
            if buffer.kind != "weight":
                continue
            if buffer.name not in weights:
                raise LuminalError(f"the plan for {arch} needs weight {buffer.name!r}, which is not among the weights")
            weight = weights[buffer.name]
            if tuple(weight.shape) != tuple(buffer.shape) or weight.dtype != buffer.dtype.numpy:
                raise LuminalError(
                    f"weight {buffer.name!r} is {weight.dtype}{list(weight.shape)}, the plan for {arch} expects "
                    f"{buffer.dtype}{list(buffer.shape)}"
                )
        for step in plan.steps():
            if isinstance(step, LtStep):
                continue
            source = step.kernel.source
            if source not in cubins.get(arch, {}) and source not in ptx and source not in sources:
                raise LuminalError(f"kernel {step.kernel.name} of the plan for {arch} has no code (source {source})")


def _manifest(
    info: Mapping[str, Any],
    plans: Mapping[str, Sequence[Plan]],
    signature: Signature | None,
    buckets: Sequence[Bucket],
) -> dict[str, Any]:
    all_plans = [plan for of_arch in plans.values() for plan in of_arch]
    uses_library = any(isinstance(step, LtStep) for plan in all_plans for step in plan.steps())
    told = signature or signature_of(next(iter(plans.values()))[0])
    buckets = buckets or [told.ranges]
    _check_buckets(plans, told, buckets)
    manifest: dict[str, Any] = {
        "format": form.FORMAT,
        "version": form.version_for(all_plans, buckets),
        **told.to_json(),
        "arches": list(plans),
        "requires": {**MINIMUM, "libraries": ["cublasLt"] if uses_library else []},
        "versions": {**_versions(), **info.get("versions", {})},
    }
    if len(buckets) > 1:
        manifest["buckets"] = [{name: [r.min, r.opt, r.max] for name, r in bucket.items()} for bucket in buckets]
    for name, value in info.items():
        if name == "versions":
            continue
        if name in manifest or name in ("sections", "buckets"):
            raise LuminalError(f"manifest entry {name!r} is the format's own and cannot be given")
        manifest[name] = value
    manifest.setdefault("model", {})
    manifest.setdefault("verification", {"status": "unverified", "reason": "not run"})
    return manifest


def _check_buckets(plans: Mapping[str, Sequence[Plan]], signature: Signature, buckets: Sequence[Bucket]) -> None:
    """Raise LuminalError unless the buckets are a partition of the range, and every arch has a fitting plan for each."""
    problem = cover_problem(signature.ranges, buckets)
    if problem is not None:
        raise LuminalError(f"the buckets are not the range: {problem}")
    first_arch, first = next(iter(plans.items()))
    for arch, of_arch in plans.items():
        if len(of_arch) != len(buckets):
            raise LuminalError(f"{len(of_arch)} plans for {arch}, but {len(buckets)} buckets")
        for plan, other, bucket in zip(of_arch, first, buckets):
            if (plan.inputs, plan.outputs, plan.ranges) != (other.inputs, other.outputs, other.ranges):
                raise LuminalError(f"the plans for {first_arch} and {arch} differ in inputs, outputs or dims")
            check_bucket_plan(plan, bucket)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _RECORDED_PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _write_weights(archive: zipfile.ZipFile, weights: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Write the weights, one tensor after another, and return their entry for the manifest.

    One other thread computes the digest in the same order, for it takes as long as the writing.
    """
    total = sum(tensor.nbytes for tensor in weights.values())
    digest = hashlib.sha256()
    written = 0
    with ThreadPoolExecutor(1) as pool, archive.open(_info(form.WEIGHTS), "w", force_zip64=total > 1 << 30) as member:
        header = header_bytes(weights, archive.fp.tell())
        for piece in _pieces(header, weights):
            hashed = pool.submit(digest.update, piece)
            member.write(piece)
            hashed.result()
            written += len(piece)
    return {"sha256": digest.hexdigest(), "bytes": written}


def _pieces(header: bytes, weights: Mapping[str, np.ndarray]) -> Iterable[bytes | memoryview]:
    yield header
    for name in write_order(weights):
        data = tensor_bytes(weights[name])
        for begin in range(0, len(data), _CHUNK):
            yield data[begin : begin + _CHUNK]


def _seal(file: BinaryIO) -> None:
    """Replace the digits at the end of the finished archive by the SHA-256 of all that stands before them."""
    file.seek(0, 2)
    left = file.tell() - form.DIGITS
    file.seek(0)
    digest = hashlib.sha256()
    while left:
        piece = file.read(min(left, _CHUNK))
        digest.update(piece)
        left -= len(piece)
    file.seek(-form.DIGITS, 2)
    file.write(digest.hexdigest().encode())


def _info(name: str) -> zipfile.ZipInfo:
    """A member whose header holds nothing of the time or machine of writing."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.external_attr = 0o644 << 16
    info.create_system = 3
    return info


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode()


def _as_bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)
