"""Graphs as text, one line a node, and back.

    graph "tiny"
    dim "n" 1 8 64
    %0 = input "x" : float32[n, 3]
    %1 = constant c0 (0.5) : float32[]
    %2 = view %1 [] : float32[n, 3]
    %3 = elementwise mul %0 %2 : float32[n, 3]  # ["Scale_1"]
    size "kept" %7 in 0 .. n
    output "y" %3

A `size` is a dim that the graph computes. A view shows its index expressions, then `where` its bounds and `else` its fill. Constants stand by name; a single
element is shown for the reader. What follows `#` are the ONNX nodes that the node came from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from ..plan.dims import Dim, Range, parse
from ..plan.dtypes import BY_NAME
from ..plan.errors import LuminalError
from ..plan.view import Bound, Fill, View
from .graph import Graph, Node, Size, TensorType, Value
from .primitives import make_node


def constants_of(graph: Graph) -> dict[str, np.ndarray]:
    """Return the constants by the names that `format_graph` gives them: c0, c1, ... in node order."""
    return {f"c{number}": node.attrs["data"] for number, node in enumerate(_constant_nodes(graph))}


def _constant_nodes(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes() if node.op == "constant"]


def format_graph(graph: Graph) -> str:
    """Return the graph as text; `parse_graph(text, constants_of(graph))` builds an equal graph."""
    lines = [f"graph {json.dumps(graph.name)}"]
    lines += [f"dim {json.dumps(name)} {r.min} {r.opt} {r.max}" for name, r in sorted(graph.ranges.items())]
    constant_names = {id(node): f"c{number}" for number, node in enumerate(_constant_nodes(graph))}
    names: dict[Value, str] = {}
    for number, node in enumerate(graph.nodes()):
        names[Value(node)] = f"%{number}"
        words = [node.op, *_details(node, constant_names), *(names[value] for value in node.inputs)]
        if node.op == "view":
            words.append(_view_text(node.attrs["view"]))
        origin = f"  # {json.dumps(list(node.origin))}" if node.origin else ""
        lines.append(f"%{number} = {' '.join(words)} : {node.types[0]}{origin}")
    for name, size in graph.live_sizes().items():
        lines.append(f"size {json.dumps(name)} {names[size.value]} in {size.least} .. {size.most}")
    outputs = zip(graph.output_names, graph.outputs, strict=True)
    lines += [f"output {json.dumps(name)} {names[value]}" for name, value in outputs]
    return "\n".join(lines) + "\n"


def _details(node: Node, constant_names: Mapping[int, str]) -> list[str]:
    attrs = node.attrs
    if node.op == "input":
        return [json.dumps(attrs["name"])]
    if node.op == "constant":
        data = attrs["data"]
        shown = [f"({data.reshape(-1)[0]})"] if data.size == 1 else []
        return [constant_names[id(node)], *shown]
    if node.op == "reduce":
        return [attrs["fn"], str(attrs["count"])]
    if node.op == "iota":
        return [str(attrs["expr"])]
    return [attrs["fn"]] if "fn" in attrs else []


def _view_text(view: View) -> str:
    text = f"[{', '.join(map(str, view.index))}]"
    if view.valid:
        text += f" where {' and '.join(map(str, view.valid))} else {view.fill!r}"
    return text


def parse_graph(text: str, constants: Mapping[str, np.ndarray]) -> Graph:
    """Build the graph that `format_graph` printed; LuminalError names the line that cannot be read."""
    graph = Graph("")
    values: dict[str, Value] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            _read_line(line.strip(), graph, values, constants)
        except (ValueError, KeyError, IndexError, LuminalError) as error:
            raise LuminalError(f"line {number} of the graph cannot be read ({error}): {line}") from error
    return graph


def _read_line(line: str, graph: Graph, values: dict[str, Value], constants: Mapping[str, np.ndarray]) -> None:
    keyword, rest = line.split(" ", 1)
    if keyword == "graph":
        graph.name = json.loads(rest)
    elif keyword == "dim":
        name, limits = _quoted(rest)
        graph.ranges[name] = Range(*map(int, limits.split()))
    elif keyword == "size":
        name, rest = _quoted(rest)
        value, limits = rest.strip().split(" in ", 1)
        graph.sizes[name] = Size(values[value], *(parse(limit) for limit in limits.split(" .. ")))
    elif keyword == "output":
        name, value = _quoted(rest)
        graph.output_names.append(name)
        graph.outputs.append(values[value.strip()])
    elif keyword.startswith("%"):
        value = Value(_read_node(rest.removeprefix("= "), values, constants))
        values[keyword] = value
        if value.node.op == "input":
            graph.inputs.append(value)
            graph.input_names.append(value.node.attrs["name"])
    else:
        raise ValueError(f"unknown keyword {keyword!r}")


def _read_node(text: str, values: Mapping[str, Value], constants: Mapping[str, np.ndarray]) -> Node:
    text, *origin = _split(text, "  # ")
    body, type_text = _split(text, " : ")
    declared = _read_type(type_text)
    op, _, rest = body.partition(" ")
    attrs: dict[str, object] = {}
    operands: Sequence[str] = ()
    if op == "input":
        attrs["name"] = json.loads(rest)
    elif op == "constant":
        attrs["data"] = constants[rest.split(" ")[0]]
    elif op == "iota":
        attrs["expr"] = parse(rest)
    elif op == "view":
        operand, _, index = rest.partition(" ")
        operands = [operand]
        attrs["view"] = _read_view(index, values[operand].shape, declared.shape)
    else:
        words = rest.split(" ")
        operands = [word for word in words if word.startswith("%")]
        plain = [word for word in words if not word.startswith("%")]
        if op != "gather":
            attrs["fn"] = plain[0]
        if op == "reduce":
            attrs["count"] = int(plain[1])
    names = tuple(json.loads(origin[0])) if origin else ()
    node = make_node(op, [values[name] for name in operands], attrs, declared, names)
    if node.types[0] != declared:
        raise ValueError(f"the node makes {node.types[0]}")
    return node


def _read_view(text: str, in_shape: tuple[Dim, ...], out_shape: tuple[Dim, ...]) -> View:
    index_text, *conditions = _split(text, " where ")
    bounds: list[Bound] = []
    fill = None
    if conditions:
        bound_text, fill_text = _split(conditions[0], " else ")
        for bound in _split(bound_text, " and "):
            low, rest = _split(bound, " <= ")
            expr, high = _split(rest, " < ")
            bounds.append(Bound(parse(expr), parse(low), parse(high)))
        fill = _read_fill(fill_text)
    return View(in_shape, out_shape, _read_dims(index_text), tuple(bounds), fill)


def _read_fill(text: str) -> Fill:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        return float(text)


def _read_type(text: str) -> TensorType:
    dtype, shape = text.split("[", 1)
    return TensorType(BY_NAME[dtype], _read_dims("[" + shape))


def _read_dims(text: str) -> tuple[Dim, ...]:
    inside = text.strip()[1:-1]
    return tuple(parse(part) for part in _split(inside, ", ")) if inside else ()


def _quoted(text: str) -> tuple[str, str]:
    """Return the JSON string that text begins with, and the rest."""
    value, end = json.JSONDecoder().raw_decode(text)
    return value, text[end:]


def _split(text: str, separator: str) -> list[str]:
    """Split at separators that stand outside of quotes, brackets and parentheses."""
    parts, start, position, depth = [], 0, 0, 0
    while position < len(text):
        character = text[position]
        if character == '"':
            position = json.decoder.scanstring(text, position + 1)[1]
            continue
        if depth == 0 and text.startswith(separator, position):
            parts.append(text[start:position])
            position += len(separator)
            start = position
            continue
        depth += (character in "([") - (character in ")]")
        position += 1
    return [*parts, text[start:]]
