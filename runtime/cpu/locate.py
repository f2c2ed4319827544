"""Turns the places in a fault's text into lines of the kernel's source."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from .source import KernelSource

_LINE = re.compile(r"@line:(\d+)@")
_PC = re.compile(r"@pc:([0-9a-f]+)@")


def explain(message: str, source: KernelSource, shared_object: Path) -> str:
    """Return the message with `@line:N@` and `@pc:X@` (an offset in the shared object) as lines of the source."""
    offsets = _PC.findall(message)
    lines = dict(zip(offsets, _lines_of(offsets, source, shared_object)))

    def of_offset(match: re.Match[str]) -> str:
        line = lines.get(match.group(1))
        return _show(source, line) if line else f"code offset 0x{match.group(1)}"

    message = _PC.sub(of_offset, message)
    return _LINE.sub(lambda match: _show(source, int(match.group(1))), message)


def _show(source: KernelSource, line: int) -> str:
    lines = source.text.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f"line {line} (`{text}`)" if text else f"line {line}"


def _lines_of(offsets: list[str], source: KernelSource, shared_object: Path) -> list[int | None]:
    """The source line of each offset: of the frames that were inlined there, the innermost outside the prelude."""
    program = shutil.which("addr2line")
    if program is None:
        return [None] * len(offsets)
    return [_line_of(program, int(offset, 16), source, shared_object) for offset in offsets]


def _line_of(program: str, offset: int, source: KernelSource, shared_object: Path) -> int | None:
    # The offset is a return address: the access is just before it.
    command = [program, "-i", "-e", str(shared_object), hex(offset - 1)]
    done = subprocess.run(command, capture_output=True, text=True)
    frames = re.findall(rf"/{re.escape(source.entry)}\.cu:(\d+)", done.stdout)
    numbers = [int(frame) for frame in frames]
    return next((number for number in numbers if number >= source.body_line), numbers[0] if numbers else None)
