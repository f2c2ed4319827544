"""Matrix products for every layout cuBLASLt knows, with results computed element by element from the definition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from luminal_onnx.plan.dtypes import DType, bfloat16, float16, float32, float64
from luminal_onnx.plan.lt import LtMatmul


@dataclass
class LtCase:
    """A record, its operand buffers, D's buffer before the call, and in float64 what D holds after it."""

    record: LtMatmul
    operands: list[np.ndarray]
    before: np.ndarray
    after: np.ndarray


def make_case(
    seed: int,
    *,
    m: int = 7,
    n: int = 11,
    k: int = 5,
    batch: int = 1,
    transpose_a: bool = False,
    transpose_b: bool = False,
    orders: str = "ccc",
    padding: int = 0,
    offset: int = 0,
    dtype: DType = float32,
    type_d: DType | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: bool = False,
    shared_b: bool = False,
) -> LtCase:
    """Draw a case. `orders` has a letter, c or r, for A, B and D; `padding` widens leading dimensions and batch strides;
    `offset` moves A, B and C in their buffers; `shared_b` gives all batches one B."""
    generator = np.random.default_rng(seed)
    type_d = type_d or dtype
    order = [{"c": "col", "r": "row"}[letter] for letter in orders]
    shapes = {
        "a": (k, m) if transpose_a else (m, k),
        "b": (n, k) if transpose_b else (k, n),
        "d": (m, n),
    }
    ld = {}
    stride = {}
    for (name, (rows, columns)), kind in zip(shapes.items(), order):
        inner, outer = (rows, columns) if kind == "col" else (columns, rows)
        ld[name] = inner + padding
        stride[name] = ld[name] * outer + 2 * padding if batch > 1 else 0
    if shared_b:
        stride["b"] = 0
    record = LtMatmul(
        m=m, n=n, k=k, transpose_a=transpose_a, transpose_b=transpose_b,
        order_a=order[0], order_b=order[1], order_d=order[2],
        lda=ld["a"], ldb=ld["b"], ldd=ld["d"], batch=batch,
        stride_a=stride["a"], stride_b=stride["b"], stride_d=stride["d"],
        type_a=dtype, type_b=dtype, type_d=type_d, compute=float64 if dtype is float64 else float32,
        alpha=alpha, beta=beta, epilogue="bias" if bias else "default",
        order_c=order[2], ldc=ld["d"] if beta else 0, stride_c=stride["d"] if beta else 0,
        offset_a=offset, offset_b=3 * offset, offset_c=2 * offset if beta else 0,
    )  # fmt: skip
    record.validate()

    def matrices(name: str, start: int, layout: str, kind: DType, which: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a buffer of random values and the matrices [batch, rows, columns] read out of it one by one."""
        rows, columns = shapes[layout]
        size = start + (batch - 1) * stride[layout] + ld[layout] * max(shapes[layout]) + padding
        buffer = generator.uniform(-1, 1, size).astype(kind.numpy)
        values = np.empty((batch, rows, columns))
        for place, index in positions(record, layout, which, start, rows, columns, ld[layout], stride[layout]):
            values[index] = buffer[place]
        return buffer, values

    a_buffer, a = matrices("A", record.offset_a, "a", dtype, record.order_a)
    b_buffer, b = matrices("B", record.offset_b, "b", dtype, record.order_b)
    before, _ = matrices("D", 0, "d", type_d, record.order_d)
    operands = [a_buffer, b_buffer]
    product = np.zeros((batch, m, n))
    left = a.transpose(0, 2, 1) if transpose_a else a
    right = b.transpose(0, 2, 1) if transpose_b else b
    for q in range(k):
        product += left[:, :, q, None] * right[:, q, None, :]
    product *= alpha
    if beta:
        c_buffer, c = matrices("C", record.offset_c, "d", type_d, record.order_c)
        operands.append(c_buffer)
        product += beta * c
    if bias:
        vector = generator.uniform(-1, 1, m).astype(type_d.numpy)
        operands.append(vector)
        product += vector.astype(np.float64)[None, :, None]
    after = before.astype(np.float64)
    for place, index in positions(record, "d", record.order_d, 0, m, n, ld["d"], stride["d"]):
        after[place] = product[index]
    return LtCase(record, operands, before, after)


def positions(record: LtMatmul, layout: str, order: str, start: int, rows: int, columns: int, ld: int, stride: int):
    """Yield (element of the buffer, index of the matrix element) for every element of every batch."""
    for q in range(record.batch):
        for i in range(rows):
            for j in range(columns):
                yield start + q * stride + (i + j * ld if order == "col" else i * ld + j), (q, i, j)


def sweep() -> list[dict]:
    """The arguments of `make_case` for every transpose, order, batch, offset, beta and bias, and for every dtype."""
    cases = []
    for ta in (False, True):
        for tb in (False, True):
            for orders in ("ccc", "ccr", "crc", "crr", "rcc", "rcr", "rrc", "rrr"):
                for batch in (1, 3):
                    for extra in (
                        {},
                        {"offset": 8, "padding": 4},
                        {"beta": 0.5, "alpha": -1.25},
                        {"bias": True},
                        {"bias": True, "beta": 1.0, "padding": 3, "offset": 5},
                    ):
                        if extra.get("bias") and orders[2] == "r":
                            continue
                        cases.append({"transpose_a": ta, "transpose_b": tb, "orders": orders, "batch": batch, **extra})
    for dtype, type_d in [(float64, None), (float16, None), (bfloat16, None), (float16, float32), (bfloat16, float32)]:
        for orders in ("ccc", "rrr", "rcc"):
            for extra in ({}, {"beta": 0.5}, {"batch": 3, "shared_b": True}, {"bias": True}):
                if extra.get("bias") and orders[2] == "r":
                    continue
                cases.append({"dtype": dtype, "type_d": type_d, "orders": orders, "m": 13, "n": 6, "k": 17, **extra})
    for m, n, k in [(1, 1, 1), (1, 129, 64), (129, 1, 33), (64, 64, 64), (2, 3, 257)]:
        for orders in ("ccc", "rrr"):
            cases.append({"m": m, "n": n, "k": k, "orders": orders})
            cases.append({"m": m, "n": n, "k": k, "orders": orders, "transpose_a": True, "transpose_b": True})
    return cases
