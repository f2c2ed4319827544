"""Files that appear under their name whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..plan.errors import InvalidInput, UnfitEnvironment


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` for reading and writing; give it the name when the block ends without error.

    When anything fails, or the process is killed, an older file of that name is untouched. UnfitEnvironment on a full
    disk, InvalidInput for a folder that cannot be written. The disk is not waited for: gigabytes take it long, and what
    a power failure leaves behind is told by the file's own digest.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "x+b") as file:
            yield file
        os.replace(temporary, target)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _NO_ROOM:
            raise UnfitEnvironment(f"cannot write {target}: {reason}; make room, or name a file elsewhere") from error
        raise InvalidInput(f"cannot write {target}: {reason}; name a file in a folder that exists and can be written") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
