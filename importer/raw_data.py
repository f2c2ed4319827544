"""Large weights are read where they lie in the model file: the protobuf is parsed without them.

Parsing would copy every weight out of the file, and reading it out of the parsed message copies it again; for a model of
some hundred megabytes that is most of the time of an import. Here the file's top structure is walked in the wire format
(https://protobuf.dev/programming-guides/encoding), and the raw bytes of large initializers are left out of what is
parsed. Whatever looks unusual is left to the parser, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LEAST_BYTES = 1 << 16  # smaller ones are not worth it

# Field numbers of onnx.proto, which never change.
_GRAPH, _INITIALIZER, _TENSOR_NAME, _RAW_DATA = 7, 5, 8, 9
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5


class _Unusual(Exception):
    """The bytes are not what a writer of ONNX files would write."""


@dataclass(frozen=True)
class _Field:
    """One field: its number, where its tag begins, and where its content lies."""

    number: int
    wire_type: int
    start: int
    begin: int
    end: int


def without_large_weights(data: memoryview) -> tuple[bytes | memoryview, dict[str, memoryview]]:
    """Return a model's bytes without the large weights of its main graph, and these by the initializers' names.

    In what is returned such an initializer has empty raw data. Without any, the bytes are returned as they are.
    """
    try:
        return _cut(data)
    except (_Unusual, IndexError, UnicodeDecodeError):
        return data, {}


def _cut(data: memoryview) -> tuple[bytes | memoryview, dict[str, memoryview]]:
    graphs = [field for field in _fields(data, 0, len(data)) if field.number == _GRAPH]
    if len(graphs) != 1 or graphs[0].wire_type != _DELIMITED:
        raise _Unusual
    (graph,) = graphs
    weights: dict[str, memoryview] = {}
    pieces: list[bytes | memoryview] = []
    taken = graph.begin
    for field in _fields(data, graph.begin, graph.end):
        if field.number != _INITIALIZER or field.end - field.begin < LEAST_BYTES:
            continue
        found = _large_weight(data, field)
        if found is None:
            continue
        name, raw = found
        if name in weights:
            raise _Unusual
        weights[name] = data[raw.begin : raw.end]
        kept = [data[field.begin : raw.start], _tag(_RAW_DATA), _varint(0), data[raw.end : field.end]]
        pieces += [data[taken : field.start], _tag(_INITIALIZER), _varint(sum(map(len, kept))), *kept]
        taken = field.end
    if not weights:
        return data, {}
    pieces.append(data[taken : graph.end])
    length = _varint(sum(map(len, pieces)))
    return b"".join([data[: graph.start], _tag(_GRAPH), length, *pieces, data[graph.end :]]), weights


def _large_weight(data: memoryview, tensor: _Field) -> tuple[str, _Field] | None:
    """Return an initializer's name and its raw data; None if that is small or lies elsewhere."""
    fields = list(_fields(data, tensor.begin, tensor.end))
    names = [field for field in fields if field.number == _TENSOR_NAME]
    raws = [field for field in fields if field.number == _RAW_DATA]
    if len(names) != 1 or len(raws) != 1 or raws[0].end - raws[0].begin < LEAST_BYTES:
        return None
    if names[0].wire_type != _DELIMITED or raws[0].wire_type != _DELIMITED:
        raise _Unusual
    return bytes(data[names[0].begin : names[0].end]).decode(), raws[0]


def _fields(data: memoryview, begin: int, end: int) -> Iterator[_Field]:
    """Yield the fields of the message in data[begin:end]."""
    at = begin
    while at < end:
        start = at
        key, at = _read_varint(data, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == _DELIMITED:
            length, at = _read_varint(data, at)
        elif wire_type == _VARINT:
            _, after = _read_varint(data, at)
            length = after - at
        elif wire_type in (_FIXED32, _FIXED64):
            length = 4 if wire_type == _FIXED32 else 8
        else:
            raise _Unusual
        if at + length > end:
            raise _Unusual
        yield _Field(number, wire_type, start, at, at + length)
        at += length


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at this place and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise _Unusual


def _varint(value: int) -> bytes:
    spelled = bytearray()
    while value > 127:
        spelled.append(value & 127 | 128)
        value >>= 7
    spelled.append(value)
    return bytes(spelled)


def _tag(number: int) -> bytes:
    """Return the tag of a delimited field."""
    return _varint(number << 3 | _DELIMITED)
