"""Matrix products, convolutions, pooling, normalization, softmax, quantization."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from op_table import HALF, MICROSOFT, REDUCTION, case, f32, floats, ints, other_floats, row, scalar

SUM = {"classes": REDUCTION}
X = floats(2, 3, 4)
N = {0: ("N", None, None)}
NCHW = floats(2, 4, 7, 6)
NHW = {0: ("N", None, "H", "W")}

row(
    "MatMul",
    case(floats(3, 4), other_floats(4, 5), dims={0: ("N", None)}, **SUM),
    case(floats(2, 3, 4), other_floats(4, 5), dims={0: ("N", "M", None)}, **SUM),
    case(floats(2, 1, 3, 4), other_floats(5, 4, 2), **SUM),
    case(floats(4), other_floats(4, 5), **SUM),
    case(floats(2, 3, 4), other_floats(4), **SUM),
    case(floats(4), other_floats(4), **SUM),
    case(floats(0, 4), other_floats(4, 5), **SUM),
    case(ints(3, 4, dtype=np.int32), ints(4, 2, dtype=np.int32), since=9),
)
row(
    "Gemm",
    case(floats(3, 4), other_floats(4, 5), floats(5), dims={0: ("N", None)}, **SUM),
    case(
        floats(4, 3), other_floats(5, 4), floats(3, 1), at={"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, **SUM
    ),
    case(floats(3, 4), other_floats(4, 5), since=11, **SUM),
    case(floats(3, 4), other_floats(4, 5), scalar(1.5), **SUM),
)
row(
    "Einsum",
    case(floats(2, 3, 4), other_floats(2, 4, 5), at={"equation": "bij,bjk->bik"}, **SUM),
    case(floats(3, 4), at={"equation": "ij->ji"}),
    case(floats(3, 4), at={"equation": "ij->"}, **SUM),
    case(floats(2, 3, 3), at={"equation": "...ii->...i"}),
    case(floats(2, 3), other_floats(3, 4), floats(4, 2), at={"equation": "ij,jk,kl->il"}, **SUM),
    case(floats(3), other_floats(4), at={"equation": "i,j"}),
    case(floats(2, 3, 4, 5), other_floats(2, 6, 4, 5), at={"equation": "nhwc, nqwc -> nhqw"}, **SUM),
    case(floats(2, 1, 3), other_floats(1, 4, 3), at={"equation": "...i,...i->..."}, **SUM),
)
U8, I8 = np.uint8, np.int8
row(
    "MatMulInteger",
    case(ints(3, 4, low=0, high=255, dtype=U8), ints(4, 2, low=0, high=255, dtype=U8)),
    case(
        ints(3, 4, low=0, high=255, dtype=U8), ints(4, 2, low=-128, high=127, dtype=I8), scalar(12, U8), scalar(-3, I8)
    ),
    case(
        ints(3, 4, low=0, high=255, dtype=U8),
        ints(4, 2, low=0, high=127, dtype=U8),
        scalar(7, U8),
        ints(2, low=0, high=9, dtype=U8),
    ),
)

W1, W2, W3 = other_floats(6, 4, 3), other_floats(6, 4, 3, 2), other_floats(2, 2, 2, 2, 3)
row(
    "Conv",
    case(floats(2, 4, 9), W1, floats(6), at={"pads": [1, 2], "strides": [2]}, **SUM),
    case(NCHW, W2, dims=NHW, **SUM),
    case(NCHW, W2, floats(6), at={"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}, **SUM),
    case(
        NCHW, other_floats(4, 1, 3, 3), at={"group": 4, "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}, dims=NHW, **SUM
    ),
    case(NCHW, other_floats(8, 2, 3, 3), at={"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}, **SUM),
    case(NCHW, W2, at={"auto_pad": "SAME_LOWER"}, **SUM),
    case(NCHW, W2, at={"auto_pad": "VALID"}, **SUM),
    case(floats(1, 2, 4, 5, 6), W3, at={"strides": [1, 2, 1]}, **SUM),
)
row(
    "ConvTranspose",
    case(floats(2, 3, 5), other_floats(3, 4, 3), at={"strides": [2]}, **SUM),
    case(
        floats(1, 4, 3, 4),
        other_floats(4, 2, 3, 3),
        floats(2),
        at={"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 0]},
        **SUM,
    ),
    case(floats(1, 4, 3, 4), other_floats(4, 1, 2, 2), at={"group": 2, "strides": [2, 2]}, dims=NHW, **SUM),
    case(floats(1, 4, 3, 4), other_floats(4, 2, 3, 3), at={"strides": [2, 3], "auto_pad": "SAME_UPPER"}, **SUM),
    case(floats(1, 4, 3, 4), other_floats(4, 2, 3, 3), at={"strides": [2, 2], "output_shape": [8, 8]}, **SUM),
    case(floats(1, 4, 3, 4), other_floats(4, 2, 2, 3), at={"dilations": [2, 1]}, **SUM),
)
row(
    "ConvInteger",
    case(
        ints(1, 2, 4, 4, low=0, high=255, dtype=U8),
        ints(3, 2, 3, 3, low=0, high=255, dtype=U8),
        scalar(9, U8),
        at={"pads": [1, 1, 1, 1]},
    ),
    case(ints(1, 2, 4, 4, low=0, high=255, dtype=U8), ints(3, 2, 2, 2, low=0, high=255, dtype=U8)),
)

row(
    "MaxPool",
    case(NCHW, at={"kernel_shape": [3, 2]}, dims=NHW),
    case(NCHW, at={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}, dims=NHW),
    case(NCHW, at={"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    case(NCHW, at={"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, since=10),
    case(NCHW, at={"kernel_shape": [2, 2], "dilations": [2, 3]}, since=10),
    case(NCHW, at={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}, outputs=2, since=8),
    case(NCHW, at={"kernel_shape": [2, 3], "storage_order": 1}, outputs=2, since=8),
    case(floats(1, 2, 9), at={"kernel_shape": [3]}),
    case(floats(1, 1, 4, 4, 4), at={"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
)
row(
    "AveragePool",
    case(NCHW, at={"kernel_shape": [3, 2]}, dims=NHW, **SUM),
    case(NCHW, at={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}, dims=NHW, **SUM),
    case(NCHW, at={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, since=7, **SUM),
    case(NCHW, at={"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}, **SUM),
    case(NCHW, at={"kernel_shape": [2, 2], "dilations": [2, 1]}, since=19, **SUM),
    case(NCHW, at={"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, since=19, **SUM),
)
row(
    "LpPool",
    case(NCHW, at={"kernel_shape": [2, 2]}, **SUM),
    case(NCHW, at={"kernel_shape": [3, 2], "p": 1, "strides": [2, 1]}, **SUM),
)
row("LpPool", case(NCHW, at={"kernel_shape": [2, 2], "p": 3}, **SUM))
for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
    row(name, case(NCHW, dims=NHW, **SUM), case(floats(2, 3, 5), **SUM))

PARAMETERS = tuple(floats(4, low=0.5, high=k) for k in (1.5, 2.5, 1.25, 3.5))
row(
    "BatchNormalization",
    case(NCHW, *PARAMETERS, constant=(1, 2, 3, 4), dims=NHW),
    case(floats(3, 4), *PARAMETERS, at={"epsilon": 0.01}),
)
row(
    "InstanceNormalization",
    case(NCHW, *PARAMETERS[:2], dims=NHW, **SUM),
    case(floats(2, 4, 5), *PARAMETERS[:2], at={"epsilon": 0.1}, **SUM),
)
row(
    "LayerNormalization",
    case(X, floats(4), other_floats(4), dims=N, **SUM),
    case(X, floats(3, 4), at={"axis": 1, "epsilon": 0.1}, outputs=3, **SUM),
    case(X, floats(4), other_floats(4), at={"axis": -1}, outputs=2, **SUM),
)
row("RMSNormalization", case(X, floats(4), dims=N, **SUM), case(X, floats(3, 4), at={"axis": 1, "epsilon": 0.1}, **SUM))
row("SimplifiedLayerNormalization", case(X, floats(4), dims=N, **SUM))
GROUPED = floats(2, 6, 4, 3)
row(
    "GroupNormalization",
    case(GROUPED, floats(3), other_floats(3), at={"num_groups": 3}, until=18, **SUM),
    case(GROUPED, floats(6), other_floats(6), at={"num_groups": 3}, since=21, dims=NHW, **SUM),
)
row(
    "LpNormalization",
    case(floats(3, 4)),
    case(floats(3, 4), at={"p": 1, "axis": 0}),
    case(np.zeros((2, 3), np.float32), vacuous_ok=True),
)
row(
    "LRN",
    case(NCHW, at={"size": 3}, dims=NHW, **SUM),
    case(NCHW, at={"size": 5, "alpha": 0.5, "beta": 0.6, "bias": 2.0}, **SUM),
)
row("MeanVarianceNormalization", case(NCHW, **SUM), case(NCHW, at={"axes": [1]}, **SUM))
for name in ("Softmax", "LogSoftmax", "Hardmax"):
    row(
        name,
        case(X, dims=N, vacuous_ok=True),
        case(X, at={"axis": 2}),
        case(X, at={"axis": 0}),
        case(X, at={"axis": -2}, since=11),
        case(f32(1, 3, 3, 2).reshape(2, 2) * 30),
        case(floats(3, 8, dtype=HALF)),
    )

ZERO_TIES = f32(0.5, 1.5, 2.5, -0.5, -1.5, 300, -300, 7).reshape(2, 4)
row(
    "QuantizeLinear",
    case(ZERO_TIES, scalar(1.0), scalar(3, U8)),
    case(ZERO_TIES, scalar(1.0)),
    case(floats(3, 4), scalar(0.02), scalar(-5, I8)),
    case(floats(2, 3, 4), f32(0.02, 0.05, 0.1), ints(3, dtype=I8), at={"axis": 1}, since=13),
    case(floats(2, 3), f32(0.02, 0.05, 0.1), ints(3, dtype=I8), at={"axis": -1}, since=13),
    case(
        floats(2, 4),
        f32(0.02, 0.05, 0.1, 0.04).reshape(2, 2),
        ints(2, 2, dtype=I8),
        at={"axis": 1, "block_size": 2},
        since=21,
    ),
    case(floats(3, 4), scalar(0.001), at={"output_dtype": 5}, since=21),
)
row(
    "DequantizeLinear",
    case(ints(3, 4, dtype=I8), scalar(0.5)),
    case(ints(3, 4, low=0, high=255, dtype=U8), scalar(0.1), scalar(100, U8)),
    case(ints(2, 3, 4, dtype=I8), f32(0.5, 0.1, 2), ints(3, dtype=I8), at={"axis": 1}, since=13),
    case(ints(3, 4, low=-(10**6), high=10**6, dtype=np.int32), scalar(0.001)),
    case(ints(2, 4, dtype=I8), f32(0.5, 1, 2, 3).reshape(2, 2), at={"axis": 1, "block_size": 2}, since=21),
    case(ints(3, 5, dtype=np.int8).astype(ml_dtypes.int4), scalar(0.5), constant=(0,), since=21),
)
row("DynamicQuantizeLinear", case(floats(3, 4), outputs=3), case(floats(3, 4, low=1, high=2), outputs=3))
row(
    "QLinearMatMul",
    case(
        ints(3, 4, low=0, high=255, dtype=U8), scalar(0.02), scalar(120, U8), ints(4, 5, low=-128, high=127, dtype=I8),
        scalar(0.01), scalar(2, I8), scalar(0.05), scalar(110, U8),
    ),
)  # fmt: skip
row(
    "QLinearConv",
    case(
        ints(1, 2, 5, 5, low=0, high=255, dtype=U8), scalar(0.02), scalar(120, U8),
        ints(3, 2, 3, 3, low=-128, high=127, dtype=I8),
        f32(0.01, 0.02, 0.03), np.zeros(3, I8), scalar(0.5), scalar(110, U8),
        ints(3, low=-500, high=500, dtype=np.int32),
        at={"pads": [1, 1, 1, 1]}, constant=(1, 2, 3, 4, 5, 6, 7, 8),
    ),
)  # fmt: skip

row(
    "FusedMatMul",
    case(floats(2, 4, 3), other_floats(2, 4, 5), at={"transA": 1, "alpha": 0.5}, **SUM),
    case(floats(2, 3, 4), other_floats(2, 5, 4), at={"transB": 1}, **SUM),
    domain=MICROSOFT,
)
ROW8 = (floats(2, 3, 8), other_floats(2, 3, 8), floats(8), other_floats(8))
row(
    "SkipLayerNormalization",
    case(*ROW8, **SUM),
    case(*ROW8, floats(8, low=-1), at={"epsilon": 0.1}, **SUM),
    domain=MICROSOFT,
)
row("SkipSimplifiedLayerNormalization", case(*ROW8[:3], **SUM), domain=MICROSOFT)
IDS = ints(2, 3, low=0, high=5, dtype=np.int32)
row(
    "EmbedLayerNormalization",
    case(
        IDS, ints(2, 3, low=0, high=2, dtype=np.int32), floats(5, 8), other_floats(4, 8), floats(2, 8), other_floats(8),
        floats(8), np.ones((2, 3), np.int32), outputs=2, **SUM,
    ),
    domain=MICROSOFT,
)  # fmt: skip
row(
    "MatMulNBits",
    case(
        floats(2, 40), ints(5, 3, 8, low=0, high=255, dtype=U8), floats(15, low=0.1, high=0.4),
        ints(5 * 2, low=0, high=255, dtype=U8),
        at={"K": 40, "N": 5, "bits": 4, "block_size": 16}, constant=(1, 2, 3), **SUM,
    ),
    case(
        floats(2, 32), ints(5, 2, 8, low=0, high=255, dtype=U8), floats(10, low=0.1, high=0.4),
        at={"K": 32, "N": 5, "bits": 4, "block_size": 16}, constant=(1, 2), **SUM,
    ),
    domain=MICROSOFT,
)  # fmt: skip

SCALES = (scalar(0.02), scalar(120, U8), scalar(0.05), scalar(110, U8), scalar(0.1), scalar(128, U8))
BYTES = ints(2, 6, low=0, high=255, dtype=U8)
for name in ("QLinearAdd", "QLinearMul"):
    inputs = (BYTES, *SCALES[:2], BYTES[:, ::-1].copy(), *SCALES[2:])
    row(name, case(*inputs, constant=(1, 2, 4, 5, 6, 7)), domain=MICROSOFT)
row("QLinearSigmoid", case(BYTES, *SCALES[:2], scalar(1 / 256), scalar(0, U8), constant=(1, 2, 3, 4)), domain=MICROSOFT)
row("QLinearLeakyRelu", case(BYTES, *SCALES[:4], at={"alpha": 0.3}, constant=(1, 2, 3, 4)), domain=MICROSOFT)
row(
    "QLinearGlobalAveragePool",
    case(ints(2, 3, 4, 5, low=0, high=255, dtype=U8), *SCALES[:4], constant=(1, 2, 3, 4)),
    domain=MICROSOFT,
)
row(
    "QLinearConcat",
    case(
        *SCALES[4:], BYTES, *SCALES[:2], BYTES[:, :2].copy(), *SCALES[2:4], at={"axis": 1}, constant=(0, 1, 3, 4, 6, 7)
    ),
    domain=MICROSOFT,
)
MATRIX = ints(4, 5, low=-128, high=127, dtype=I8)
row(
    "MatMulIntegerToFloat",
    case(
        BYTES[:, :4].copy(),
        MATRIX,
        scalar(0.02),
        floats(5, low=0.01, high=0.03),
        scalar(12, U8),
        None,
        floats(5),
        **SUM,
    ),
    domain=MICROSOFT,
)
row("DynamicQuantizeMatMul", case(floats(3, 4), MATRIX, scalar(0.02), None, floats(5), **SUM), domain=MICROSOFT)
row("QuantizeLinear", case(floats(3, 4), scalar(0.02), scalar(-5, I8)), domain=MICROSOFT)
row("DequantizeLinear", case(BYTES, scalar(0.1), scalar(100, U8)), domain=MICROSOFT)
row(
    "FusedConv",
    case(NCHW, W2, floats(6), at={"activation": "Relu"}, **SUM),
    case(NCHW, W2, floats(6), at={"activation": "LeakyRelu", "activation_params": [0.2]}, **SUM),
    domain=MICROSOFT,
)
row(
    "FusedGemm",
    case(floats(3, 4), other_floats(5, 4), floats(5), at={"transB": 1, "activation": "Tanh"}, **SUM),
    domain=MICROSOFT,
)
