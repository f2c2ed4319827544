"""Read `model.luminal`. Every byte is checked when the file is opened; what it holds is decoded when asked for."""

from __future__ import annotations

import json
import mmap
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from ..plan.buckets import Bucket, cover_problem
from ..plan.dims import Range
from ..plan.errors import InvalidArtifact, InvalidInput, LuminalError
from ..plan.records import Plan
from ..plan.signature import Signature, check_bucket_plan
from . import artifact_format as form
from .atomic_file import atomic_file
from .tensor_file import Weights

_LOCAL_HEADER = 30
_REMEDY = "copy or compile it again"


class Artifact:
    """A compiled model. Open one with `Artifact.open`; it may be used from several threads.

    `signature` tells of the whole range, `buckets` are the boxes that it is cut into: most models have one.
    """

    def __init__(self, data: bytes | mmap.mmap, where: str, sealed: bool = False) -> None:
        self._where = where
        self._owner = data
        self._data = memoryview(data)
        self._kept: list[Any] = []
        self._plans: dict[tuple[str, int], Plan] = {}
        self._weights: Weights | None = None
        if not sealed:
            _check_seal(self._data, where)
        self._members = _members(self._data, where)
        self.manifest: dict[str, Any] = _manifest(self._data, self._members, where)
        expected, found = set(self.manifest["sections"]), set(self._members) - {form.MANIFEST}
        if expected != found:
            raise InvalidArtifact(f"{where}: sections differ from its manifest: {sorted(expected ^ found)}; {_REMEDY}")
        self.signature, self.buckets = _signature_and_buckets(self.manifest, where)

    @classmethod
    def open(cls, source: str | os.PathLike[str] | bytes | BinaryIO | Artifact, *, sealed: bool = False) -> Artifact:
        """Open an artifact from a path (mapped into memory), its bytes, or a binary file object.

        `sealed` says that the caller has just written the file at this path, so that its digest need not be computed again.

        Raises InvalidArtifact if it is not one, was cut or altered, or was written by a newer format version.
        """
        if isinstance(source, Artifact):
            return source
        if isinstance(source, (bytes, bytearray, memoryview)):
            return cls(bytes(source), "artifact")
        if hasattr(source, "read"):
            return cls(source.read(), str(getattr(source, "name", "artifact")))
        if not isinstance(source, (str, os.PathLike)):
            raise InvalidInput(f"an artifact is a path, bytes or a binary file object, not {type(source).__name__}")
        path = Path(source)
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    raise InvalidArtifact(f"{path} is empty; {_REMEDY}")
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InvalidArtifact(f"cannot open artifact {path}: {error.strerror or error}") from error
        return cls(data, str(path), sealed)

    @property
    def where(self) -> str:
        """The path it was opened from, or "artifact"."""
        return self._where

    @property
    def arches(self) -> tuple[str, ...]:
        """GPU architectures that it has plans for."""
        return tuple(self.manifest["arches"])

    @property
    def nbytes(self) -> int:
        """Bytes of the whole file."""
        return len(self._bytes())

    @property
    def sections(self) -> Mapping[str, int]:
        """Every section by name, with its size in bytes."""
        return {name: section["bytes"] for name, section in self.manifest["sections"].items()}

    def plans(self, arch: str) -> tuple[Plan, ...]:
        """Return the plans for `arch`, one for each bucket."""
        return tuple(self.plan(arch, bucket) for bucket in range(len(self.buckets)))

    def plan(self, arch: str, bucket: int = 0) -> Plan:
        """Return the plan for `arch`, such as "sm_90", and the bucket of that number in `buckets`."""
        if (arch, bucket) not in self._plans:
            if arch not in self.arches:
                raise InvalidArtifact(
                    f"{self._where} has no plan for {arch}; it has {', '.join(self.arches)}; compile with --arch={arch}"
                )
            section = form.plan_member(arch, bucket)
            try:
                plan = Plan.from_json(json.loads(bytes(self._section(section))))
                check_bucket_plan(plan, self.buckets[bucket])
            except (ValueError, KeyError, TypeError, LuminalError) as error:
                if isinstance(error, InvalidArtifact):
                    raise
                raise InvalidArtifact(f"{self._where}: section {section} cannot be read ({error!r})") from error
            self._plans[arch, bucket] = plan
        return self._plans[arch, bucket]

    def cubin(self, arch: str, source: str) -> bytes | None:
        """Return the machine code of a kernel for `arch`, or None if the artifact holds none."""
        return self._optional(form.cubin_member(arch, source))

    def ptx(self, source: str) -> bytes | None:
        """Return the PTX of a kernel, or None."""
        return self._optional(form.ptx_member(source))

    def source(self, source: str) -> str | None:
        """Return the CUDA C++ text of a kernel, or None if the artifact was compiled with --strip-sources."""
        data = self._optional(form.source_member(source))
        return None if data is None else data.decode()

    def extra(self, name: str) -> bytes | None:
        """Return a further member, such as "graph.txt", or None."""
        return self._optional(name)

    @property
    def weights(self) -> Weights:
        """The weights by name: read-only arrays that lie in the mapped file."""
        if self._weights is None:
            self._weights = Weights(self._section(form.WEIGHTS), f"{self._where}: section {form.WEIGHTS}")
        return self._weights

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact under `path`, whole or not at all; raises InvalidInput if that cannot be done."""
        with atomic_file(path) as file:
            file.write(self._bytes())

    def check(self) -> None:
        """Raise InvalidArtifact unless every section has its own digest, every plan is valid, and all code is there."""
        for name, section in self.manifest["sections"].items():
            data = self._section(name)
            digest = form.sha256(data)
            if digest != section["sha256"] or len(data) != section["bytes"]:
                raise InvalidArtifact(_section_problem(self._where, name, section["sha256"], digest))
        for arch in self.arches:
            for plan in self.plans(arch):
                try:
                    plan.validate()
                except LuminalError as error:
                    raise InvalidArtifact(f"{self._where}: the plan for {arch} is not valid: {error}") from error
                for buffer in plan.buffers:
                    if buffer.kind == "weight" and buffer.name not in self.weights:
                        raise InvalidArtifact(
                            f"{self._where}: weight {buffer.name!r} of the plan for {arch} is missing"
                        )

    def keep_alive(self, thing: Any) -> None:
        """Hold on to `thing` until the artifact is closed."""
        self._kept.append(thing)

    def close(self) -> None:
        """Let go of the file. Arrays taken from `weights` stay valid; the artifact itself does not."""
        self._weights = None
        self._plans.clear()
        self._data = memoryview(b"")
        self._owner = b""
        self._members = {}
        self._kept.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Artifact {self._where}: {', '.join(self.arches)}>"

    def _bytes(self) -> memoryview:
        if not self._members:
            raise InvalidArtifact(f"{self._where} is closed; open it again")
        return self._data

    def _section(self, name: str) -> memoryview:
        data = self._bytes()
        if name not in self._members:
            raise InvalidArtifact(f"{self._where}: section {name} is missing; compile the model again")
        begin, size = self._members[name]
        return data[begin : begin + size]

    def _optional(self, name: str) -> bytes | None:
        return bytes(self._section(name)) if name in self._members or not self._members else None


def _check_seal(data: memoryview, where: str) -> None:
    """Raise InvalidArtifact unless the file ends in the digest of all its other bytes."""
    if bytes(data[:4]) != b"PK\x03\x04":
        raise InvalidArtifact(
            f"{where} is not a luminal-onnx artifact: expected a zip that begins with PK, got {bytes(data[:4])!r}"
        )
    if bytes(data[-form.COMMENT_BYTES : -form.DIGITS]) != form.SEAL:
        version = _unsealed_version(data, where)
        if isinstance(version, int) and version > form.VERSION:
            raise _newer(where, version)
        raise InvalidArtifact(
            f"{where}: expected the closing digest at the end of the file, got {len(data)} bytes without one: "
            f"the file is truncated or is another kind of zip; {_REMEDY}"
        )
    expected, got = bytes(data[-form.DIGITS :]), form.sha256(data[: -form.DIGITS]).encode()
    if expected != got:
        raise InvalidArtifact(_name_damage(data, where, expected.decode("latin-1"), got.decode()))


def _unsealed_version(data: memoryview, where: str) -> Any:
    try:
        members = _members(data, where)
        begin, size = members[form.MANIFEST]
        manifest = json.loads(bytes(data[begin : begin + size]))
        return manifest["version"] if manifest.get("format") == form.FORMAT else None
    except (InvalidArtifact, ValueError, KeyError, TypeError, AttributeError):
        return None


def _name_damage(data: memoryview, where: str, expected: str, got: str) -> str:
    """Say which section of an altered file is not what its manifest says, or that it is none of them."""
    try:
        members = _members(data, where)
        begin, size = members[form.MANIFEST]
        sections = json.loads(bytes(data[begin : begin + size]))["sections"]
        for name, section in sections.items():
            begin, size = members[name]
            digest = form.sha256(data[begin : begin + size])
            if digest != section["sha256"]:
                return _section_problem(where, name, section["sha256"], digest)
    except (InvalidArtifact, ValueError, KeyError, TypeError, AttributeError):
        pass
    return (
        f"{where}: the manifest or the directory was altered: expected SHA-256 {expected!r} of the whole file, "
        f"got {got!r}; {_REMEDY}"
    )


def _section_problem(where: str, name: str, expected: str, got: str) -> str:
    return f"{where}: section {name} was altered: expected SHA-256 {expected}, got {got}; {_REMEDY}"


def _newer(where: str, version: int) -> InvalidArtifact:
    return InvalidArtifact(
        f"{where} has format version {version}, this release reads versions up to {form.VERSION}; upgrade luminal-onnx"
    )


class _Window:
    """A read-only file over a buffer, for `zipfile`; it copies only what is read."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        position = offset + (0, self._position, len(self._data))[whence]
        if position < 0:
            raise OSError(f"seek to {position}")
        self._position = position
        return position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = len(self._data) if size is None or size < 0 else self._position + size
        piece = bytes(self._data[self._position : end])
        self._position += len(piece)
        return piece


