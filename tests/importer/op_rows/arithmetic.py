"""Point by point: arithmetic, activations, comparisons, conversions; and reductions."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from op_table import (
    HALF,
    MICROSOFT,
    NAMED,
    REDUCTION,
    SPECIAL,
    bools,
    case,
    f32,
    floats,
    i64,
    ints,
    other_floats,
    row,
    scalar,
)

X = floats(3, 4)
UNIT = floats(3, 4, low=-0.9, high=0.9)
ABOVE_1 = floats(3, 4, low=1.1, high=4)
POSITIVE = floats(3, 4, low=0.1, high=4)

for name in ("Abs", "Neg", "Sign"):
    row(name, case(X, dims=NAMED), case(SPECIAL), case(ints(2, 5)), case(floats(2, 0)), case(scalar(-1.5)))
for name in ("Ceil", "Floor", "Round"):
    row(name, case(X * 3, dims=NAMED), case(SPECIAL), case(floats(4, 4, dtype=np.float64)))
for name in ("Sin", "Cos", "Atan", "Tanh", "Sigmoid", "Exp", "Erf"):
    row(name, case(X, dims=NAMED), case(SPECIAL), case(scalar(0.7)))
for name in ("Sinh", "Cosh", "Asinh", "Tan"):
    row(name, case(floats(3, 4, low=-1.4, high=1.4)), case(floats(0, 3)))
for name in ("Asin", "Acos", "Atanh"):
    row(name, case(UNIT), case(scalar(0.3)))
row("Acosh", case(ABOVE_1))
for name in ("Sqrt", "Log", "Reciprocal"):
    row(name, case(POSITIVE, dims=NAMED), case(SPECIAL))

for name in ("Add", "Sub", "Mul"):
    row(
        name,
        case(X, other_floats(3, 4), dims={0: ("N", None), 1: ("N", None)}),
        case(floats(3, 1, 4), other_floats(5, 1)),
        case(floats(2, 3), scalar(1.5)),
        case(ints(2, 3), ints(3)),
        case(floats(0, 3), other_floats(1, 3)),
        case(SPECIAL, SPECIAL[::-1].copy()),
    )
row(
    "Div",
    case(X, other_floats(3, 4, low=0.5)),
    case(ints(4, 5, low=-20, high=20), ints(5, low=1, high=6) * i64(1, -1, 1, -1, 1)),
    case(ints(4, 5, dtype=np.int32), scalar(3, np.int32)),
    case(SPECIAL, SPECIAL[::-1].copy()),
)
for name in ("Max", "Min"):
    row(
        name,
        case(X, other_floats(3, 4), floats(3, 4, low=-1)),
        case(X),
        case(X, scalar(0.25), since=8),
        case(ints(3, 2), ints(3, 2, low=-3), since=12),
        case(f32(1, np.nan, 3), f32(np.nan, 2, 1), vacuous_ok=True, since=8),
    )
row("Sum", case(X, other_floats(3, 4), floats(3, 4, low=-1)), case(X), case(X, other_floats(4), since=8))
row("Mean", case(X, other_floats(3, 4), floats(3, 4, low=-1)), case(X, other_floats(4), since=8))
row(
    "Pow",
    case(POSITIVE, other_floats(3, 4)),
    case(X, scalar(2.0)),
    case(X, f32(3.0)),
    case(X, scalar(2.0), constant=(1,)),
    case(POSITIVE, scalar(0.5), constant=(1,)),
    case(X, scalar(1.0), constant=(1,)),
    case(scalar(1.5), f32(2.0), constant=(1,)),
    case(X, scalar(3, np.int64), since=12),
    case(ints(3, 3), scalar(2, np.int64), since=12),
    case(ints(3, 3, low=1, dtype=np.int32), scalar(1.5), since=12),
)
row(
    "Mod",
    case(ints(4, 5, low=-20, high=20), i64(3, -3, 7, -7, 5)),
    case(ints(4, 5, low=-20, high=20), i64(3, -3, 7, -7, 5), at={"fmod": 1}),
    case(floats(4, 5, low=-9, high=9), f32(2, -2, 0.75, 1.5, -3), at={"fmod": 1}),
    case(ints(6, low=0, high=200, dtype=np.uint8), ints(6, low=1, high=9, dtype=np.uint8)),
)
row(
    "Clip",
    case(X, at={"min": -0.5, "max": 1.0}, until=6),
    case(X, at={"max": 1.0}, until=6),
    case(X, until=6),
    case(X, scalar(-0.5), scalar(1.0), since=11, dims=NAMED),
    case(X, None, scalar(1.0), since=11),
    case(X, scalar(0.5), since=11),
    case(X, since=11),
    case(ints(3, 4), scalar(-2, np.int64), scalar(3, np.int64), since=12),
    case(X, scalar(1.0), scalar(-1.0), since=13),
)
row("Relu", case(X, dims=NAMED), case(floats(3, 4, dtype=np.float64)), case(ints(3, 4, dtype=np.int32), since=14))
row("LeakyRelu", case(X), case(X, at={"alpha": 0.3}))
row("PRelu", case(floats(2, 3, 4), floats(3, 1, low=0.1, high=0.4)), case(X, scalar(0.2)), case(X, floats(3, 4, low=0)))
row("ThresholdedRelu", case(X), case(X, at={"alpha": 0.5}))
row("Elu", case(X), case(X, at={"alpha": 0.4}))
row("Selu", case(X), case(X, at={"alpha": 1.2, "gamma": 0.8}))
row("Celu", case(X), case(X, at={"alpha": 2.0}))
row("HardSigmoid", case(X * 3), case(X * 3, at={"alpha": 0.4, "beta": 0.3}))
row("HardSwish", case(X * 3))
row("Swish", case(X), case(X, at={"alpha": 1.5}))
row("Softplus", case(X), case(f32(-100, -20, 0, 20, 100)))
row("Softsign", case(X))
row("Mish", case(X))
row("SwiGLU", case(X, floats(3, 4, low=-1), reference=lambda a, b: [a / (1 + np.exp(-a)) * b]))
row("Gelu", case(X), case(X, at={"approximate": "tanh"}), case(floats(3, 4, dtype=HALF)))
row("Shrink", case(X), case(X, at={"lambd": 0.4, "bias": 0.1}))
row("Identity", case(X, dims=NAMED), case(ints(3)), case(bools(2, 2)), case(floats(0, 2)))
row("Dropout", case(X), case(X, at={"ratio": 0.3}, until=10), case(X, scalar(0.4), constant=(1,), outputs=2, since=12))

for name in ("Less", "Greater"):
    row(
        name,
        case(X, other_floats(3, 4)),
        case(ints(3, 4), ints(4), since=9),
        case(SPECIAL, SPECIAL[::-1].copy()),
        case(X, scalar(0.0)),
    )
for name in ("LessOrEqual", "GreaterOrEqual"):
    row(name, case(X, other_floats(3, 4)), case(ints(3, 4), ints(3, 4)), case(SPECIAL, SPECIAL[::-1].copy()))
row(
    "Equal",
    case(ints(4, 4, low=0, high=3), ints(4, low=0, high=3)),
    case(bools(5), bools(5, seed=1)),
    case(SPECIAL, SPECIAL, since=11),
)
for name in ("And", "Or", "Xor"):
    row(name, case(bools(3, 4), bools(4, seed=1)), case(bools(2), scalar(True, np.bool_)))
row("Not", case(bools(3, 4)))
for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    row(name, case(ints(3, 4), ints(4)), case(ints(5, low=0, high=255, dtype=np.uint8), scalar(85, np.uint8)))
row("BitwiseNot", case(ints(3, 4)), case(ints(5, low=0, high=255, dtype=np.uint8)))
for direction in ("LEFT", "RIGHT"):
    row(
        "BitShift",
        case(
            ints(6, low=0, high=200, dtype=np.uint8),
            ints(6, low=0, high=7, dtype=np.uint8),
            at={"direction": direction},
        ),
        case(ints(6, low=0, high=2**40, dtype=np.uint64), scalar(3, np.uint64), at={"direction": direction}),
    )
row("IsNaN", case(SPECIAL))
row(
    "IsInf",
    case(SPECIAL),
    case(SPECIAL, at={"detect_negative": 0}),
    case(SPECIAL, at={"detect_positive": 0}),
    case(SPECIAL, at={"detect_positive": 0, "detect_negative": 0}),
)
row(
    "Where",
    case(bools(3, 4), X, other_floats(3, 4), dims={0: ("N", None), 1: ("N", None), 2: ("N", None)}),
    case(bools(3, 1), floats(4), scalar(0.5)),
    case(bools(3), ints(3), ints(3, low=-3)),
)
FAR = f32(0.4, -0.6, 2.5, -2.5, 3.99, 100.7, -100.2, 0.0)
for target in (
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.FLOAT16,
    TensorProto.INT64,
    TensorProto.INT32,
    TensorProto.INT8,
    TensorProto.BOOL,
):
    row("Cast", case(FAR, at={"to": target}), case(ints(4, 3), at={"to": target}), case(bools(5), at={"to": target}))
row("Cast", case(np.abs(FAR), at={"to": TensorProto.UINT8}))
row("CastLike", case(FAR, scalar(0, np.int32)), case(ints(3), scalar(0, np.float32)), case(X, scalar(False, np.bool_)))
row(
    "CumSum",
    case(floats(3, 5), scalar(1, np.int64), constant=(1,), dims=NAMED),
    case(floats(3, 5), scalar(0, np.int32), at={"reverse": 1}, constant=(1,)),
    case(floats(5), scalar(-1, np.int32), at={"exclusive": 1}, constant=(1,)),
    case(ints(2, 4), scalar(1, np.int32), at={"exclusive": 1, "reverse": 1}, constant=(1,)),
)

FLAT = {"classes": REDUCTION}
for name in (
    "ReduceSum",
    "ReduceProd",
    "ReduceMax",
    "ReduceMin",
    "ReduceMean",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
):
    attribute_until = 11 if name == "ReduceSum" else 13
    data = floats(2, 3, 4)
    row(
        name,
        case(data, until=attribute_until, **FLAT),
        case(data, at={"axes": [1]}, until=attribute_until, dims={0: ("N", None, "M")}, **FLAT),
        case(data, at={"axes": [0, 2], "keepdims": 0}, until=attribute_until, **FLAT),
        case(data, at={"axes": [-1]}, since=11, until=attribute_until, **FLAT),
        case(data, since=attribute_until + 1, **FLAT),
        case(data, i64(1), since=attribute_until + 1, constant=(1,), dims={0: ("N", None, "M")}, **FLAT),
        case(data, i64(0, -1), at={"keepdims": 0}, since=attribute_until + 1, constant=(1,), **FLAT),
        case(data, None, at={"noop_with_empty_axes": 1}, since=attribute_until + 1, **FLAT),
        case(ints(2, 3, low=1, high=4, dtype=np.int32), **FLAT),
    )
for name in ("ReduceLogSum", "ReduceLogSumExp"):
    data = floats(2, 3, 4, low=0.5, high=3)
    row(
        name,
        case(data, at={"axes": [1], "keepdims": 0}, until=13, **FLAT),
        case(data, i64(-1), since=18, constant=(1,), dims={0: ("N", None, "M")}, **FLAT),
        case(data * 100, until=13, **FLAT),
    )
row("ReduceMax", case(bools(3, 4), i64(1), since=20, constant=(1,)))
row("ReduceMin", case(bools(3, 4), i64(1), since=20, constant=(1,)))
row("ReduceSum", case(floats(3, 0, 2), i64(1), since=13, constant=(1,), vacuous_ok=True))
row("ReduceMean", case(floats(4, 64, dtype=HALF, low=0.5), until=13, **FLAT))
TIES = f32(1, 3, 3, 0, 3, -1, 5, 5).reshape(2, 4)
for name in ("ArgMax", "ArgMin"):
    row(
        name,
        case(floats(3, 5)),
        case(TIES, at={"axis": 1, "keepdims": 0}),
        case(TIES, at={"axis": 1, "select_last_index": 1}, since=12),
        case(floats(2, 3, 4), at={"axis": -1}, since=11, dims={0: ("N", None, "M")}),
        case(ints(2, 6, dtype=np.int32), at={"axis": 1}),
    )

row("Gelu", case(X), domain=MICROSOFT)
row("QuickGelu", case(X), case(X, at={"alpha": 1.3}), domain=MICROSOFT)
row("FastGelu", case(X), case(X, floats(4)), domain=MICROSOFT)
row("BiasGelu", case(X, floats(4)), domain=MICROSOFT)
