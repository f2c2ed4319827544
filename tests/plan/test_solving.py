"""Solving a dim for its only symbol."""

from __future__ import annotations

import pytest
from luminal_onnx.plan.dims import Dim, parse
from luminal_onnx.plan.solving import solve


@pytest.mark.parametrize(
    "text, size, expected",
    [
        ("h", 7, ("h", 7)),
        ("32*h", 96, ("h", 3)),
        ("32*h", 100, ("h", 3)),
        ("2*h + 3", 9, ("h", 3)),
        ("2*h + 3", 1, ("h", 0)),
        ("4*h - 1", 7, ("h", 2)),
        ("5", 5, None),
        ("a + b", 5, None),
        ("a*a", 9, None),
        ("a//2", 9, None),
        ("9 - a", 4, None),
    ],
)
def test_a_size_gives_the_value_of_the_only_symbol(text: str, size: int, expected: tuple[str, int] | None) -> None:
    dim: Dim = parse(text)
    assert solve(dim, size) == expected
