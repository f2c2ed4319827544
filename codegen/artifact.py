"""Write `model.luminal`, the one file that holds a compiled model. The format is told in `runtime/artifact_format.py`."""

from __future__ import annotations

import hashlib
import json
import platform
import zipfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from os import PathLike
from typing import Any, BinaryIO

import numpy as np

from ..plan.errors import LuminalError
from ..plan.records import LtStep, Plan, Port
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
    plans: Mapping[str, Plan],
    cubins: Mapping[str, Mapping[str, bytes]],
    ptx: Mapping[str, bytes | str],
    sources: Mapping[str, str],
    weights: Mapping[str, np.ndarray],
    extras: Mapping[str, bytes] | None = None,
) -> None:
    """Write an artifact under `path`, whole or not at all.

    `manifest_info` joins the manifest and may not name one of its own keys but "versions". `plans` and `cubins` go by
    arch; `cubins`, `ptx` and `sources` by the SHA-256 of the kernel's text; `extras` are further members. Equal arguments
    give equal bytes. Raises InvalidInput if the file cannot be written, LuminalError if the parts do not fit together.
    """
    _check_parts(plans, cubins, ptx, sources, weights)
    manifest = _manifest(manifest_info, plans)
    members: dict[str, bytes] = {}
    for arch, plan in plans.items():
        members[form.plan_member(arch)] = _json(plan.to_json())
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
    for arch, plan in plans.items():
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


def _manifest(info: Mapping[str, Any], plans: Mapping[str, Plan]) -> dict[str, Any]:
    first = next(iter(plans.values()))
    for arch, plan in plans.items():
        if (plan.inputs, plan.outputs, plan.ranges) != (first.inputs, first.outputs, first.ranges):
            raise LuminalError(f"the plans for {first.arch} and {arch} differ in inputs, outputs or dims")
    uses_library = any(isinstance(step, LtStep) for plan in plans.values() for step in plan.steps())
    manifest: dict[str, Any] = {
        "format": form.FORMAT,
        "version": form.version_for(plans.values()),
        "inputs": [_port(port) for port in first.inputs],
        "outputs": [_port(port) for port in first.outputs],
        "dims": {name: [r.min, r.opt, r.max] for name, r in first.ranges.items()},
        "arches": list(plans),
        "requires": {**MINIMUM, "libraries": ["cublasLt"] if uses_library else []},
        "versions": {**_versions(), **info.get("versions", {})},
    }
    for name, value in info.items():
        if name == "versions":
            continue
        if name in manifest or name == "sections":
            raise LuminalError(f"manifest entry {name!r} is the format's own and cannot be given")
        manifest[name] = value
    manifest.setdefault("model", {})
    manifest.setdefault("verification", {"status": "unverified", "reason": "not run"})
    return manifest


def _port(port: Port) -> dict[str, Any]:
    shape = [dim if isinstance(dim, int) else str(dim) for dim in port.shape]
    return {"name": port.name, "dtype": port.dtype.name, "type": f"tensor({port.dtype.onnx_name})", "shape": shape}


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
