"""Which products of one tensor with constant weights can be computed as one, by weights laid side by side.

Rules state every such product. Once nothing else is left to do they are grouped: in a group all read the same tensor in
the same way, and their weights differ in their columns only. A joined weight is a recipe, the numbers of its parts; its
array is made when a program that reads it is put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...plan.dims import Dim, Ranges, index_symbol, product, substitute
from ...plan.view import View
from ..blueprint import JoinedWeight
from ..graph import TensorType
from .contraction import Contraction, contraction, is_bias
from .engine import Engine
from .handles import Handles
from .lift import Lifted, dtype_of

MOST_PARTS = 16
MOST_BYTES = 1 << 31  # of one joined weight


@dataclass(frozen=True)
class _Product:
    """One product as the rules state it; handles as in `rules/siblings.egg`. `bias` is its weight, or None."""

    view: int
    weight: int
    weight_view: int
    extents: int
    shape: int
    bias: int | None
    bias_view: int
    columns: int
    depth: int


@dataclass(frozen=True)
class _Reading:
    """What siblings have in common: the tensor, how it is read, the sum, and the order in which weights are stored."""

    tensor: int
    rows: View  # over the outer axes but the columns', then the summed ones
    extents: int
    dtype: int
    storage: str
    biased: bool


_Group = tuple[_Reading, dict[int, list[_Product]]]


def join_siblings(engine: Engine, handles: Handles, lifted: Lifted) -> dict[int, JoinedWeight]:
    """State which products the `siblings` rules may join; return the new weights by the numbers given to them."""
    stated = engine.read(("AskSibling", "AskBiasedSibling"))
    alone = _once_used_weights(lifted)
    biased = _groups(stated.get("AskBiasedSibling", ()), handles, lifted, alone)
    taken = {weight for _, products in biased for weight in products}
    plain = _groups(stated.get("AskSibling", ()), handles, lifted, alone - taken)
    answers = _Answers(handles, lifted)
    for reading, products in (*biased, *plain):
        answers.add(reading, products)
    for relation, rows in answers.rows.items():
        engine.insert(relation, rows)
    return answers.joined


def _groups(rows: Iterable[tuple], handles: Handles, lifted: Lifted, weights: set[int]) -> list[_Group]:
    """Return groups of two or more products, each weight in one group, in the order of their first weights."""
    found: dict[_Reading, dict[int, list[_Product]]] = {}
    for row in sorted(row[:-1] for row in rows):
        if row[2] in weights:
            sibling = _sibling(row, handles, lifted)
            if sibling is not None:
                reading, one = sibling
                found.setdefault(reading, {}).setdefault(one.weight, []).append(one)
    # A product may be stated over several spaces and from several tensors, all of them the same in the end.
    wanted = sorted(
        found.items(), key=lambda item: (-len(item[1]), min(item[1]), len(item[0].rows.out_shape), str(item[0].rows))
    )
    groups: list[_Group] = []
    taken: set[int] = set()
    for reading, products in wanted:
        products = {weight: _of_one_bias(variants) for weight, variants in products.items()}
        left = [weight for weight in sorted(products) if weight not in taken]
        for start in range(0, len(left), MOST_PARTS):
            part = left[start : start + MOST_PARTS]
            size = sum(products[weight][0].columns * products[weight][0].depth for weight in part)
            if len(part) > 1 and size * dtype_of(reading.dtype).size <= MOST_BYTES:
                groups.append((reading, {weight: products[weight] for weight in part}))
                taken.update(part)
    return sorted(groups, key=lambda group: min(group[1]))


def _of_one_bias(variants: list[_Product]) -> list[_Product]:
    """Return the spellings of one sum: a product to which two biases are added is joined with one of them."""
    return [one for one in variants if one.bias == variants[0].bias]


def _sibling(row: tuple, handles: Handles, lifted: Lifted) -> tuple[_Reading, _Product] | None:
    """Return a stated product and what it may share with others; None if its columns cannot be joined to others'."""
    tensor, view, weight, weight_view, extents, dtype, shape, *bias = row
    a, b, summed = handles.thing(view), handles.thing(weight_view), handles.thing(extents)
    found = contraction(a, b, summed, dtype_of(dtype), handles.ranges)
    if found is None or not found[1]:  # the weight must hold the columns
        return None
    c = found[0]
    storage = _storage(c)
    size = lifted.nodes[weight].attrs["data"].size
    whole = size == product((c.columns, c.depth)) and c.fine == c.space == handles.thing(shape)
    if storage is None or not whole:
        return None
    if bias and not _is_whole_bias(bias[0], bias[1], c, handles, lifted):
        return None
    rows = _without_columns(a, c, handles.ranges)
    reading = _Reading(tensor, rows, extents, dtype, storage, bool(bias))
    return reading, _Product(
        view, weight, weight_view, extents, shape, bias[0] if bias else None, bias[1] if bias else 0, c.columns, c.depth
    )


def _storage(c: Contraction) -> str | None:
    """Return "rm" for a weight stored [depth, columns], "cm" for [columns, depth]; None if it is not read whole so."""
    if not isinstance(c.columns, int) or not isinstance(c.depth, int):
        return None
    read = (c.y_base, c.y_batch, c.y_depth, c.y_column)
    if read == (0, 0, c.columns, 1):
        return "rm"
    return "cm" if read == (0, 0, 1, c.depth) else None