def _members(data: memoryview, where: str) -> dict[str, tuple[int, int]]:
    """Return where each member's bytes begin, and how many they are."""
    members: dict[str, tuple[int, int]] = {}
    try:
        with zipfile.ZipFile(_Window(data)) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise InvalidArtifact(f"{where}: its directory cannot be read ({error}); {_REMEDY}") from error
    for info in infos:
        header = bytes(data[info.header_offset : info.header_offset + _LOCAL_HEADER])
        if len(header) < _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
            raise InvalidArtifact(f"{where}: section {info.filename} has no header at {info.header_offset}; {_REMEDY}")
        begin = info.header_offset + _LOCAL_HEADER + sum(np.frombuffer(header, "<u2", 2, 26).tolist())
        stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        if not stored or begin + info.file_size > len(data):
            raise InvalidArtifact(
                f"{where}: section {info.filename} must be stored uncompressed and lie inside the file; {_REMEDY}"
            )
        if info.filename in members:
            raise InvalidArtifact(f"{where}: section {info.filename} is there twice; {_REMEDY}")
        members[info.filename] = (begin, info.file_size)
    return members


def _manifest(data: memoryview, members: Mapping[str, tuple[int, int]], where: str) -> dict[str, Any]:
    if form.MANIFEST not in members:
        raise InvalidArtifact(f"{where} is not a luminal-onnx artifact: it has no {form.MANIFEST}")
    begin, size = members[form.MANIFEST]
    try:
        manifest = json.loads(bytes(data[begin : begin + size]))
        if manifest["format"] != form.FORMAT:
            raise InvalidArtifact(f"{where}: expected format {form.FORMAT!r}, got {manifest['format']!r}")
        version = manifest["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArtifact(f"{where}: section {form.MANIFEST} cannot be read ({error!r})") from error
    if type(version) is not int or version < 1:
        raise InvalidArtifact(f"{where}: format version {version!r} is not a number from 1 on")
    if version > form.VERSION:
        raise _newer(where, version)
    missing = {"sections", "arches", "inputs", "outputs", "dims"} - set(manifest)
    if missing:
        raise InvalidArtifact(f"{where}: section {form.MANIFEST} lacks {', '.join(sorted(missing))}")
    return manifest


def _signature_and_buckets(manifest: Mapping[str, Any], where: str) -> tuple[Signature, tuple[Bucket, ...]]:
    """Return what the manifest says of inputs, outputs and dims, and the buckets, which must be a partition of the range."""
    try:
        signature = Signature.from_json(manifest)
        listed = manifest.get("buckets")
        buckets: tuple[Bucket, ...] = (
            (signature.ranges,)
            if listed is None
            else tuple({name: Range(*sizes) for name, sizes in bucket.items()} for bucket in listed)
        )
    except (ValueError, KeyError, TypeError, AttributeError, LuminalError) as error:
        raise InvalidArtifact(
            f"{where}: inputs, outputs and dims in {form.MANIFEST} cannot be read ({error!r})"
        ) from error
    problem = cover_problem(signature.ranges, buckets)
    if problem is not None:
        raise InvalidArtifact(f"{where}: its buckets are not its range: {problem}; compile the model again")
    return signature, buckets
