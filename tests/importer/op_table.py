"""One row per operator: the cases that it is compared with onnxruntime on. A registered operator without a row fails.

A case runs at every registered version from `since` to `until` of its operator; dims named in `dims` are symbolic.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tolerances import ELEMENTWISE, REDUCTION  # noqa: F401  (rows take their tolerance class from here)

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Case:
    """Inputs (None: left out), attributes, which inputs are initializers, and how the results are compared.

    `reference` computes the outputs of an operator that onnxruntime does not have.
    """

    inputs: tuple[np.ndarray | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constant: tuple[int, ...] = ()
    outputs: int = 1
    since: int = 1
    until: int = 10_000
    dims: Mapping[int, Sequence[str | None]] = field(default_factory=dict)
    classes: Mapping = field(default_factory=lambda: ELEMENTWISE)
    vacuous_ok: bool = False
    reference: Callable[..., Sequence[np.ndarray]] | None = None


TABLE: dict[tuple[str, str], list[Case]] = {}


def row(name: str, *cases: Case, domain: str = "") -> None:
    TABLE.setdefault((domain, name), []).extend(cases)


def case(*inputs: np.ndarray | None, at: Mapping[str, Any] | None = None, **options: Any) -> Case:
    """A case; `at` holds the attributes."""
    return Case(tuple(inputs), at or {}, **options)


def floats(*shape: int, low: float = -2.0, high: float = 2.0, dtype: Any = np.float32) -> np.ndarray:
    """Seeded by what is asked for, so that equal calls give equal arrays and different ones do not."""
    rng = np.random.default_rng(zlib.crc32(repr((shape, low, high, np.dtype(dtype).name)).encode()))
    return rng.uniform(low, high, shape).astype(dtype)


def other_floats(*shape: int, low: float = -1.5, high: float = 2.5, dtype: Any = np.float32) -> np.ndarray:
    return floats(*shape, low=low, high=high, dtype=dtype)


def ints(*shape: int, low: int = -7, high: int = 8, dtype: Any = np.int64) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(repr((shape, low, high, np.dtype(dtype).name)).encode()))
    return rng.integers(low, high, shape).astype(dtype)


def bools(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < 0.5


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def scalar(value: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


SPECIAL = f32(0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -0.5, -1.5)
HALF = np.float16
NAMED = {0: ("N", None)}


def load_all() -> Mapping[tuple[str, str], list[Case]]:
    """Return the whole table."""
    from op_rows import arithmetic, attention, layers, sequences, shapes  # noqa: F401  (importing fills the table)

    return TABLE
