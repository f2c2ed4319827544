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
    activation: str = "",
    shared: str = "",
    interleaved: bool = False,
) -> LtCase:
    """Draw a case. `orders` has a letter, c or r, for A, B and D; `padding` widens leading dimensions and batch strides;
    `offset` moves A, B and C in their buffers; all batches have one of the operands named in `shared`, of "bc".
    Matrices of an `interleaved` batch lie between one another's columns (or rows)."""
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
        if interleaved:
            stride[name] = ld[name]
            ld[name] = ld[name] * batch
    if "b" in shared:
        stride["b"] = 0
    stride_c = 0 if "c" in shared or not beta else stride["d"]
    epilogue = "_".join(filter(None, (activation, "bias" if bias else ""))) or "default"
    record = LtMatmul(
        m=m, n=n, k=k, transpose_a=transpose_a, transpose_b=transpose_b,
        order_a=order[0], order_b=order[1], order_d=order[2],
        lda=ld["a"], ldb=ld["b"], ldd=ld["d"], batch=batch,
        stride_a=stride["a"], stride_b=stride["b"], stride_d=stride["d"],
        type_a=dtype, type_b=dtype, type_d=type_d, compute=float64 if dtype is float64 else float32,
        alpha=alpha, beta=beta, epilogue=epilogue,
        order_c=order[2], ldc=ld["d"] if beta else 0, stride_c=stride_c,
        offset_a=offset, offset_b=3 * offset, offset_c=2 * offset if beta else 0,
    )  # fmt: skip
    record.validate()

    def matrices(
        start: int, layout: str, kind: DType, which: str, distance: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a buffer of random values and the matrices [batch, rows, columns] read out of it one by one."""
        rows, columns = shapes[layout]
        distance = stride[layout] if distance is None else distance
        size = start + (batch - 1) * stride[layout] + ld[layout] * max(shapes[layout]) + padding
        buffer = generator.uniform(-1, 1, size).astype(kind.numpy)
        values = np.empty((batch, rows, columns))
        for place, index in positions(record, layout, which, start, rows, columns, ld[layout], distance):
            values[index] = buffer[place]
        return buffer, values

    a_buffer, a = matrices(record.offset_a, "a", dtype, record.order_a)
    b_buffer, b = matrices(record.offset_b, "b", dtype, record.order_b)
    before, _ = matrices(0, "d", type_d, record.order_d)
    operands = [a_buffer, b_buffer]
    product = np.zeros((batch, m, n))
    left = a.transpose(0, 2, 1) if transpose_a else a
    right = b.transpose(0, 2, 1) if transpose_b else b
    for q in range(k):
        product += left[:, :, q, None] * right[:, q, None, :]
    product *= alpha
    if beta:
        c_buffer, c = matrices(record.offset_c, "d", type_d, record.order_c, stride_c)
        operands.append(c_buffer)
        product += beta * c
    if bias:
        vector = generator.uniform(-1, 1, m).astype(type_d.numpy)
        operands.append(vector)
        product += vector.astype(np.float64)[None, :, None]
    if activation == "relu":
        product = np.maximum(product, 0.0)
    elif activation == "gelu":
        product = product / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (product + 0.044715 * product**3)))
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
                        {"activation": "relu"},
                        {"activation": "gelu", "bias": True},
                        {"activation": "relu", "bias": True, "beta": 1.0, "alpha": 0.5},
                        {"interleaved": True, "beta": -0.5, "padding": 1},
                    ):
                        if orders[2] == "r" and ("bias" in extra or "activation" in extra):
                            continue
                        if batch == 1 and "interleaved" in extra:
                            continue
                        cases.append({"transpose_a": ta, "transpose_b": tb, "orders": orders, "batch": batch, **extra})
    for dtype, type_d in [(float64, None), (float16, None), (bfloat16, None), (float16, float32), (bfloat16, float32)]:
        for orders in ("ccc", "rrr", "rcc"):
            for extra in (
                {},
                {"beta": 0.5},
                {"batch": 3, "shared": "b"},
                {"batch": 3, "shared": "bc", "beta": 1.0},
                {"bias": True},
                {"activation": "relu", "bias": True, "beta": 1.0},
                {"activation": "gelu"},
            ):
                if orders[2] == "r" and ("bias" in extra or "activation" in extra):
                    continue
                if dtype is float64 and "activation" in extra:
                    continue
                cases.append({"dtype": dtype, "type_d": type_d, "orders": orders, "m": 13, "n": 6, "k": 17, **extra})
    for m, n, k in [(1, 1, 1), (1, 129, 64), (129, 1, 33), (64, 64, 64), (2, 3, 257)]:
        for orders in ("ccc", "rrr"):
            cases.append({"m": m, "n": n, "k": k, "orders": orders})
            cases.append({"m": m, "n": n, "k": k, "orders": orders, "transpose_a": True, "transpose_b": True})
    return cases
