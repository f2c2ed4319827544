"""Operators that make, move, index and resize tensors."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper
from op_table import REDUCTION, bools, case, f32, floats, i64, ints, other_floats, row, scalar

X = floats(2, 3, 4)
NCHW = floats(2, 3, 4, 5)
N = {0: ("N", None, None)}
N4 = {0: ("N", None, None, None)}
NHW = {0: ("N", None, "H", "W")}

row(
    "Reshape",
    case(X, i64(4, 6), constant=(1,)),
    case(X, i64(0, -1), constant=(1,), dims=N),
    case(X, i64(0, 2, 6), constant=(1,), dims=N),
    case(X, i64(-1), constant=(1,), dims={0: ("N", "M", None)}),
    case(scalar(1.5), i64(1, 1), constant=(1,)),
    case(f32(1.5), np.zeros(0, np.int64), constant=(1,)),
    case(floats(0, 3), i64(3, 0), at={"allowzero": 1}, constant=(1,), since=14),
)
row("Flatten", case(X, dims=N), case(X, at={"axis": 0}), case(X, at={"axis": 3}), case(X, at={"axis": -1}, since=11))
row("Transpose", case(X, dims=N), case(X, at={"perm": [1, 0, 2]}), case(ints(3, 2)), case(scalar(2.0)))
THIN = floats(1, 3, 1, 4)
row(
    "Squeeze",
    case(THIN, at={"axes": [0, 2]}, until=11),
    case(THIN, until=11),
    case(THIN, i64(0, -2), constant=(1,), since=13),
    case(THIN, since=13),
)
row(
    "Unsqueeze",
    case(X, at={"axes": [0, 3]}, until=11),
    case(X, at={"axes": [-1]}, since=11, until=11),
    case(X, i64(-1, 1), constant=(1,), since=13, dims=N),
    case(scalar(2.0), i64(0), constant=(1,), since=13),
)
row(
    "Expand",
    case(floats(3, 1), i64(2, 3, 4), constant=(1,)),
    case(floats(3, 4), i64(1, 1), constant=(1,), dims={0: ("N", None)}),
    case(scalar(2.0), i64(2, 3), constant=(1,)),
    case(floats(1, 3), i64(0, 3), constant=(1,)),
)
row(
    "Tile",
    case(X, i64(1, 2, 3), constant=(1,), dims=N),
    case(f32(1, 2), i64(4), constant=(1,)),
    case(X, i64(1, 0, 1), constant=(1,)),
)
row(
    "Concat",
    case(X, other_floats(2, 1, 4), at={"axis": 1}, dims={0: ("N", None, None), 1: ("N", "M", None)}),
    case(X, at={"axis": 0}),
    case(ints(2), ints(3), ints(1), at={"axis": 0}),
    case(floats(2, 0), floats(2, 3), at={"axis": -1}, since=11),
    case(bools(2), bools(3), at={"axis": 0}),
)
row(
    "Split",
    case(floats(4, 6), at={"axis": 1}, outputs=3, until=13),
    case(floats(4, 6), at={"axis": 1, "split": [1, 5]}, outputs=2, until=11),
    case(floats(4, 6), i64(1, 2, 3), at={"axis": -1}, outputs=3, constant=(1,), since=13, dims={0: ("N", None)}),
    case(floats(7, 2), at={"axis": 0, "num_outputs": 3}, outputs=3, since=18),
)
row(
    "Slice",
    case(X, at={"starts": [0, 1], "ends": [1, 10**9], "axes": [0, 2]}, until=1),
    case(X, at={"starts": [0, -2], "ends": [2, -1]}, until=1),
    case(X, i64(1, 0), i64(3, 2), constant=(1, 2), since=10),
    case(X, i64(-1), i64(-100), i64(2), i64(-1), constant=(1, 2, 3, 4), since=10, dims=N),
    case(X, i64(0), i64(2**63 - 1), i64(1), i64(2), constant=(1, 2, 3, 4), since=10, dims={0: ("N", "M", None)}),
    case(X, i64(5), i64(9), i64(2), constant=(1, 2, 3), since=10),
    case(X, i64(-3, -1), i64(-1, -4), i64(1, -1), i64(1, -2), constant=(1, 2, 3, 4), since=11),
)
row(
    "DepthToSpace",
    case(floats(1, 8, 2, 3), at={"blocksize": 2}),
    case(floats(1, 8, 2, 3), at={"blocksize": 2, "mode": "CRD"}, since=11),
)
row("SpaceToDepth", case(floats(1, 2, 4, 6), at={"blocksize": 2}))
row(
    "Shape",
    case(X, dims={0: ("N", None, "M")}),
    case(scalar(1.0)),
    case(X, at={"start": 1}, since=15),
    case(X, at={"start": -2, "end": -1}, since=15),
)
row("Size", case(X, dims={0: ("N", None, "M")}), case(scalar(1.0)))
row(
    "Constant",
    case(at={"value": helper.make_tensor("t", TensorProto.FLOAT, [2], [1.5, 2])}),
    case(at={"value_ints": [3, 4]}, since=12),
    case(at={"value_float": 2.5}, since=12),
)
row(
    "ConstantOfShape",
    case(i64(2, 3), constant=(0,), vacuous_ok=True),
    case(i64(2), at={"value": helper.make_tensor("t", TensorProto.INT64, [1], [7])}, constant=(0,)),
    case(np.zeros(0, np.int64), at={"value": helper.make_tensor("t", TensorProto.FLOAT, [1], [1.5])}, constant=(0,)),
)
row(
    "Range",
    case(scalar(2, np.int64), scalar(11, np.int64), scalar(3, np.int64), constant=(0, 1, 2)),
    case(scalar(5, np.int32), scalar(-4, np.int32), scalar(-2, np.int32), constant=(0, 1, 2)),
    case(scalar(0.5), scalar(3.0), scalar(0.75), constant=(0, 1, 2)),
    case(scalar(3, np.int64), scalar(3, np.int64), scalar(1, np.int64), constant=(0, 1, 2)),
)
row(
    "EyeLike",
    case(floats(3, 4)),
    case(ints(4, 3), at={"k": 1, "dtype": TensorProto.FLOAT}),
    case(floats(3, 3), at={"k": -1}),
)
row(
    "Trilu",
    case(floats(3, 4)),
    case(floats(2, 4, 3), scalar(1, np.int64), at={"upper": 0}, constant=(1,), dims={0: ("N", "M", None)}),
    case(ints(3, 3), scalar(-1, np.int64), constant=(1,)),
    case(bools(3, 3)),
)
for name in ("HannWindow", "HammingWindow", "BlackmanWindow"):
    row(name, case(scalar(10, np.int64), constant=(0,)), case(scalar(9, np.int64), at={"periodic": 0}, constant=(0,)))

row(
    "Gather",
    case(X, ints(3, 2, low=0, high=2), dims={0: (None, "M", None), 1: ("K", None)}),
    case(X, i64(-1, 0), at={"axis": 2}, since=11),
    case(X, scalar(1, np.int64), at={"axis": 1}, constant=(1,), dims=N),
    case(X, scalar(-2, np.int64), at={"axis": -1}, constant=(1,), since=11),
    case(X, scalar(1, np.int32), at={"axis": 1}),
    case(X, i64(1), at={"axis": 1}, constant=(1,)),
    case(X, np.zeros((0,), np.int64), at={"axis": 1}),
)
row(
    "GatherElements",
    case(X, ints(2, 2, 4, low=-3, high=3), at={"axis": 1}),
    case(ints(3, 3), ints(2, 3, low=0, high=3)),
)
row(
    "GatherND",
    case(X, i64(0, 1, 1, 2, 1, -1).reshape(3, 2)),
    case(X, i64(0, 1, 1).reshape(3, 1)),
    case(
        X,
        i64(0, 2, 1, 1).reshape(2, 2, 1),
        at={"batch_dims": 1},
        since=12,
        dims={0: ("N", None, None), 1: ("N", None, None)},
    ),
    case(X, i64(1, 2, 3)),
)
row(
    "ScatterND",
    case(X, i64(0, 1, 1, 2).reshape(2, 2), other_floats(2, 4)),
    case(floats(8), i64(1, -1, 3).reshape(3, 1), f32(9, 8, 7)),
    case(floats(8), i64(1, 1, 3).reshape(3, 1), f32(9, 8, 7), at={"reduction": "add"}, since=16),
    case(floats(8), i64(1, 1, 3).reshape(3, 1), f32(9, 8, 7), at={"reduction": "mul"}, since=16),
    case(floats(8), i64(1, 1, 3).reshape(3, 1), f32(9, -8, 7), at={"reduction": "max"}, since=18),
)
SCATTER = (floats(3, 4), ints(2, 4, low=-3, high=3), other_floats(2, 4))
DISTINCT = (floats(3, 4), i64(0, 1, 2, 0, 2, 0, -2, 1).reshape(2, 4), other_floats(2, 4))
row(
    "ScatterElements",
    case(*DISTINCT),
    case(floats(1, 5), i64(1, 3).reshape(1, 2), f32(8, 9).reshape(1, 2), at={"axis": 1}),
)
row("Scatter", case(floats(3, 4), np.abs(DISTINCT[1]) % 3, DISTINCT[2], vacuous_ok=True))
for reduction, since in (("add", 16), ("mul", 16), ("min", 18), ("max", 18)):
    row("ScatterElements", case(*SCATTER, at={"reduction": reduction}, since=since))
row(
    "OneHot",
    case(i64(0, 2, -1, 5), scalar(3, np.int64), f32(-1, 2), constant=(1,)),
    case(ints(2, 3, low=0, high=4), i64(4), i64(0, 1), at={"axis": 0}, constant=(1,)),
    case(f32(0, 2), scalar(3.0), f32(0, 1), at={"axis": 1}, constant=(1,)),
)
row(
    "ReverseSequence",
    case(floats(4, 3, 2), i64(1, 3, 4)),
    case(floats(3, 4, 2), i64(2, 4, 1), at={"batch_axis": 0, "time_axis": 1}),
)
TOPK = floats(3, 7)
TIED = f32(2, 5, 5, 1, 5, 2, 0)
row(
    "TopK",
    case(TOPK, at={"k": 3}, outputs=2, until=1),
    case(TOPK, i64(3), outputs=2, constant=(1,), since=10, dims={0: ("N", None)}),
    case(TIED, i64(4), outputs=2, constant=(1,), since=10),
    case(TIED, i64(4), at={"largest": 0}, outputs=2, constant=(1,), since=11),
    case(TOPK, i64(2), at={"axis": 0}, outputs=2, constant=(1,), since=10),
)

PADS = i64(0, 1, 2, 1, 0, 1)
for mode in ("constant", "reflect", "edge"):
    row(
        "Pad",
        case(X, at={"mode": mode, "pads": PADS.tolist()}, until=2),
        case(X, PADS, at={"mode": mode}, constant=(1,), since=11, dims=N),
        case(floats(2, 3, 4), i64(0, 1, 0, 2), None, i64(1, -1), at={"mode": mode}, constant=(1, 3), since=18),
    )
row(
    "Pad",
    case(X, at={"pads": PADS.tolist(), "value": 1.5}, until=2),
    case(X, PADS, scalar(2.5), constant=(1,), since=11),
    case(X, i64(0, -1, 0, 0, 0, -2), scalar(2.5), constant=(1, 2), since=11),
    case(ints(4), i64(3, 2), scalar(9, np.int64), constant=(1, 2), since=11),
    case(X, i64(0, 1, 2, 1, 0, 3), at={"mode": "wrap"}, constant=(1,), since=19),
)
row(
    "CenterCropPad",
    case(floats(5, 4), i64(3, 7), constant=(1,)),
    case(floats(5, 4, 3), i64(8, 2), at={"axes": [0, -1]}, constant=(1,)),
    case(floats(5, 6), i64(2, 3), constant=(1,)),
)

UP = f32(1, 1, 2, 2)
row(
    "Upsample",
    case(NCHW, at={"scales": UP.tolist()}, until=7, dims=NHW),
    case(NCHW, UP, constant=(1,), since=9),
    case(NCHW, f32(1, 1, 1.7, 2.3), at={"mode": "linear"}, constant=(1,), since=9, classes=REDUCTION),
)
row(
    "Resize",
    case(NCHW, UP, constant=(1,), until=10, dims=NHW),
    case(NCHW, f32(1, 1, 0.6, 0.5), constant=(1,), until=10),
    case(NCHW, f32(1, 1, 1.7, 2.3), at={"mode": "linear"}, constant=(1,), until=10, classes=REDUCTION),
    case(
        NCHW,
        None,
        UP,
        at={"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        constant=(2,),
        since=13,
        dims=NHW,
    ),
    case(NCHW, None, UP, constant=(2,), since=13, dims=NHW),
    case(NCHW, None, f32(1, 1, 0.5, 2.6), at={"mode": "linear"}, constant=(2,), since=13, classes=REDUCTION),
    case(NCHW, None, UP, at={"mode": "linear"}, constant=(2,), since=13, classes=REDUCTION, dims=NHW),
    case(NCHW, None, None, i64(2, 3, 9, 3), at={"mode": "cubic"}, constant=(3,), since=13, classes=REDUCTION),
    case(
        NCHW,
        None,
        None,
        i64(2, 3, 9, 3),
        at={"mode": "cubic", "exclude_outside": 1},
        constant=(3,),
        since=13,
        classes=REDUCTION,
    ),
    case(
        NCHW, None, None, i64(7, 8), at={"mode": "linear", "axes": [2, 3]}, constant=(3,), since=18, classes=REDUCTION
    ),
)
for coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
    for mode in ("nearest", "linear"):
        attributes = {"coordinate_transformation_mode": coordinates, "mode": mode}
        row(
            "Resize", case(NCHW, None, None, i64(2, 3, 7, 3), at=attributes, constant=(3,), since=13, classes=REDUCTION)
        )
for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
    attributes = {"nearest_mode": nearest, "coordinate_transformation_mode": "asymmetric"}
    row("Resize", case(NCHW, None, f32(1, 1, 2, 0.5), at=attributes, constant=(2,), since=13))
row(
    "Resize",
    case(
        NCHW,
        None,
        f32(1, 1, 1.5, 0.7),
        at={"coordinate_transformation_mode": "half_pixel_symmetric", "mode": "linear"},
        constant=(2,),
        since=19,
        classes=REDUCTION,
    ),
)


NO_ROI = np.zeros(0, np.float32)  # opset 11 wants the input even where the mode does not look at it
row(
    "Resize",
    case(NCHW, NO_ROI, UP, constant=(1, 2), since=11, dims=NHW),
    case(NCHW, NO_ROI, f32(1, 1, 0.5, 2.6), at={"mode": "linear"}, constant=(1, 2), since=11, classes=REDUCTION),
    case(NCHW, NO_ROI, NO_ROI, i64(2, 3, 9, 3), at={"mode": "cubic"}, constant=(1, 2, 3), since=11, classes=REDUCTION),
)

IMAGE, GRID = floats(2, 3, 5, 6), floats(2, 4, 3, 2, low=-1.3, high=1.3)
for align in (0, 1):
    for padding in ("zeros", "border", "reflection"):
        shared = {"align_corners": align, "padding_mode": padding}
        row("GridSample", case(IMAGE, GRID, at={**shared, "mode": "bilinear"}, until=16, classes=REDUCTION))
        row("GridSample", case(IMAGE, GRID, at={**shared, "mode": "bicubic"}, until=16, classes=REDUCTION))
        row(
            "GridSample",
            case(
                IMAGE,
                GRID,
                at={**shared, "mode": "linear"},
                since=20,
                dims={**NHW, 1: ("N", "A", "B", None)},
                classes=REDUCTION,
            ),
        )
        row("GridSample", case(IMAGE, GRID, at={**shared, "mode": "nearest"}, since=20))
row(
    "GridSample", case(floats(1, 2, 3, 4, 5), floats(1, 2, 2, 3, 3), at={"mode": "linear"}, since=20, classes=REDUCTION)
)
for align in (0, 1):
    row(
        "AffineGrid",
        case(floats(2, 2, 3), i64(2, 1, 4, 5), at={"align_corners": align}, constant=(1,), classes=REDUCTION),
    )
row("AffineGrid", case(floats(2, 3, 4), i64(2, 1, 2, 4, 3), constant=(1,), classes=REDUCTION))
row(
    "Col2Im",
    case(floats(1, 12, 6), i64(3, 4), i64(2, 2), constant=(1, 2), classes=REDUCTION),
    case(
        floats(2, 8, 9),
        i64(5, 5),
        i64(2, 2),
        at={"pads": [1, 1, 0, 1], "strides": [2, 2]},
        constant=(1, 2),
        classes=REDUCTION,
    ),
    case(floats(1, 8, 9), i64(5, 5), i64(2, 2), at={"dilations": [2, 2]}, constant=(1, 2), classes=REDUCTION),
)
TAKEN = i64(5, 7, 13, 15).reshape(1, 1, 2, 2)
row("MaxUnpool", case(floats(1, 1, 2, 2), TAKEN, at={"kernel_shape": [2, 2], "strides": [2, 2]}))
row("CumProd", case(floats(3, 4), scalar(1, np.int64), at={"exclusive": 1}, constant=(1,)))
row(
    "NonZero",
    case(f32(0, 1, 0, 2).reshape(2, 2), constant=(0,)),
    case(ints(3, 1, 4, low=-1, high=2), dims={0: ("N", None, "M")}),
)
REPEATED = ints(3, 4, low=0, high=3)
ROWS = ints(5, 2, 2, low=0, high=2)
row(
    "Unique",
    case(REPEATED, outputs=4, dims={0: ("N", None)}),
    case(REPEATED, at={"sorted": 0}, outputs=4),
    case(ROWS.astype(np.float32), at={"axis": 0}, outputs=4, dims={0: ("N", None, None)}),
    case(ROWS, at={"axis": -1, "sorted": 0}, outputs=4),
    case(ROWS.transpose(1, 0, 2).astype(np.int8), at={"axis": 1}, outputs=4),
    case(f32(2.5), outputs=4),
)
row(
    "NonMaxSuppression",
    case(
        floats(1, 6, 4, low=0, high=2), floats(1, 2, 6, low=0, high=1), i64(3), f32(0.2), f32(0.3), constant=(2,),
    ),
    case(
        floats(2, 6, 4, low=0.5, high=2), floats(2, 1, 6, low=0, high=1), i64(9), f32(0.1),
        at={"center_point_box": 1}, constant=(2,),
    ),
)
row(
    "Compress",
    case(floats(3, 4), np.array([False, True, True]), at={"axis": 0}, dims={0: ("N", None), 1: ("N",)}),
    case(floats(3, 4), np.array([False, True, True]), at={"axis": 0}, constant=(1,)),
    case(floats(3, 4), np.array([False, True, True, False, True]), constant=(1,)),
)
row(
    "TensorScatter",
    case(floats(2, 3, 5, 4), other_floats(2, 3, 2, 4), i64(1, 3)),
    case(floats(2, 3, 5, 4), other_floats(2, 3, 2, 4), i64(4, 0), at={"mode": "circular"}),
)
