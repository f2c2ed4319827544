"""Graphs print one line a node and read back to equal graphs."""

from __future__ import annotations

import numpy as np
import pytest
from luminal_onnx.ir.builder import Builder
from luminal_onnx.ir.graph import Graph
from luminal_onnx.ir.interpreter import run
from luminal_onnx.ir.legality import check
from luminal_onnx.ir.printer import constants_of, format_graph, parse_graph
from luminal_onnx.plan.dims import Range, index_symbol, symbol
from luminal_onnx.plan.dtypes import bool_, float16, float32, int64
from luminal_onnx.plan.errors import LuminalError


def varied() -> Graph:
    """Return a graph that has every kind of node, fills of every kind, and names that need quoting."""
    b = Builder('odd "name" : here', {"n": Range(1, 2, 8), "seq, len": Range(1, 4, 9)})
    n, length = symbol("n"), symbol("seq, len")
    x = b.input("x : y", float32, (n, length))
    flag = b.input("flag", bool_, (3,))
    b.origin = ('Conv "1" # : ', "Relu")
    y = b("add", b.pad(x, [1, 0], [0, 2], -np.inf), 1e-5)
    b.output("padded # 1", y)
    b.output("nan", b.pad(b.cast(x, float16), [0, 1], [0, 0], np.nan))
    b.origin = ()
    b.output("flags", b.pad(flag, [1], [1], True))
    b.output("rows", b.take(b.constant(np.arange(12.0, dtype=np.float32).reshape(4, 3)), b.argmax(x, 1), 0))
    b.output("flat", b.reshape(b.reshape(x, (length, n)), (n * length,)))
    where = b.iota((n, length), index_symbol(0) * length + index_symbol(1) // 2)
    b.output("scattered", b.scatter_flat(x, where, x, "max"))
    b.output("mean", b.mean(x, [0, 1]))
    b.output("same", x)
    return b.graph


def test_text_and_graph_go_round():
    graph = varied()
    text = format_graph(graph)
    again = parse_graph(text, constants_of(graph))
    check(again)
    assert format_graph(again) == text
    assert again.ranges == graph.ranges and again.input_names == graph.input_names
    assert [node.attrs.keys() for node in again.nodes()] == [node.attrs.keys() for node in graph.nodes()]
    for ours, theirs in zip(graph.nodes(), again.nodes(), strict=True):
        assert (ours.op, ours.types, ours.origin) == (theirs.op, theirs.types, theirs.origin)
        if ours.op == "view":
            assert ours.attrs["view"] == theirs.attrs["view"]
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    feeds = [x, np.array([True, False, True])]
    for ours, theirs in zip(run(graph, feeds), run(again, feeds), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_text_is_one_readable_line_a_node():
    b = Builder("tiny", {"n": Range(1, 8, 64)})
    x = b.input("x", float32, (symbol("n"), 3))
    b.origin = ("Scale_1",)
    b.output("y", b("mul", x, 0.5))
    assert format_graph(b.graph) == (
        'graph "tiny"\n'
        'dim "n" 1 8 64\n'
        '%0 = input "x" : float32[n, 3]\n'
        '%1 = constant c0 (0.5) : float32[]  # ["Scale_1"]\n'
        '%2 = view %1 [] : float32[n, 3]  # ["Scale_1"]\n'
        '%3 = elementwise mul %0 %2 : float32[n, 3]  # ["Scale_1"]\n'
        'output "y" %3\n'
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%0 = elementwise exp %9 : float32[2]", "line 2.*%9"),
        ("%0 = constant w : float32[2]", "line 2.*'w'"),
        ("%0 = iota i0 : float32[2]", "iota makes int64"),
        ("nonsense here", "unknown keyword 'nonsense'"),
    ],
)
def test_what_cannot_be_read_is_named(line, message):
    with pytest.raises(LuminalError, match=message):
        parse_graph('graph "g"\n' + line, {})


def test_a_stated_type_must_be_the_inferred_one():
    b = Builder()
    b.output("y", b.reduce("sum", b.input("x", int64, (2, 3)), [1]))
    text = format_graph(b.graph).replace("reduce sum 1 %0 : int64[2]", "reduce sum 1 %0 : int64[3]")
    with pytest.raises(LuminalError, match=r"the node makes int64\[2\]"):
        parse_graph(text, {})