def _is_whole_bias(number: int, view: int, c: Contraction, handles: Handles, lifted: Lifted) -> bool:
    node = lifted.nodes[number]
    if node.op != "constant" or node.attrs["data"].size != c.columns:
        return False
    return is_bias(handles.thing(view), c, handles.ranges)


def _without_columns(view: View, c: Contraction, ranges: Ranges) -> View:
    """Return the view of the rows' operand over a space without the axes of the columns, on which it does not depend."""
    dropped = len(c.column_axes)
    start = len(c.space) - dropped
    place = {axis: index_symbol(axis if axis < start else axis - dropped) for axis in range(len(view.out_shape))}
    place.update(dict.fromkeys(c.column_axes, 0))
    shape = view.out_shape[:start] + view.out_shape[start + dropped :]
    return View.make(view.in_shape, shape, [substitute(expr, {}, place) for expr in view.index], ranges=ranges)


def _once_used_weights(lifted: Lifted) -> set[int]:
    """Return the constants that one node alone uses: joining others would keep their elements twice."""
    users: dict[int, int] = {}
    for number in reversed(range(len(lifted.nodes))):
        node = lifted.nodes[number]
        for value in node.inputs:
            used = lifted.value_number(value)
            users[used] = users.get(used, 0) + (users.get(number, 0) if node.op == "view" else 1)
    return {number for number, node in enumerate(lifted.nodes) if node.op == "constant" and users.get(number) == 1}


class _Answers:
    """Collects the rows for each relation, and the weights that they speak of."""

    def __init__(self, handles: Handles, lifted: Lifted) -> None:
        self.handles, self.nodes = handles, lifted.nodes
        self.rows: dict[str, list[tuple]] = {}
        self.joined: dict[int, JoinedWeight] = {}

    def add(self, reading: _Reading, products: dict[int, list[_Product]]) -> None:
        """Join a group: one weight, perhaps one bias, and each product's slice of the joined one."""
        handles, ranges = self.handles, self.handles.ranges
        firsts = [variants[0] for variants in products.values()]
        summed = handles.thing(reading.extents)
        outer = reading.rows.out_shape[: len(reading.rows.out_shape) - len(summed)]
        columns, depth, at = sum(one.columns for one in firsts), firsts[0].depth, len(outer)
        space = (*outer, columns)
        full = (*space, *summed)
        place = {axis: index_symbol(axis if axis < at else axis + 1) for axis in range(len(full) - 1)}
        index = [substitute(expr, {}, place) for expr in reading.rows.index]
        view = handles.view(View.make(reading.rows.in_shape, full, index, ranges=ranges))
        weight = self._weight([one.weight for one in firsts], firsts, reading, depth)
        term = _flat([index_symbol(at + 1 + axis) for axis in range(len(summed))], summed)
        matrix = [((depth, columns), (term, index_symbol(at))), ((columns, depth), (index_symbol(at), term))]
        in_shape, weight_index = matrix[reading.storage == "cm"]
        weight_view = handles.view(View.make(in_shape, full, weight_index, ranges=ranges))
        joint = (view, weight, weight_view, handles.shape(space))
        if reading.biased:
            bias_view = handles.view(View.make((columns,), space, [index_symbol(at)], ranges=ranges))
            joint += (self._bias([one.bias for one in firsts], firsts, reading.dtype), bias_view)
        self._add("Count", handles.shape(space), handles.dim(product(space)))
        start = 0
        for variants in products.values():
            for one in variants:
                self._add_slice(one, space, start, joint)
            start += variants[0].columns

    def _add_slice(self, one: _Product, space: tuple[Dim, ...], start: int, joint: tuple[int, ...]) -> None:
        shape = self.handles.thing(one.shape)
        at = len(space) - 1
        own = [index_symbol(axis) for axis in range(len(shape))]
        index = [*own[:at], start + _flat(own[at:], shape[at:])]
        slice_ = self.handles.view(View.make(space, shape, index, ranges=self.handles.ranges))
        stated = (one.view, one.weight, one.weight_view, one.extents, one.shape)
        if one.bias is None:
            self._add("Sibling", *stated, *joint, slice_)
        else:
            self._add("BiasedSibling", *stated, one.bias, one.bias_view, *joint, slice_)

    def _weight(self, parts: list[int], firsts: list[_Product], reading: _Reading, depth: int) -> int:
        if reading.storage == "rm":
            return self._join(parts, [(depth, one.columns) for one in firsts], 1, reading.dtype)
        return self._join(parts, [(one.columns, depth) for one in firsts], 0, reading.dtype)

    def _bias(self, parts: list[int], firsts: list[_Product], dtype: int) -> int:
        return self._join(parts, [(one.columns,) for one in firsts], 0, dtype)

    def _join(self, parts: list[int], shapes: list[tuple[int, ...]], axis: int, dtype: int) -> int:
        shape = list(shapes[0])
        shape[axis] = sum(part[axis] for part in shapes)
        number = len(self.nodes) + len(self.joined)
        self.joined[number] = JoinedWeight(TensorType(dtype_of(dtype), tuple(shape)), tuple(parts), tuple(shapes), axis)
        self._add("JoinedWeight", number, product(shape), dtype)
        return number

    def _add(self, relation: str, *row: int) -> None:
        self.rows.setdefault(relation, []).append(row)


def _flat(index: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
    """Return the row-major number of an element."""
    flat: Dim = 0
    for position, extent in zip(index, shape, strict=True):
        flat = flat * extent + position
    return flat
