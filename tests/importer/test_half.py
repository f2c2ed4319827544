"""Operators on float16: as exact as one rounding of what onnxruntime computes in float32 from the same numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import op_table
from luminal_onnx.importer import load, registry
from luminal_onnx.ir import interpreter
from test_operators import TABLE, one_node_model, opset_of_version, reference_outputs
from tolerances import ELEMENTWISE, REDUCTION, assert_close

# Operators whose other inputs must stay float32 by the schema, or whose output type does not follow the input
OTHER_TYPES = set(
    "Cast CastLike ConstantOfShape Constant Range EyeLike OneHot GroupQueryAttention QuantizeLinear DequantizeLinear "
    "DynamicQuantizeLinear MatMulNBits MatMulIntegerToFloat DynamicQuantizeMatMul Resize Upsample QLinearMatMul "
    "QLinearConv QLinearConcat".split()
)


def newest() -> list[registry.Operator]:
    return list({(o.domain, o.name): o for o in registry.registered()}.values())


def in_half(array: np.ndarray | None) -> np.ndarray | None:
    return array.astype(np.float16) if array is not None and array.dtype == np.float32 else array


def is_suitable(case: op_table.Case) -> bool:
    arrays = [array for array in case.inputs if array is not None]
    return bool(arrays) and arrays[0].dtype == np.float32 and np.isfinite(arrays[0]).all() and case.reference is None


SUBJECTS = [
    pytest.param(operator, k, id=f"{operator.domain}{operator.name}-{k}")
    for operator in newest()
    if operator.name not in OTHER_TYPES
    for k, case in enumerate(TABLE.get((operator.domain, operator.name), []))
    if case.since <= operator.since <= case.until and is_suitable(case)
]


@pytest.mark.parametrize("operator, number", SUBJECTS)
def test_float16_is_as_exact_as_one_rounding(operator: registry.Operator, number: int) -> None:
    case = TABLE[operator.domain, operator.name][number]
    half = replace(case, inputs=tuple(map(in_half, case.inputs)), dims={})
    wide = replace(
        half, inputs=tuple(a if a is None or a.dtype != np.float16 else a.astype(np.float32) for a in half.inputs)
    )
    opset = opset_of_version(operator.since) if operator.domain == "" else 1
    feeds = {f"x{k}": a for k, a in enumerate(wide.inputs) if a is not None and k not in wide.constant}
    expected = reference_outputs(operator.domain, operator.name, opset, wide, feeds)
    graph = load(one_node_model(operator.domain, operator.name, opset, half, symbolic=False)).graph
    narrow = {name: in_half(array) for name, array in feeds.items()}
    classes = REDUCTION if case.classes is REDUCTION else ELEMENTWISE
    for got, want in zip(interpreter.run(graph, narrow), expected, strict=True):
        with np.errstate(over="ignore"):
            rounded = want.astype(got.dtype) if got.dtype == np.float16 else want
        assert_close(got, rounded, classes, vacuous_ok=True)
