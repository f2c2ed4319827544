"""The cache on disk: files that appear whole or not at all, and that are verified each time they are read.

Compiled code is loaded from here, so the folder must belong to the user and to nobody else.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from ..plan.errors import UnfitEnvironment

ENVIRONMENT_VARIABLE = "LUMINAL_ONNX_CACHE"
_SEAL = b"luminal-onnx sealed file\n"
_SEAL_BYTES = len(_SEAL) + hashlib.sha256().digest_size


def cache_dir() -> Path:
    """Return the cache folder, made private (mode 0700) and created if need be.

    It is `$LUMINAL_ONNX_CACHE` if that is set, else `luminal-onnx` in `$XDG_CACHE_HOME` or `~/.cache`. UnfitEnvironment if
    it cannot be made, belongs to someone else, or others may write to it.
    """
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen:
        folder = Path(chosen)
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "luminal-onnx"
    return private_folder(folder)


def private_folder(folder: Path) -> Path:
    """Create `folder` with mode 0700 if it does not exist and return it; see `cache_dir` for what is refused."""
    advice = f"name another folder in ${ENVIRONMENT_VARIABLE}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise UnfitEnvironment(f"cannot use {folder} as the cache: {error.strerror or error}; {advice}") from error
    if status.st_uid != os.getuid():
        raise UnfitEnvironment(f"the cache {folder} belongs to another user, who could place code there; {advice}")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise UnfitEnvironment(f"others may write to the cache {folder}: run `chmod go-w {folder}` or {advice}")
    return folder


def temporary_name(path: Path) -> Path:
    """Return a fresh name beside `path`, for a file or folder that is renamed to `path` when it is complete."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")


def seal(path: Path) -> None:
    """Append the file's SHA-256 to it. ELF files and archives ignore what follows them."""
    with open(path, "r+b") as file:
        digest = hashlib.sha256(file.read()).digest()
        file.write(_SEAL + digest)


def sealed_content(path: Path) -> bytes | None:
    """Return what `seal` sealed, or None if the file is missing, truncated or altered."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body, trailer = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    return body if trailer == _SEAL + hashlib.sha256(body).digest() else None


def is_sealed(path: Path) -> bool:
    """True if the file exists and is exactly what `seal` left."""
    return sealed_content(path) is not None


def publish(temporary: Path, path: Path) -> None:
    """Seal a finished temporary file and give it its name, replacing any older file of that name."""
    try:
        seal(temporary)
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
