"""Files that appear under their name whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..plan.errors import InvalidInput


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` for reading and writing; give it the name when the block ends without error.

    The bytes are on disk before the name changes. When anything fails nothing is left behind and an older file of that
    name is untouched; a full disk or a folder that cannot be written raises InvalidInput.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(
            f"cannot write {target}: {reason}; name a file in a folder that exists, can be written and has room"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # some file systems refuse to sync a folder; the file itself is on disk
        pass
    finally:
        os.close(handle)
