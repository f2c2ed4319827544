"""Graphs as text, one line a node, and back.

    graph "tiny"
    dim "n" 1 8 64
    %0 = input "x" : float32[n, 3]
    %1 = constant c0 (0.5) : float32[]
    %2 = view %1 [] : float32[n, 3]
    %3 = elementwise mul %0 %2 : float32[n, 3]  # ["Scale_1"]
    size "kept" %7 in 0 .. n
    output "y" %3

    %4 = loop trip "trip" trips n states 1 %1 %0 : float32[3], float32[n, 3]
    body {
      ...
    }

The second output of %4 is %4.1. Bodies of loops and branches are graphs with numbers of their own; the names of constants
are the same everywhere. A `size` is a dim that the graph computes. A view shows its index expressions, then `where` its bounds and `else` its fill. Constants stand by name; a single
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
from .control import BODY_NAMES, BRANCH, LOOP, Loop, bodies, loop_of, make_control
from .graph import Graph, Node, Size, TensorType, Value
from .primitives import make_node


def constants_of(graph: Graph) -> dict[str, np.ndarray]:
    """Return the constants by the names that `format_graph` gives them: c0, c1, ... in node order, bodies' after."""
    return {f"c{number}": data for number, data in enumerate(_constant_arrays(graph).values())}


def _constant_arrays(graph: Graph) -> dict[int, np.ndarray]:
    """Return the arrays of all constants by their ids; one that stands in several places is listed once."""
    nodes = graph.nodes()
    found = {id(node.attrs["data"]): node.attrs["data"] for node in nodes if node.op == "constant"}
    for node in nodes:
        for body in bodies(node):
            found |= _constant_arrays(body)
    return found


def format_graph(graph: Graph) -> str:
    """Return the graph as text; `parse_graph(text, constants_of(graph))` builds an equal graph."""
    names = {key: f"c{number}" for number, key in enumerate(_constant_arrays(graph))}
    return "\n".join(_lines(graph, names)) + "\n"


def _lines(graph: Graph, constant_names: Mapping[int, str]) -> list[str]:
    lines = [f"graph {json.dumps(graph.name)}"]
    lines += [f"dim {json.dumps(name)} {r.min} {r.opt} {r.max}" for name, r in sorted(graph.ranges.items())]
    names: dict[Value, str] = {}
    for number, node in enumerate(graph.nodes()):
        names.update((value, f"%{number}.{value.index}" if value.index else f"%{number}") for value in node.outputs)
        words = [node.op, *_details(node, constant_names), *(names[value] for value in node.inputs)]
        if node.op == "view":
            words.append(_view_text(node.attrs["view"]))
        origin = f"  # {json.dumps(list(node.origin))}" if node.origin else ""
        lines.append(f"%{number} = {' '.join(words)} : {', '.join(map(str, node.types))}{origin}")
        for title, body in zip(BODY_NAMES.get(node.op, ()), bodies(node)):
            lines += [f"{title} {{", *("  " + line for line in _lines(body, constant_names)), "}"]
    for name, size in graph.live_sizes().items():
        lines.append(f"size {json.dumps(name)} {names[size.value]} in {size.least} .. {size.most}")
    outputs = zip(graph.output_names, graph.outputs, strict=True)
    lines += [f"output {json.dumps(name)} {names[value]}" for name, value in outputs]
    return lines


def _details(node: Node, constant_names: Mapping[int, str]) -> list[str]:
    attrs = node.attrs
    if node.op == "input":
        return [json.dumps(attrs["name"])]
    if node.op == "constant":
        data = attrs["data"]
        shown = [f"({data.reshape(-1)[0]})"] if data.size == 1 else []
        return [constant_names[id(data)], *shown]
    if node.op == "reduce":
        return [attrs["fn"], str(attrs["count"])]
    if node.op == "iota":
        return [str(attrs["expr"])]
    if node.op == LOOP:
        return _loop_details(loop_of(node))
    return [attrs["fn"]] if "fn" in attrs else []


