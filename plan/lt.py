"""One cuBLASLt matrix product, described by one frozen record with one `validate()`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .dims import Dim, parse, substitute
from .dtypes import BY_NAME, DType, bfloat16, float16, float32, float64
from .errors import LuminalError

# Each is the activation by name, perhaps after a bias. "gelu" is the tanh approximation; relu turns NaN into 0.
EPILOGUES = ("default", "bias", "relu", "relu_bias", "gelu", "gelu_bias")
# The types that D, C and the bias may have, by that of A and B.
RESULT_TYPES = {float64: (float64,), float32: (float32,), float16: (float16, float32), bfloat16: (bfloat16, float32)}


@dataclass(frozen=True)
class LtMatmul:
    """`D = activation(alpha · op(A) · op(B) + beta · C (+ bias))`, in cuBLASLt's own terms (not the logical problem's).

    `m, n, k` and leading dimensions are as handed to the library; `order_*` is "col" or "row"; `stride_*` are the element
    distances between the matrices of a batch; `offset_*` are elements from the start of the buffer. All may be symbolic.
    C has D's type. Bias is a vector of m elements of D's type, added along D's rows. An epilogue needs a column-ordered D.
    """

    m: Dim
    n: Dim
    k: Dim
    transpose_a: bool
    transpose_b: bool
    order_a: str
    order_b: str
    order_d: str
    lda: Dim
    ldb: Dim
    ldd: Dim
    batch: Dim
    stride_a: Dim
    stride_b: Dim
    stride_d: Dim
    type_a: DType
    type_b: DType
    type_d: DType
    compute: DType = float32
    alpha: float = 1.0
    beta: float = 0.0
    order_c: str = "col"
    ldc: Dim = 0
    stride_c: Dim = 0
    epilogue: str = "default"
    offset_a: Dim = 0
    offset_b: Dim = 0
    offset_c: Dim = 0

    @property
    def operand_count(self) -> int:
        """Buffers read: A, B, then C if beta ≠ 0, then the bias if the epilogue has one."""
        return 2 + self.has_c + self.has_bias

    @property
    def has_c(self) -> bool:
        return self.beta != 0.0

    @property
    def has_bias(self) -> bool:
        return self.epilogue.endswith("bias")

    @property
    def activation(self) -> str:
        """What is applied last: "relu", "gelu", or "" for nothing."""
        return self.epilogue.split("_")[0] if self.epilogue not in ("default", "bias") else ""

    def validate(self) -> None:
        """Raise LuminalError unless the library accepts this record; symbolic sizes are checked where they are known."""
        problems = []
        if self.epilogue not in EPILOGUES:
            problems.append(f"epilogue {self.epilogue!r} is not one of {EPILOGUES}")
        if self.has_bias and self.order_d != "col":
            problems.append("a bias needs a column-ordered D")
        if self.activation and self.order_d != "col":
            problems.append("an activation needs a column-ordered D")
        if self.activation and self.type_d == float64:
            problems.append(f"no {self.activation} of {self.type_d}")
        if not (math.isfinite(self.alpha) and math.isfinite(self.beta)):
            problems.append(f"alpha is {self.alpha} and beta {self.beta}; both must be finite")
        if self.alpha == 0.0:
            problems.append("alpha is 0: A and B would not be read, nor their NaN and infinities spread")
        if self.type_a != self.type_b:
            problems.append(f"A is {self.type_a}, B is {self.type_b}; they must be equal")
        if self.type_d not in RESULT_TYPES.get(self.type_a, ()):
            problems.append(f"no product of {self.type_a} gives {self.type_d}")
        if self.compute != (float64 if self.type_a == float64 else float32):
            problems.append(f"compute type {self.compute} does not fit operands of {self.type_a}")
        if self.has_c and self.order_c != self.order_d:
            problems.append("C and D must have the same order")
        for name in ("order_a", "order_b", "order_c", "order_d"):
            if getattr(self, name) not in ("col", "row"):
                problems.append(f"{name} is {getattr(self, name)!r}, expected 'col' or 'row'")
        for label, ld, rows, columns, order in self._matrices():
            least = rows if order == "col" else columns
            if isinstance(ld, int) and isinstance(least, int) and ld < max(least, 1):
                problems.append(f"leading dimension of {label} is {ld}, at least {max(least, 1)} needed")
        for name in ("m", "n", "k", "batch"):
            size = getattr(self, name)
            if isinstance(size, int) and size < 1:
                problems.append(f"{name} is {size}, at least 1 needed")
        for name in ("stride_a", "stride_b", "stride_c", "stride_d", "offset_a", "offset_b", "offset_c"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 0:
                problems.append(f"{name} is {value}, which is negative")
        if not problems and self._overlaps():
            problems.append(f"the matrices of D overlap: their distance is {self.stride_d}")
        if problems:
            raise LuminalError(f"cuBLASLt record is not valid: {'; '.join(problems)}. Record: {self}")

    def _overlaps(self) -> bool:
        """Say whether two of D's elements certainly share a place. Matrices of a batch may lie between one another's columns."""
        inner, outer = (self.m, self.n) if self.order_d == "col" else (self.n, self.m)
        axes = [(1, inner), (self.ldd, outer), (self.stride_d, self.batch)]
        if not all(isinstance(value, int) for axis in axes for value in axis):
            return False
        reached = 0  # the farthest element that the axes so far reach
        for stride, extent in sorted(axis for axis in axes if axis[1] > 1):
            if stride <= reached:
                return True
            reached += stride * (extent - 1)
        return False

    def _matrices(self) -> list[tuple[str, Dim, Dim, Dim, str]]:
        a = (self.k, self.m) if self.transpose_a else (self.m, self.k)
        b = (self.n, self.k) if self.transpose_b else (self.k, self.n)
        matrices = [("A", self.lda, *a, self.order_a), ("B", self.ldb, *b, self.order_b)]
        matrices.append(("D", self.ldd, self.m, self.n, self.order_d))
        if self.has_c:
            matrices.append(("C", self.ldc, self.m, self.n, self.order_c))
        return matrices

    def matrices(self) -> dict[str, tuple[Dim, Dim, Dim, str]]:
        """Return for A, B, D (and C) as stored: (rows, columns, leading dimension, order)."""
        return {label: (rows, columns, ld, order) for label, ld, rows, columns, order in self._matrices()}

    def sizes(self) -> Iterator[Dim]:
        """Yield every size, distance and offset of the record."""
        return (getattr(self, name) for name in sorted(_DIMS))

    def resolve(self, dims: Mapping[str, int]) -> LtMatmul:
        """Return the record with every symbolic size replaced by its value."""
        held = vars(self)
        symbolic = {name: substitute(held[name], dims) for name in _DIMS if not isinstance(held[name], int)}
        return replace(self, **symbolic) if symbolic else self

    def to_json(self) -> dict[str, Any]:
        return {name: _encode(name, value) for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LtMatmul:
        return cls(**{name: _decode(name, value) for name, value in data.items()})


_DIMS = frozenset(
    "m n k lda ldb ldc ldd batch stride_a stride_b stride_c stride_d offset_a offset_b offset_c".split()
)
_TYPES = frozenset("type_a type_b type_d compute".split())


def _encode(name: str, value: Any) -> Any:
    if name in _TYPES:
        return value.name
    if name in _DIMS and not isinstance(value, int):
        return str(value)
    return value.hex() if isinstance(value, float) else value


def _decode(name: str, value: Any) -> Any:
    if name in _TYPES:
        return BY_NAME[value]
    if name in _DIMS:
        return parse(value) if isinstance(value, str) else value
    return float.fromhex(value) if name in ("alpha", "beta") else value
