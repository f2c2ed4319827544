"""The attributes of a node as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto

from ..plan.errors import InvalidModel, UnsupportedModel
from .tensors import TensorReader


def values(node: onnx.NodeProto, reader: TensorReader, bound: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the attributes that the node states, by name.

    Strings are decoded, tensors are arrays, subgraphs stay protobufs. Inside a function body an attribute may stand for
    one of the function's own: `bound` has those that the caller gave.
    """
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.name in found:
            raise InvalidModel(f"{what} has the attribute {attribute.name!r} twice")
        if not attribute.ref_attr_name:
            found[attribute.name] = value(attribute, reader, what)
        elif attribute.ref_attr_name in bound:
            found[attribute.name] = bound[attribute.ref_attr_name]
    return found


def value(attribute: AttributeProto, reader: TensorReader, what: str) -> Any:
    """Return the value of one attribute."""
    kind = attribute.type
    if kind in _PLAIN:
        return getattr(attribute, _PLAIN[kind])
    if kind in _LISTS:
        return list(getattr(attribute, _LISTS[kind]))
    if kind == AttributeProto.STRING:
        return _decoded(attribute.s, attribute.name, what)
    if kind == AttributeProto.STRINGS:
        return [_decoded(text, attribute.name, what) for text in attribute.strings]
    if kind == AttributeProto.TENSOR:
        return reader.array(_named(attribute.t, attribute.name, what))
    if kind == AttributeProto.SPARSE_TENSOR:
        return reader.sparse(attribute.sparse_tensor)
    raise UnsupportedModel(
        f"{what}: the attribute {attribute.name!r} holds a {AttributeProto.AttributeType.Name(kind)}"
    )


def _decoded(text: bytes, name: str, what: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InvalidModel(f"{what}: the attribute {name!r} is not UTF-8 text: {text!r}") from error


def _named(tensor: TensorProto, name: str, what: str) -> TensorProto:
    """Tensors in attributes have no name of their own as a rule; errors about them should lead to the node."""
    if tensor.name:
        return tensor
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = f"{name} of {what}"
    return copy


_PLAIN = {AttributeProto.FLOAT: "f", AttributeProto.INT: "i", AttributeProto.GRAPH: "g"}
_LISTS = {AttributeProto.FLOATS: "floats", AttributeProto.INTS: "ints", AttributeProto.GRAPHS: "graphs"}
