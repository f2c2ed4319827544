"""Compiled kernels on disk: one checked file each, safe for several processes, never wrong for a change of compiler."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from ..runtime.cache import cache_dir, private_folder, temporary_name
from . import nvrtc

# Raise this whenever a key of equal parts may stand for other bytes than before.
SCHEMA = 1
DIGEST_BYTES = 32


def kernel_key(source: str, kind: str, arch: str) -> str:
    """Return the cache key of a kernel: everything that its bytes depend on. `source` is the SHA-256 of its text."""
    parts = [SCHEMA, source, kind, nvrtc.version(), nvrtc.options(arch)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def kernel_folder() -> Path:
    """Return the folder of compiled kernels."""
    return private_folder(cache_dir() / "kernels")


def load(key: str) -> bytes | None:
    """Return the bytes stored under the key; None if there are none, or if they are damaged, which removes them."""
    path = _path(key)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, data = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if hashlib.sha256(key.encode() + data).digest() == digest:
        return data
    with suppress(OSError):
        path.unlink()
    return None


def store(key: str, data: bytes) -> None:
    """Keep the bytes under the key. A cache that cannot be written is no error: the next compilation does the work again."""
    path = _path(key)
    temporary = temporary_name(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_bytes(hashlib.sha256(key.encode() + data).digest() + data)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _path(key: str) -> Path:
    return kernel_folder() / key[:2] / key
