"""Matrix products and Einstein sums."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Value
from ...plan.dims import index_symbol
from ...plan.dtypes import int32
from ..context import NodeBuilder
from ..registry import onnx_op


@onnx_op("MatMul", 1, 9, 13)
def matmul(b: NodeBuilder, x: Value, y: Value) -> Value:
    return b.matmul(x, y)


@onnx_op("Gemm", 7, 9, 11, 13)
def gemm(
    b: NodeBuilder, x: Value, y: Value, c: Value | None = None, *, alpha: float, beta: float, transA: int, transB: int
) -> Value:
    x = b.transpose(x, (1, 0)) if transA else x
    y = b.transpose(y, (1, 0)) if transB else y
    product = b.matmul(x, y)
    if alpha != 1:
        product = b.b("mul", product, _scale(b, alpha, product))
    if c is None or beta == 0:
        return product
    return b.b("add", product, c if beta == 1 else b.b("mul", c, _scale(b, beta, c)))


def _scale(b: NodeBuilder, factor: float, like: Value) -> float | int:
    """Integer matrices are scaled by the factor rounded toward zero."""
    return int(factor) if like.dtype.is_integer else factor


@onnx_op("MatMulInteger", 10)
def matmul_integer(
    b: NodeBuilder, x: Value, y: Value, x_zero: Value | None = None, y_zero: Value | None = None
) -> Value:
    """Products of 8-bit integers, exact in int32. A zero point may be one number, or one a row of x or column of y."""
    x, y = b.cast(x, int32), b.cast(y, int32)
    if x_zero is not None:
        x = b.b("sub", x, _per_row(b, b.cast(x_zero, int32)))
    if y_zero is not None:
        y = b.b("sub", y, b.cast(y_zero, int32))
    return b.matmul(x, y)


def _per_row(b: NodeBuilder, zero: Value) -> Value:
    return b.unsqueeze(zero, [1]) if zero.type.rank == 1 and zero.shape != (1,) else zero


@onnx_op("Einsum", 12, 28)
def einsum(b: NodeBuilder, *inputs: Value, equation: str) -> Value:
    terms, output = _parse(b, equation, [x.type.rank for x in inputs])
    total, labels = _diagonal(b, inputs[0], terms[0])
    for position, (x, term) in enumerate(zip(inputs[1:], terms[1:], strict=True), 1):
        other, other_labels = _diagonal(b, x, term)
        needed = set(output).union(*terms[position + 1 :])
        kept = [label for label in dict.fromkeys([*labels, *other_labels]) if label in needed]
        total, labels = _contracted(b, total, labels, other, other_labels, kept), kept
    summed = [axis for axis, label in enumerate(labels) if label not in output]
    if summed:
        total = b.reduce("sum", total, summed, False)
        labels = [label for label in labels if label in output]
    return b.transpose(total, [labels.index(label) for label in output])


def _parse(b: NodeBuilder, equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Return the labels of each operand and of the result. The axes that "..." stands for are called ".0", ".1", ..."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        b.invalid(f"the equation {equation!r} has {len(parts)} operands, the node {len(ranks)}")
    hidden = [rank - len(part.replace("...", "")) for part, rank in zip(parts, ranks, strict=True)]
    if any(n < 0 or (n > 0 and "..." not in part) for n, part in zip(hidden, parts, strict=True)):
        b.invalid(f"the equation {equation!r} does not fit operands of {', '.join(map(str, ranks))} axes")
    most = max(n for n, part in zip(hidden, parts, strict=True)) if "..." in left else 0
    terms = [_labels(part, n, most) for part, n in zip(parts, hidden, strict=True)]
    if arrow:
        output = _labels(right, most, most)
    else:
        letters = sorted(left.replace("...", "").replace(",", ""))
        output = [f".{k}" for k in range(most)] + [letter for letter in letters if letters.count(letter) == 1]
    strangers = set(output) - set().union(*terms)
    if strangers or len(set(output)) != len(output):
        b.invalid(f"the result of the equation {equation!r} has a label twice, or one that no operand has")
    return terms, output


def _labels(part: str, hidden: int, most: int) -> list[str]:
    before, dots, after = part.partition("...")
    return [*before, *(f".{k}" for k in range(most - hidden, most)), *after] if dots else list(part)


def _diagonal(b: NodeBuilder, x: Value, term: Sequence[str]) -> tuple[Value, list[str]]:
    """A label that an operand has twice takes the diagonal of those axes."""
    labels = list(dict.fromkeys(term))
    if len(labels) == len(term):
        return x, labels
    shape = [x.shape[term.index(label)] for label in labels]
    return b.indexed(x, shape, [index_symbol(labels.index(label)) for label in term]), labels


def _contracted(
    b: NodeBuilder, x: Value, x_labels: Sequence[str], y: Value, y_labels: Sequence[str], kept: Sequence[str]
) -> Value:
    """Sum first what only one operand has, then the product over what both have."""
    x, x_labels = _summed(b, x, x_labels, y_labels, kept)
    y, y_labels = _summed(b, y, y_labels, x_labels, kept)
    return b.contract(x, x_labels, y, y_labels, kept)


def _summed(
    b: NodeBuilder, x: Value, labels: Sequence[str], others: Sequence[str], kept: Sequence[str]
) -> tuple[Value, list[str]]:
    alone = [axis for axis, label in enumerate(labels) if label not in others and label not in kept]
    rest = [label for label in labels if label in others or label in kept]
    return (b.reduce("sum", x, alone, False) if alone else x), rest
