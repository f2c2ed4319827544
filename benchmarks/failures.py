"""Say in one line what went wrong."""

from __future__ import annotations

LONGEST = 240


def one_line(error: BaseException) -> str:
    """Return the error's type and the first line of what it says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shortened(f"{type(error).__name__}: {lines[0] if lines else 'no message'}")


def last_line(text: str) -> str:
    """Return the last line of a program's output that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shortened(lines[-1]) if lines else "no output"


def shortened(line: str) -> str:
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