def _loop_details(loop: Loop) -> list[str]:
    words = ["trip", json.dumps(loop.trip), "trips", _without_spaces(loop.trips), "states", str(loop.states)]
    if loop.conditional:
        words.append("conditional")
    return [*words, "count", json.dumps(loop.count)] if loop.count is not None else words


def _without_spaces(dim: Dim | None) -> str:
    return "any" if dim is None else str(dim).replace(" ", "")


def _view_text(view: View) -> str:
    text = f"[{', '.join(map(str, view.index))}]"
    if view.valid:
        text += f" where {' and '.join(map(str, view.valid))} else {view.fill!r}"
    return text


def parse_graph(text: str, constants: Mapping[str, np.ndarray]) -> Graph:
    """Build the graph that `format_graph` printed; LuminalError names the line that cannot be read."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return _Reader(lines, constants).graph()


class _Reader:
    """Reads lines from the first to the last. Bodies stand right after the line of their node."""

    def __init__(self, lines: Sequence[tuple[int, str]], constants: Mapping[str, np.ndarray]) -> None:
        self.lines, self.constants = lines, constants
        self.at = 0

    def graph(self) -> Graph:
        """Read a graph up to the end, or to the brace that closes it."""
        graph = Graph("")
        values: dict[str, Value] = {}
        while self.at < len(self.lines) and self.lines[self.at][1] != "}":
            number, line = self.lines[self.at]
            self.at += 1
            try:
                self.line(line, graph, values)
            except (ValueError, KeyError, IndexError, LuminalError) as error:
                if isinstance(error, LuminalError) and str(error).startswith("line "):
                    raise  # one of a body
                raise LuminalError(f"line {number} of the graph cannot be read ({error}): {line}") from error
        return graph

    def body(self, title: str) -> Graph:
        if self.at == len(self.lines) or self.lines[self.at][1] != f"{title} {{":
            raise ValueError(f"the body {title!r} is missing")
        self.at += 1
        graph = self.graph()
        if self.at == len(self.lines):
            raise ValueError(f"the body {title!r} does not end")
        self.at += 1
        return graph

    def line(self, line: str, graph: Graph, values: dict[str, Value]) -> None:
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
            text = rest.removeprefix("= ")
            op = text.split(" ", 1)[0]
            if op in BODY_NAMES:
                node = _read_control(text, values, [self.body(title) for title in BODY_NAMES[op]])
            else:
                node = _read_node(text, values, self.constants)
            values.update((f"{keyword}.{value.index}" if value.index else keyword, value) for value in node.outputs)
            if node.op == "input":
                graph.inputs.append(node.output)
                graph.input_names.append(node.attrs["name"])
        else:
            raise ValueError(f"unknown keyword {keyword!r}")


def _read_control(text: str, values: Mapping[str, Value], graphs: Sequence[Graph]) -> Node:
    text, *origin = _split(text, "  # ")
    body, type_text = _split(text, " : ")
    op, *words = _split(body, " ")
    operands = [values[word] for word in words if word.startswith("%")]
    plain = [word for word in words if not word.startswith("%")]
    declared = tuple(map(_read_type, _split(type_text, ", "))) if type_text.strip() else ()
    attrs: dict[str, object] = dict(zip(BODY_NAMES[op], graphs, strict=True))
    if op == BRANCH:
        attrs["types"] = declared
    else:
        attrs["trip"] = json.loads(plain[plain.index("trip") + 1])
        trips = plain[plain.index("trips") + 1]
        attrs["trips"] = None if trips == "any" else parse(trips)
        attrs["states"] = int(plain[plain.index("states") + 1])
        attrs["conditional"] = "conditional" in plain
        attrs["count"] = json.loads(plain[plain.index("count") + 1]) if "count" in plain else None
    node = make_control(op, operands, attrs, tuple(json.loads(origin[0])) if origin else ())
    if node.types != declared:
        raise ValueError(f"the node makes {', '.join(map(str, node.types))}")
    return node


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
