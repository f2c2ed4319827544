"""What must hold for every graph and every region. Checked before and after each pass in tests, and by the search.

`check` and `check_region` raise one LuminalError that lists every violation; `violations` and `region_violations`
return them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..plan.dims import Dim, Expr, index_axes, symbols
from ..plan.dtypes import DType, int64
from ..plan.errors import LuminalError
from ..plan.view import View
from .control import ATTRIBUTES, BRANCH, bodies, control_types, differing
from .graph import Graph, Node, node_symbols
from .primitives import PRIMITIVES
from .region import Broadcast, Constant, Elementwise, Gather, Iota, Load, Reduce, Region, RegionNode
from .scalars import REDUCTIONS, result_dtype


def check(graph: Graph) -> None:
    """Raise LuminalError if the graph breaks a rule, naming every node that does and how."""
    _raise(f"graph {graph.name!r}", violations(graph))


def check_region(region: Region) -> None:
    """Raise LuminalError if the region breaks a rule, naming every node that does and how."""
    _raise("region", region_violations(region))


def _raise(what: str, found: Sequence[str]) -> None:
    if found:
        raise LuminalError(f"{what} is not legal:\n" + "\n".join(f"  {line}" for line in found))


def violations(graph: Graph) -> list[str]:
    """Return one line for each rule that the graph breaks."""
    cycle = _cycle(graph)
    if cycle is not None:  # nothing else can be said of a graph that has no order
        return [f"cycle: {_node_text(cycle)} depends on itself"]
    found: list[str] = []
    nodes = graph.nodes()
    _check_signature(graph, found)
    _check_sizes(graph, found)
    for node in nodes:
        found.extend(f"{_node_text(node)}: {problem}" for problem in _node_problems(node, graph))
    listed = {id(value.node) for value in graph.inputs}
    for node in nodes:
        if node.op == "input" and id(node) not in listed:
            found.append(f"{_node_text(node)}: dangling input, it is used but not in the graph's inputs")
    return found


def _cycle(graph: Graph) -> Node | None:
    """Return a node that depends on itself, if there is one."""
    state: dict[int, int] = {}  # 1 while its operands are being visited, 2 when done
    for root in (*graph.inputs, *graph.outputs):
        stack = [(root.node, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                state[id(node)] = 2
            elif state.get(id(node)) == 1:
                return node
            elif id(node) not in state:
                state[id(node)] = 1
                stack.append((node, True))
                below = [*(value.node for value in node.inputs), *graph.size_nodes(node)]
                stack.extend((other, False) for other in below if state.get(id(other)) != 2)
    return None


def _check_signature(graph: Graph, found: list[str]) -> None:
    for kind, values, names in (
        ("input", graph.inputs, graph.input_names),
        ("output", graph.outputs, graph.output_names),
    ):
        if len(values) != len(names):
            found.append(f"signature: {len(values)} {kind}s have {len(names)} names")
        repeated = {name for name in names if names.count(name) > 1}
        found.extend(f"signature: the {kind} name {name!r} stands twice" for name in sorted(repeated))
    for value, name in zip(graph.inputs, graph.input_names):
        if value.node.op != "input":
            found.append(f"signature: the input {name!r} is a {value.node.op} node")
        elif value.node.attrs.get("name") != name:
            found.append(f"signature: the input {name!r} is the node of input {value.node.attrs.get('name')!r}")
    for value, name in zip(graph.outputs, graph.output_names):
        if not 0 <= value.index < len(value.node.types):
            found.append(f"signature: the output {name!r} is output {value.index} of {_node_text(value.node)}")


def _check_sizes(graph: Graph, found: list[str]) -> None:
    fed = {name for value in graph.inputs for extent in value.shape for name in symbols(extent)}
    for name, size in graph.sizes.items():
        counted = size.value.node.attrs.get("count") == name
        if not counted and (size.value.dtype is not int64 or size.value.shape):
            found.append(f"size {name!r}: {size.value.type}, expected a scalar of int64")
        if name in fed:
            found.append(f"size {name!r}: it is a dim of an input too")
        late = (symbols(size.least) | symbols(size.most)) & graph.sizes.keys()
        if late:
            found.append(f"size {name!r}: its bounds {size.least}..{size.most} depend on the size {sorted(late)[0]!r}")
        if name not in graph.ranges:
            found.append(f"size {name!r}: the dim has no range")


def _control_problems(node: Node, graph: Graph) -> Iterator[str]:
    if set(node.attrs) != ATTRIBUTES[node.op]:
        yield f"attributes {sorted(node.attrs)}, expected {sorted(ATTRIBUTES[node.op])}"
        return
    for body in bodies(node):
        yield from (f"body {body.name!r}: {problem}" for problem in violations(body))
        unknown = sorted(
            {name for inner in body.nodes() for name in node_symbols(inner)}
            - body.sizes.keys() - graph.ranges.keys() - {node.attrs.get("trip")}
        )
        if unknown and graph.ranges:
            yield f"body {body.name!r}: the dim {unknown[0]!r} is not one of the graph around it"
    count = node.attrs.get("count")
    if count is not None and (count not in graph.sizes or graph.sizes[count].value.node is not node):
        yield f"the size {count!r}, which it counts, is not one of the graph's sizes"
    for name in sorted(differing(node) if node.op == BRANCH else ()):
        if name not in graph.sizes or graph.sizes[name].value.node is not node:
            yield f"its bodies differ in the dim {name!r}, which none of its results gives"
    try:
        types = control_types(node.op, [value.type for value in node.inputs], node.attrs)
    except LuminalError as error:
        yield str(error)
        return
    if types != node.types:
        yield f"types {', '.join(map(str, node.types))}, expected {', '.join(map(str, types))}"


def _node_problems(node: Node, graph: Graph) -> Iterator[str]:
    dangling = [value for value in node.inputs if not 0 <= value.index < len(value.node.types)]
    if dangling:
        yield f"dangling operand: it reads output {dangling[0].index} of {_node_text(dangling[0].node)}"
        return
    if node.op in ATTRIBUTES:
        yield from _control_problems(node, graph)
        return
    record = PRIMITIVES.get(node.op)
    if record is None:
        yield f"unknown primitive {node.op!r}"
        return
    if set(node.attrs) != set(record.attrs):
        yield f"attributes {sorted(node.attrs)}, expected {sorted(record.attrs)}"
        return
    if len(node.types) != 1:
        yield f"{len(node.types)} outputs, expected 1"
        return
    if record.operands is not None and len(node.inputs) != record.operands:
        yield f"{len(node.inputs)} operands, expected {record.operands}"
        return
    try:
        inferred = record.infer([value.type for value in node.inputs], node.attrs, node.types[0])
    except LuminalError as error:
        yield str(error)
        return
    if inferred.dtype is not node.types[0].dtype:
        yield f"dtype {node.types[0].dtype}, expected {inferred.dtype}"
    if inferred.shape != node.types[0].shape:
        yield f"shape {_shape(node.types[0].shape)}, expected {_shape(inferred.shape)}"
    yield from _dim_problems(node.types[0].shape, graph)
    if node.op == "view":
        yield from _view_problems(node.attrs["view"], node.inputs[0].dtype)
    if node.op == "iota":
        yield from _index_problems("the expression", [node.attrs["expr"]], len(node.types[0].shape))


def _dim_problems(shape: Sequence[Dim], graph: Graph) -> Iterator[str]:
    for extent in shape:
        if isinstance(extent, (bool, np.generic)) or not isinstance(extent, (int, Expr)):
            yield f"the extent {extent!r} is a {type(extent).__name__}, expected a dim"
        elif isinstance(extent, int):
            if extent < 0:
                yield f"negative extent {extent}"
        elif index_axes(extent):
            yield f"the extent {extent} depends on an index variable"
        else:
            unknown = sorted(symbols(extent) - graph.ranges.keys())
            if unknown and graph.ranges:
                yield f"the dim {unknown[0]!r} has no range"


def _view_problems(view: View, dtype: DType) -> Iterator[str]:
    bounds = [part for bound in view.valid for part in (bound.expr, bound.low, bound.high)]
    yield from _index_problems("the view's index", view.index, len(view.out_shape))
    yield from _index_problems("the view's bounds", bounds, len(view.out_shape))
    kinds = {"f": float, "i": int, "u": int, "b": bool}
    if view.fill is not None and type(view.fill) is not kinds[dtype.kind]:
        yield f"the view fills {dtype} with {view.fill!r}, a {type(view.fill).__name__}"


def _index_problems(what: str, dims: Sequence[Dim], rank: int) -> Iterator[str]:
    for dim in dims:
        beyond = sorted(axis for axis in index_axes(dim) if axis >= rank)
        if beyond:
            yield f"{what} {dim} uses i{beyond[0]}, but there are {rank} axes"


def _node_text(node: Node) -> str:
    detail = node.attrs.get("fn") or node.attrs.get("name") or ""
    origin = f" (from {', '.join(node.origin)})" if node.origin else ""
    types = ", ".join(map(str, node.types))
    return f"{node.op} {detail} -> {types}{origin}".replace("  ", " ")


def _shape(dims: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def region_violations(region: Region) -> list[str]:
    """Return one line for each rule that the region breaks."""
    found: list[str] = []
    for position, node in enumerate(region.nodes):
        late = [arg for arg in node.args if not 0 <= arg < position]
        if late:
            found.append(f"node {position} ({_kind(node)}): operand {late[0]} does not come before it")
            continue
        args = [region.nodes[arg] for arg in node.args]
        found.extend(f"node {position} ({_kind(node)}): {text}" for text in _region_node_problems(node, args, region))
    if not region.stores:
        found.append("stores: none")
    for number, store in enumerate(region.stores):
        if not 0 <= store < len(region.nodes):
            found.append(f"store {number}: there is no node {store}")
    slots = list(dict.fromkeys(node.slot for node in region.nodes if isinstance(node, (Load, Gather))))
    if slots != list(range(len(region.operands))):
        found.append(f"slots: first used in the order {slots}, for {len(region.operands)} operands")
    split = region.row_split() if region.reductions else None
    for number, store in enumerate(region.stores):
        if split and 0 <= store < len(region.nodes) and region.nodes[store].space not in (split[0], sum(split, ())):
            space = _shape(region.nodes[store].space)
            found.append(f"store {number}: space {space} is neither the row nor the full space")
    return found


_ARITY = {Load: 0, Constant: 0, Iota: 0, Gather: 1, Reduce: 1, Broadcast: 1}


def _kind(node: RegionNode) -> str:
    return type(node).__name__.lower() + (f" {node.fn}" if isinstance(node, (Elementwise, Reduce)) else "")


def _region_node_problems(node: RegionNode, args: Sequence[RegionNode], region: Region) -> Iterator[str]:
    wanted = _ARITY.get(type(node), len(args))
    if len(args) != wanted:
        yield f"{len(args)} operands, expected {wanted}"
        return
    if isinstance(node, (Load, Gather)):
        if not 0 <= node.slot < len(region.operands):
            yield f"slot {node.slot} of {len(region.operands)} operands"
            return
        operand = region.operands[node.slot]
        if node.dtype is not operand.dtype:
            yield f"dtype {node.dtype} of an operand of {operand.dtype}"
    match node:
        case Load():
            if node.view.in_shape != operand.shape:
                yield f"the view reads {_shape(node.view.in_shape)}, the operand is {operand}"
            if node.view.out_shape != node.space:
                yield f"the view makes {_shape(node.view.out_shape)}, the space is {_shape(node.space)}"
            yield from _view_problems(node.view, node.dtype)
        case Constant():
            if len(node.bits) != node.dtype.size:
                yield f"{len(node.bits)} bytes of a {node.dtype}"
        case Iota():
            if node.dtype is not int64:
                yield f"dtype {node.dtype}, expected int64"
            yield from _index_problems("the expression", [node.expr], len(node.space))
        case Elementwise():
            if any(arg.space != node.space for arg in args):
                yield f"operand spaces {', '.join(_shape(arg.space) for arg in args)}, expected {_shape(node.space)}"
            yield from _dtype_problems(node, args)
        case Gather():
            if not args[0].dtype.is_integer:
                yield f"index of {args[0].dtype}, expected integers"
            if args[0].space != node.space:
                yield f"index space {_shape(args[0].space)}, expected {_shape(node.space)}"
        case Reduce():
            if node.fn not in REDUCTIONS:
                yield f"there is no reduction {node.fn!r}"
            elif args[0].dtype.kind not in REDUCTIONS[node.fn].kinds or node.dtype is not args[0].dtype:
                yield f"{node.dtype} from {args[0].dtype}"
            if not node.extents or args[0].space != node.space + node.extents:
                yield f"operand space {_shape(args[0].space)}, expected {_shape(node.space)} + {_shape(node.extents)}"
        case Broadcast():
            if node.dtype is not args[0].dtype:
                yield f"{node.dtype} from {args[0].dtype}"
            if not node.extents or args[0].space + node.extents != node.space:
                yield f"operand space {_shape(args[0].space)} + {_shape(node.extents)} is not {_shape(node.space)}"


def _dtype_problems(node: Elementwise, args: Sequence[RegionNode]) -> Iterator[str]:
    try:
        expected = result_dtype(node.fn, [arg.dtype for arg in args], node.dtype)
    except LuminalError as error:
        yield str(error)
        return
    if node.dtype is not expected:
        yield f"dtype {node.dtype}, expected {expected}"


