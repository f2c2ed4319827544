"""Saying which extra is missing, where a package of the compiler cannot be imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from luminal_onnx.plan.errors import MissingDependency


@contextmanager
def needs_compile_extra(doing: str) -> Iterator[None]:
    """Turn a missing package into MissingDependency: "`doing` needs ...". Wrap imports only."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("luminal_onnx"):
            raise
        raise MissingDependency(
            f"{doing} needs the Python package {missing.name.partition('.')[0]!r}: pip install 'luminal-onnx[compile]'"
        ) from missing
