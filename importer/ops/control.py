"""If, where the condition is known when the model is imported: the branch taken is imported in its place."""

from __future__ import annotations

import onnx

from ...ir.graph import Value
from ..context import NodeBuilder
from ..registry import onnx_op


@onnx_op("If", 1, 11, 13, 16, 19, 21, 23, 24, 25)
def if_(
    b: NodeBuilder, condition: Value, *, then_branch: onnx.GraphProto, else_branch: onnx.GraphProto
) -> tuple[Value, ...]:
    known = b.known(condition)
    if known is None or known.dtype == object:
        b.fail("its condition depends on data that is only known when the model runs; such branches are not supported")
    return b.import_subgraph(then_branch if known.reshape(-1)[0] else else_branch)
