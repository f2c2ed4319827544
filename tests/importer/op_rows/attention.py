"""Attention and rotary embeddings, ONNX's own and ONNX Runtime's."""

from __future__ import annotations

import numpy as np
from op_table import HALF, MICROSOFT, REDUCTION, bools, case, floats, ints, other_floats, row, scalar

SUM = {"classes": REDUCTION}
B, H, KV, S, T, D = 2, 4, 2, 3, 5, 6
Q, K, V = floats(B, H, S, D), other_floats(B, KV, T, D), floats(B, KV, T, D + 2)
FLAT = (floats(B, S, H * D), other_floats(B, T, H * D), floats(B, T, H * D, low=-1))
HEADS = {"q_num_heads": H, "kv_num_heads": H}
NAMES = {0: ("N", None, "S", None), 1: ("N", None, "T", None), 2: ("N", None, "T", None)}

row(
    "Attention",
    case(Q, K, V, dims=NAMES, **SUM),
    case(*FLAT, at=HEADS, **SUM),
    case(*FLAT, at={**HEADS, "scale": 0.5, "softcap": 1.5}, **SUM),
    case(Q, K, V, other_floats(S, T), at={"is_causal": 1}, **SUM),
    case(Q, K, V, bools(B, 1, S, T) | np.eye(S, T, dtype=bool), **SUM),
    case(Q, K, V, None, floats(B, KV, 2, D), other_floats(B, KV, 2, D + 2), at={"is_causal": 1}, outputs=3, **SUM),
    case(Q.astype(HALF), K.astype(HALF), V.astype(HALF), **SUM),
)
ANGLES = floats(8, D // 2, low=0, high=6)
TABLES = (np.cos(ANGLES), np.sin(ANGLES))
PLACES = ints(B, S, low=0, high=8)
row(
    "RotaryEmbedding",
    case(Q, *TABLES, PLACES, **SUM),
    case(Q, *TABLES, PLACES, at={"interleaved": 1}, **SUM),
    case(FLAT[0], *TABLES, PLACES, at={"num_heads": H}, **SUM),
    case(floats(B, H, S, 10), *TABLES, PLACES, at={"rotary_embedding_dim": 6}, **SUM),
)
row(
    "RotaryEmbedding",
    case(FLAT[0], PLACES, *TABLES, **SUM),
    case(FLAT[0], ints(1, low=2, high=4), *TABLES, at={"interleaved": 1}, **SUM),
    case(Q, PLACES, *TABLES, **SUM),
    domain=MICROSOFT,
)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
row(
    "MultiHeadAttention",
    case(*FLAT, at={"num_heads": H}, **SUM),
    case(*FLAT, floats(3 * H * D), at={"num_heads": H, "scale": 0.3}, **SUM),
    case(*FLAT, None, MASK, other_floats(B, H, S, T), at={"num_heads": H}, **SUM),
    domain=MICROSOFT,
)
WEIGHTS = (floats(B, T, 8), floats(8, 3 * H * D, low=-0.5, high=0.6), floats(3 * H * D))
row(
    "Attention",
    case(*WEIGHTS, at={"num_heads": H}, **SUM),
    case(*WEIGHTS, MASK, at={"num_heads": H}, **SUM),
    case(*WEIGHTS, None, floats(2, B, H, 3, D), at={"num_heads": H, "unidirectional": 1}, outputs=2, **SUM),
    domain=MICROSOFT,
)
PAST = 4
WIDTH = 16
GROUPED = (floats(B, S, H * WIDTH), other_floats(B, S, KV * WIDTH), floats(B, S, KV * WIDTH, low=-1))
CACHE = (floats(B, KV, PAST, WIDTH), other_floats(B, KV, PAST, WIDTH))
COUNTS = {"num_heads": H, "kv_num_heads": KV}
TURNS = floats(16, WIDTH // 2, low=0, high=6)
row(
    "GroupQueryAttention",
    case(*GROUPED, None, None, np.full(B, S - 1, np.int32), scalar(S, np.int32), at=COUNTS, outputs=3, **SUM),
    case(floats(B, 1, H * WIDTH), other_floats(B, 1, KV * WIDTH), floats(B, 1, KV * WIDTH, low=-1), *CACHE,
         np.full(B, PAST, np.int32), scalar(PAST + 1, np.int32), np.cos(TURNS), np.sin(TURNS),
         at={**COUNTS, "do_rotary": 1, "local_window_size": 3}, outputs=3, **SUM),
    domain=MICROSOFT,
)  # fmt: skip
