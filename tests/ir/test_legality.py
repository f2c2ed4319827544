"""Hand-broken graphs and regions: each is refused, and the message says what is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.graph import Graph, Node, TensorType, Value
from luminal_onnx.ir.legality import check, check_region, region_violations, violations
from luminal_onnx.ir.region import Broadcast, Constant, Elementwise, Gather, Iota, Load, Reduce, Region
from luminal_onnx.plan import view as views
from luminal_onnx.plan.dims import Range, index_symbol, symbol
from luminal_onnx.plan.dtypes import bool_, float32, float64, int32, int64
from luminal_onnx.plan.errors import LuminalError
from luminal_onnx.plan.view import View

N = symbol("n")
F = TensorType(float32, (N, 3))


def node(op, inputs=(), attrs=None, type=F, **more) -> Value:
    """Return a value of a node that nothing has checked."""
    return Value(Node(op, tuple(inputs), attrs or {}, (type,), **more))


X = node("input", attrs={"name": "x"})
PLACE = node("iota", attrs={"expr": index_symbol(0)}, type=TensorType(int64, (N, 3)))


def graph(output: Value, inputs=(X,)) -> Graph:
    names = [value.node.attrs.get("name", "?") for value in inputs]
    return Graph("broken", list(inputs), [output], names, ["y"], {"n": Range(1, 2, 8)})


def exp(operand: Value = X, type: TensorType = F) -> Value:
    return node("elementwise", [operand], {"fn": "exp"}, type)


def viewed(view: View, type: TensorType | None = None, operand: Value = X) -> Value:
    return node("view", [operand], {"view": view}, type or TensorType(operand.dtype, view.out_shape))


def cyclic() -> Graph:
    inner = exp()
    outer = exp(inner)
    object.__setattr__(inner.node, "inputs", (outer,))
    return graph(outer)


def renamed(**changes) -> Graph:
    made = graph(exp())
    for name, value in changes.items():
        setattr(made, name, value)
    return made


OTHER = TensorType(float32, (N, 4))
BROKEN = {
    "cycle: elementwise exp": cyclic,
    "unknown primitive 'sort'": lambda: graph(node("sort", [X])),
    "no scalar function 'frob'": lambda: graph(node("elementwise", [X], {"fn": "frob"})),
    "add takes 2 operands, not 1": lambda: graph(node("elementwise", [X], {"fn": "add"})),
    "1 operands, expected 2": lambda: graph(node("gather", [X])),
    r"attributes \['fn'\], expected \['count', 'fn'\]": lambda: graph(node("reduce", [X], {"fn": "sum"})),
    r"shape \[n, 4\], expected \[n, 3\]": lambda: graph(exp(type=OTHER)),
    "dtype float64, expected float32": lambda: graph(exp(type=TensorType(float64, F.shape))),
    "operands of one dtype": lambda: graph(node("elementwise", [X, PLACE], {"fn": "add"})),
    "operands of one shape": lambda: graph(
        node("elementwise", [X, viewed(views.transpose(F.shape, [1, 0]))], {"fn": "add"})
    ),
    "does not take bool": lambda: graph(
        node("elementwise", [node("elementwise", [X], {"fn": "isnan"}, TensorType(bool_, F.shape))], {"fn": "neg"})
    ),
    "bool condition": lambda: graph(node("elementwise", [PLACE, X, X], {"fn": "where"})),
    "over 3 trailing axes": lambda: graph(node("reduce", [X], {"fn": "sum", "count": 3}, TensorType(float32, ()))),
    "over 0 trailing axes": lambda: graph(node("reduce", [X], {"fn": "sum", "count": 0})),
    "no reduction 'median'": lambda: graph(node("reduce", [X], {"fn": "median", "count": 1})),
    "was made for the shape": lambda: graph(viewed(views.identity((3, N)), TensorType(float32, (3, N)))),
    "uses i2, but there are 2 axes": lambda: graph(viewed(View(F.shape, F.shape, (index_symbol(2), 0)))),
    "fills float32 with 0, a int": lambda: graph(viewed(views.pad(F.shape, [1, 0], [0, 0], 0))),
    "iota makes int64, not int32": lambda: graph(node("iota", attrs={"expr": 0}, type=TensorType(int32, (2,)))),
    "the expression i3 uses i3": lambda: graph(
        node("iota", attrs={"expr": index_symbol(3)}, type=TensorType(int64, (2,)))
    ),
    "holds a NumPy array, not list": lambda: graph(node("constant", attrs={"data": [1.0]})),
    "integer index": lambda: graph(node("gather", [X, X])),
    "index and source of one shape": lambda: graph(
        node("scatter", [X, PLACE, viewed(views.transpose(F.shape, [1, 0]))], {"fn": "add"})
    ),
    "no scatter 'mean'": lambda: graph(node("scatter", [X, PLACE, X], {"fn": "mean"})),
    "dangling input": lambda: graph(exp(), inputs=()),
    "dangling operand: it reads output 1": lambda: graph(exp(Value(X.node, 1))),
    "output 'y' is output 2": lambda: graph(Value(X.node, 2)),
    "input 'y' is a elementwise node": lambda: renamed(inputs=[exp()], input_names=["y"]),
    "input 'z' is the node of input 'x'": lambda: renamed(input_names=["z"]),
    "2 outputs have 1 names": lambda: renamed(outputs=[X, X]),
    "output name 'y' stands twice": lambda: renamed(outputs=[X, X], output_names=["y", "y"]),
    "dim 'n' has no range": lambda: renamed(ranges={"m": Range(1, 1, 1)}),
    "negative extent -2": lambda: graph(node("iota", attrs={"expr": 0}, type=TensorType(int64, (-2,)))),
    "depends on an index variable": lambda: graph(
        node("iota", attrs={"expr": 0}, type=TensorType(int64, (index_symbol(0),)))
    ),
    "is a float, expected a dim": lambda: graph(node("iota", attrs={"expr": 0}, type=TensorType(int64, (2.0,)))),
    "2 outputs, expected 1": lambda: graph(Value(Node("elementwise", (X,), {"fn": "exp"}, (F, F)))),
    "dtype >f4 cannot be held": lambda: graph(
        node("constant", attrs={"data": np.zeros(2, ">f4")}, type=TensorType(float32, (2,)))
    ),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_graph_is_refused_by_name(message):
    with pytest.raises(LuminalError, match=message):
        check(BROKEN[message]())


def test_all_violations_are_listed():
    first = exp(type=OTHER)
    second = node("reduce", [X], {"fn": "median", "count": 1}, origin=("Reduce_5",))
    broken = graph(first)
    broken.outputs.append(second)
    broken.output_names.append("z")
    found = violations(broken)
    assert len(found) == 2 and "Reduce_5" in found[1]


def test_a_good_graph_passes():
    b = Builder("good", {"n": Range(1, 2, 8)})
    x = b.input("x", float32, (N, 3))
    b.output("y", b.softmax(b.pad(x, [0, 1], [1, 0], 1), 1))
    check(b.graph)


ROWS, FULL = (N,), (N, 4)
ID = views.identity(FULL)
OPERAND = TensorType(float32, FULL)
SOFTMAX = Region(
    nodes=(
        Load(0, ID, float32, FULL),
        Reduce("max", (0,), (4,), float32, ROWS),
        Broadcast((1,), (4,), float32, FULL),
        Elementwise("sub", (0, 2), float32, FULL),
        Elementwise("exp", (3,), float32, FULL),
        Reduce("sum", (4,), (4,), float32, ROWS),
        Broadcast((5,), (4,), float32, FULL),
        Elementwise("div", (4, 6), float32, FULL),
    ),
    stores=(7,),
    operands=(OPERAND,),
)


def changed(position: int, **changes) -> Region:
    nodes = list(SOFTMAX.nodes)
    nodes[position] = replace(nodes[position], **changes)
    return replace(SOFTMAX, nodes=tuple(nodes))


def only(*nodes, operands=()) -> Region:
    return Region(nodes, (len(nodes) - 1,), operands)


BROKEN_REGIONS = {
    "operand 7 does not come before it": lambda: changed(3, args=(0, 7)),
    "no scalar function 'frob'": lambda: changed(4, fn="frob"),
    "takes 2 operands, not 1": lambda: changed(3, args=(0,)),
    r"operand spaces \[n, 4\], \[n\]": lambda: changed(3, args=(0, 1)),
    "no reduction 'mean'": lambda: changed(1, fn="mean"),
    r"operand space \[n, 4\], expected \[n\] \+ \[5\]": lambda: changed(1, extents=(5,)),
    r"operand space \[n\] \+ \[5\] is not \[n, 4\]": lambda: changed(2, extents=(5,)),
    "float64 from float32": lambda: changed(5, dtype=float64),
    "dtype float64, expected float32": lambda: changed(3, dtype=float64),
    "dtype float64 of an operand of float32": lambda: changed(0, dtype=float64),
    "slot 1 of 1 operands": lambda: changed(0, slot=1),
    r"the view makes \[4, n\]": lambda: changed(0, view=views.transpose(FULL, [1, 0])),
    r"the view reads \[n\]": lambda: changed(0, view=views.insert_axes(ROWS, [1])),
    "there is no node 8": lambda: replace(SOFTMAX, stores=(8,)),
    "stores: none": lambda: replace(SOFTMAX, stores=()),
    "for 2 operands": lambda: replace(SOFTMAX, operands=(OPERAND, OPERAND)),
    "3 bytes of a float32": lambda: only(Constant(b"abc", float32, ROWS)),
    "dtype int32, expected int64": lambda: only(Iota(0, int32, ROWS)),
    "uses i1, but there are 1 axes": lambda: only(Iota(index_symbol(1), int64, ROWS)),
    "index of float32, expected integers": lambda: only(
        Constant(bytes(4), float32, ROWS), Gather(0, (0,), float32, ROWS), operands=(OPERAND,)
    ),
    r"index space \[n\], expected \[n, 4\]": lambda: only(
        Iota(0, int64, ROWS), Gather(0, (0,), float32, FULL), operands=(OPERAND,)
    ),
    "1 operands, expected 0": lambda: only(
        Iota(0, int64, ROWS), Iota(0, int64, ROWS, (0,))
    ),
}


@pytest.mark.parametrize("message", BROKEN_REGIONS)
def test_a_broken_region_is_refused_by_name(message):
    with pytest.raises(LuminalError, match=message):
        check_region(BROKEN_REGIONS[message]())


def test_a_good_region_passes():
    assert region_violations(SOFTMAX) == []
