"""Values with more operands than one kernel reads are still computed: a chain of many joined tensors."""

from __future__ import annotations

from search_graphs import Net
from search_tools import Oracle, built, space_of

from luminal_onnx.ir.egraph.cuts import MOST_LEAVES
from luminal_onnx.ir.graph import Value
from luminal_onnx.plan.dtypes import float32


def test_more_tensors_can_be_joined_than_one_kernel_reads():
    def many(net: Net) -> Value:
        parts = [net.input(f"x{number}", float32, (2, 3)) for number in range(MOST_LEAVES + 9)]
        return net.concat([net("exp", part) for part in parts], 0)

    graph, _ = built(many)
    Oracle(graph).check(space_of(graph).best().program)
