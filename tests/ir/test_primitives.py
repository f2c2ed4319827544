"""The records of the primitives are complete and refuse wrong use."""

from __future__ import annotations

import numpy as np
import pytest
from luminal_onnx.ir.graph import TensorType
from luminal_onnx.ir.primitives import (
    PRIMITIVES,
    Primitive,
    gather_array,
    make_node,
    reduce_array,
    scatter_array,
)
from luminal_onnx.plan.dtypes import float32
from luminal_onnx.plan.errors import LuminalError


def test_there_are_the_eight_that_the_architecture_names():
    assert sorted(PRIMITIVES) == [
        "constant", "elementwise", "gather", "input", "iota", "reduce", "scatter", "view"
    ]
    for name, record in PRIMITIVES.items():
        assert record.name == name and len(record.doc) > 20


def test_an_incomplete_record_fails():
    with pytest.raises(LuminalError, match="'hole' is incomplete"):
        Primitive("hole", 1, (), lambda *a: None, None, "Does nothing.")


def test_a_node_needs_its_attributes_and_operands():
    x = make_node("input", (), {"name": "x"}, TensorType(float32, (2,))).output
    with pytest.raises(LuminalError, match="reduce has the attributes"):
        make_node("reduce", (x,), {"fn": "sum"})
    with pytest.raises(LuminalError, match="gather takes 2 operands, not 1"):
        make_node("gather", (x,), {})
    with pytest.raises(LuminalError, match="no primitive 'sort'"):
        make_node("sort", (x,), {})
    with pytest.raises(LuminalError, match="type to be stated"):
        make_node("iota", (), {"expr": 0})
    with pytest.raises(LuminalError, match="complex128 cannot be held"):
        make_node("constant", (), {"data": np.zeros(2, complex)})


def test_float16_sums_accumulate_in_float32():
    many = np.ones(5000, np.float16)  # in float16 the sum would stop at 2048
    assert reduce_array("sum", many, 1) == 5000
    assert scatter_array("add", np.zeros(1, np.float16), np.zeros(5000, np.int64), many)[0] == 5000


def test_float32_sums_along_any_memory_order_are_accurate():
    x = np.full((100_000, 4), 0.1, np.float32)  # summed naively in float32 this is off by some 1e-3 of itself
    for array in (np.ascontiguousarray(x.T), x.T):
        assert reduce_array("sum", array, 1).tolist() == [np.float32(100_000 * float(np.float32(0.1)))] * 4


def test_max_and_min_propagate_nan():
    x = np.float32([[1, np.nan], [2, 3]])
    assert np.isnan(reduce_array("max", x, 1)[0]) and reduce_array("max", x, 1)[1] == 3
    assert np.isnan(reduce_array("min", x, 1)[0]) and reduce_array("min", x, 1)[1] == 2


def test_gather_from_nothing_gives_zeros():
    assert gather_array(np.zeros((0, 3), np.float32), np.array([0, 5])).tolist() == [0, 0]


def test_scatter_leaves_its_operand_alone():
    dest = np.zeros(3, np.int32)
    result = scatter_array("none", dest, np.array([1, 1, 3]), np.array([5, 6, 7], np.int32))
    assert result.tolist() == [0, 6, 0] and dest.tolist() == [0, 0, 0]
