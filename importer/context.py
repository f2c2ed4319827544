"""The builder that operator functions get: the graph builder, plus what they may ask about the node and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

import numpy as np
import onnx

from ..ir.graph import Node, Value
from ..plan import view
from ..plan.dims import Dim, Range, ceil_div, exact_div, maximum, minimum, prove_nonnegative, simplify, symbol, symbols
from ..plan.dtypes import DType, from_numpy
from ..plan.errors import InvalidModel, UnsupportedModel
from ..plan.view import Bound, View
from .assumptions import (
    Assumption,
    Place,
    Split,
    decided,
    multiple_that_fits,
    replacement,
    sizes_that_fit,
)
from .data_sizes import DataSizes, Element
from .shape_values import Unknown


@dataclass(frozen=True)
class NodeContext:
    """The node that is being imported. `outputs` holds the names of its outputs, "" where one is not wanted."""

    name: str
    domain: str
    op: str
    opset: int
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"node {self.name!r} ({self.domain or 'ai.onnx'}.{self.op}, opset {self.opset})"


class NodeBuilder(DataSizes):
    """A `Builder` that knows the ONNX node it works for, and the elements of small tensors (`shape_values`)."""

    def __init__(self, name: str, ranges: Mapping[str, Range]) -> None:
        super().__init__(name, ranges)
        self.node = NodeContext("", "", "", 0, ())
        self.narrow: dict[Value, tuple[int, int]] = {}
        self.open_dims: Sequence[str] = ()
        self.splittable: Sequence[str] = ()
        self.narrowed: dict[tuple[str, str], str] = {}
        self.warnings: list[str] = []
        self.trip_ranges: dict[str, Range] = {}
        self.states_made = 0
        self.dims_named = -1
        self.import_subgraph: Callable[[onnx.GraphProto, Sequence[Value]], tuple[Value, ...]] | None = None

    def fail(self, reason: str) -> NoReturn:
        """Raise UnsupportedModel about this node."""
        raise UnsupportedModel(f"{self.node}: {reason}")

    def warn(self, text: str) -> None:
        """Add a warning to what the summary says."""
        self.warnings.append(text)

    def invalid(self, reason: str) -> NoReturn:
        """Raise InvalidModel about this node."""
        raise InvalidModel(f"{self.node}: {reason}")

    def wants(self, output: int) -> bool:
        """Say whether the model uses the node's output of that number."""
        return output < len(self.node.outputs) and self.node.outputs[output] != ""

    def unused_dim(self, name: str) -> str:
        """Return the name of a new dim that begins with `name`."""
        self.dims_named += 1
        while f"{name}{self.dims_named}" in self.ranges:
            self.dims_named += 1
        return f"{name}{self.dims_named}"

    @property
    def made(self) -> int:
        """How many nodes were made so far."""
        return len(self._made)

    def made_since(self, made: int) -> Iterable[Node]:
        """Return the nodes that were made after the first `made` ones."""
        return islice(self._made.values(), made, None)

    def known(self, value: Value) -> np.ndarray | None:
        """Return the elements of a small tensor where they depend on dims only, else None. Elements may be dims."""
        return self.shape_values.of(value)

    def ints(self, value: Value, what: str) -> tuple[Dim, ...]:
        """Return the elements of an integer tensor, as dims, in one row; UnsupportedModel if data decides them."""
        elements = self.known(value)
        if elements is None:
            self.settle(value, f"{what} differs between sizes")
            self.fail(
                f"{what} depends on the data of a tensor, which is only known when the model runs; make it constant"
            )
        return tuple(
            element if element.__class__ is not bool else int(element) for element in elements.reshape(-1).tolist()
        )

    def data_size(self, value: Value, what: str, most: Dim | None = None, least: Dim = 0, name: str = "") -> Dim:
        """Return the number in an integer scalar as a dim, a new one where data decides it (`size_of`).

        UnsupportedModel if it has no bound: neither `most` nor what can be shown of how it is computed.
        """
        self.settle(value, f"{what} differs between sizes")
        dim = self.size_of(value, most, least, name or self.node.op)
        if dim is None:
            self.fail(
                f"{what} is a number that data decides, and nothing bounds it, so no memory can be planned for it; make "
                "it constant, or clip it to a constant or to the extent of a tensor (Min, Clip)"
            )
        return dim

    def shape_elements(self, value: Value, what: str) -> list[Element]:
        """Return the elements of an integer tensor that is a shape or part of one: dims, and Unknown where data decides.

        UnsupportedModel if it has too many elements for that.
        """
        elements = self.elements(value)
        if elements is None:
            return list(self.ints(value, what))
        if any(isinstance(element, Unknown) for element in elements):
            self.settle(value, f"{what} differs between sizes")
        return elements

    def extents(self, value: Value, what: str) -> list[Dim]:
        """Return the elements of an integer tensor as extents; those that data decides are new sizes (`data_size`)."""
        found = self.shape_elements(value, what)
        return [
            self.data_size(self.scalar_of(element), f"axis {axis} of {what}") if isinstance(element, Unknown) else element
            for axis, element in enumerate(found)
        ]

    def integer(self, value: Value, what: str) -> Dim:
        """Return the only element of an integer tensor; see `ints`."""
        elements = self.ints(value, what)
        if len(elements) != 1:
            self.invalid(f"{what} must be one number, got {len(elements)}")
        return elements[0]

    def numbers(self, value: Value, what: str) -> np.ndarray:
        """Return the elements as a numeric array; UnsupportedModel if they depend on data or on a symbolic dim."""
        elements = self.known(value)
        if elements is None or elements.dtype == object:
            self.fail(f"{what} must be constant, but it is only known when the model runs")
        return elements

    def axis(self, axis: int, rank: int, what: str = "axis") -> int:
        """Return an axis counted from the front; InvalidModel if the tensor has no such axis."""
        if not -rank <= axis < rank:
            self.invalid(f"{what} {axis} is outside -{rank}..{rank - 1}, the axes of its input")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Return axes counted from the front; InvalidModel if one is outside or named twice."""
        found = [self.axis(int(axis), rank) for axis in axes]
        if len(set(found)) != len(found):
            self.invalid(f"the axes {list(axes)} name one axis twice")
        return found

    def simplify(self, dim: Dim) -> Dim:
        """Simplify a dim under the model's ranges."""
        return simplify(dim, self.ranges)

    def is_nonnegative(self, dim: Dim) -> bool:
        """Say whether a dim is proven to be 0 or more."""
        return prove_nonnegative(dim, self.ranges)

    def within(self, dim: Dim, limit: Dim) -> None:
        """Take it that `dim` is at most `limit`, if that only narrows a symbol whose range the caller left open.

        So a table of 512 positions that is cut to the length of the input limits that length to 512.
        """
        names = symbols(dim)
        if type(limit) is not int or len(names) != 1 or not names <= set(self.open_dims):
            return
        (name,) = names
        offset = dim - symbol(name)
        known = self.ranges[name]
        if type(offset) is int and known.min <= limit - offset < known.max:
            most = limit - offset
            self.ranges[name] = Range(known.min, min(known.opt, most), most)
            self.narrowed[name, "max"] = (
                f"dim {name!r} is limited to {most}: {self.node} takes that many elements of a table of {limit}"
            )

    def at_least(self, dim: Dim, low: int) -> None:
        """Take it that `dim` is at least `low`, if that only narrows a symbol whose range the caller left open.

        So an image that a convolution shrinks by 9 is at least 9 wide.
        """
        if self.is_nonnegative(dim - low):
            return
        if self.has_data_sizes(dim):
            self.at_least_when_run(dim, low)
        names = symbols(dim)
        if len(names) != 1 or not names <= set(self.open_dims):
            return
        (name,) = names
        known = self.ranges[name]
        small, large = known.min, known.max + 1  # the least size that is enough lies above one, up to the other
        while large - small > 1:
            middle = (small + large) // 2
            if prove_nonnegative(dim - low, {name: Range(middle, middle, known.max)}):
                large = middle
            else:
                small = middle
        if large <= known.max:
            self.ranges[name] = Range(large, max(known.opt, large), known.max)
            self.narrowed[name, "min"] = f"dim {name!r} is at least {large}: less is too small for {self.node}"

    def holds(self, dim: Dim, why: str) -> bool | None:
        """Say whether a dim is 0 or more for all sizes; None if that cannot be told.

        Where it differs from size to size, the import starts anew with the range split there; `why` says, after the
        node's name, what depends on it.
        """
        found = decided(dim, self.splittable, self.ranges)
        if isinstance(found, Place):
            raise Split(found.name, found.value, f"{self.node}: {why}")
        return found

    def is_one(self, dim: Dim, why: str) -> bool | None:
        """Say whether a dim is 1 for all sizes; see `holds`."""
        dim = self.simplify(dim)
        if type(dim) is int:
            return dim == 1
        more, some = self.holds(dim - 2, why), self.holds(dim - 1, why)
        return None if None in (more, some) else bool(some and not more)

    def settle(self, value: Value, why: str) -> None:
        """Split the range where that makes the elements of a small tensor known on each side; see `holds`."""
        question = self.shape_values.question(value)
        if question is not None:
            self.holds(question, why)

    def told_apart(self, a: Dim, b: Dim) -> None:
        """Split the range where, of two extents that must be equal or 1, one is 1 or both are equal for some sizes only."""
        why = f"what it does depends on which of the extents {a} and {b} is 1"
        self.is_one(a, why)
        self.is_one(b, why)
        if len(symbols(a - b)) == 1:
            why = f"the extents {a} and {b} are equal for some sizes only"
            self.holds(a - b, why)
            self.holds(b - a, why)

    def _equal(self, a: Dim, b: Dim) -> bool:
        """Besides proving it: where an open dim can make them equal, that is assumed; else the range may be split."""
        if super()._equal(a, b):
            return True
        one_is_repeated = any(type(dim) is int and dim == 1 for dim in (a, b))
        if one_is_repeated:
            return False
        if self.assume_equal(a, b):
            return True
        self.told_apart(a, b)
        return False

    def agree(self, a: Dim, b: Dim) -> bool:
        """Say whether two dims, which must be equal, are proven to be, or are so by what can be assumed."""
        return super()._equal(a, b) or self.assume_equal(a, b)

    def assume_equal(self, a: Dim, b: Dim) -> bool:
        """Assume of open dims what makes these dims equal, which they must be; return False if nothing does.

        Either a dim's range is narrowed to the sizes for which they are equal, or an Assumption is raised, which starts
        the import anew.
        """
        if self.has_data_sizes(a, b):
            return False
        found = replacement(a, b, self.open_dims, self.ranges)
        if found is not None:
            raise Assumption(*found, f"in {self.node}, {a} and {b} must be equal")
        for whole, part in ((a, b), (b, a)):  # a common factor may be left out
            ratio = exact_div(whole, part)
            if ratio is not None and symbols(ratio) and (whole, part) != (ratio, 1):
                return self.agree(ratio, 1)
        fitting = sizes_that_fit(a, b, self.open_dims, self.ranges)
        if fitting is None:
            self._assume_multiple(a, b)
            return False
        name, low, high = fitting
        self.ranges[name] = Range(low, min(max(self.ranges[name].opt, low), high), high)
        self.narrowed[name, "both"] = f"dim {name!r} is limited to {low}..{high}: in {self.node}, {a} must be {b}"
        return True

    def _assume_multiple(self, a: Dim, b: Dim) -> None:
        """Where two dims are equal for the multiples of a number only, assume that the open dim is one."""
        found = multiple_that_fits(a, b, self.open_dims, self.ranges)
        if found is not None:
            name, factor = found
            known, part = self.ranges[name], f"{name}_by_{factor}"
            high = known.max // factor
            part_range = Range(-(-known.min // factor), min(max(known.opt // factor, 1), high), high)
            reason = (
                f"in {self.node}, {a} and {b} are equal for multiples of {factor}, not for all sizes; to bound it, "
                f"say {name}={factor}*n and n=MIN:OPT:MAX"
            )
            raise Assumption(name, symbol(part) * factor, reason, {part: part_range})

    def larger(self, a: Dim, b: Dim) -> Dim:
        """Return the larger of two dims, simplified."""
        return self.simplify(maximum(a, b))

    def smaller(self, a: Dim, b: Dim) -> Dim:
        """Return the smaller of two dims, simplified."""
        return self.simplify(minimum(a, b))

    def ceil_div(self, a: Dim, b: Dim) -> Dim:
        """Return a / b rounded up, simplified."""
        return self.simplify(ceil_div(a, b))

    def windows(
        self,
        x: Value,
        axes: Sequence[int],
        kernel: Sequence[Dim],
        before: Sequence[Dim],
        out_sizes: Sequence[Dim],
        strides: Sequence[Dim] | None = None,
        dilations: Sequence[Dim] | None = None,
        fill: int | float | bool = 0,
    ) -> Value:
        """Return all windows of x along `axes` as new last axes; `fill` stands outside of x (`plan.view.windows`)."""
        ones = [1] * len(axes)
        steps, gaps, outside = strides or ones, dilations or ones, _in_kind(fill, x.dtype)
        made = view.windows(x.shape, axes, kernel, steps, gaps, before, out_sizes, outside, self.ranges)
        return self.view(x, made)

    def indexed(
        self, x: Value, out_shape: Sequence[Dim], index: Sequence[Dim], valid: Sequence[Bound] = (), fill: Any = None
    ) -> Value:
        """Return the view of x with these index expressions of the output's index variables (`plan.view.View.make`)."""
        outside = None if fill is None else _in_kind(fill, x.dtype)
        return self.view(x, View.make(x.shape, out_shape, index, valid, outside, self.ranges))

    def dims_tensor(self, dims: Sequence[Dim]) -> Value:
        """Return an int64 vector of dims."""
        if all(type(dim) is int for dim in dims):
            return self.constant(np.array(dims, np.int64))
        return self.concat([self.reshape(self.dim_value(dim), (1,)) for dim in dims], 0)

    def settled(self, value: Value) -> Value:
        """Return the shortest way to write a small integer or bool tensor whose elements are known; else `value`."""
        if value.dtype.is_float or value.node.op in ("constant", "input"):
            return value
        elements = self.known(value)
        if elements is None:
            return value
        if elements.dtype != object:
            return self.constant(np.array(elements, value.dtype.numpy))
        if elements.size != 1:
            return value
        scalar = self.dim_value(elements.reshape(-1)[0])
        return self.cast(self.reshape(scalar, value.shape), value.dtype)


def _in_kind(number: int | float | bool, dtype: DType) -> int | float | bool:
    """Return the number as the kind of Python number that stands for `dtype`, so that equal views are equal objects."""
    if dtype.is_float:
        return float(number)
    return int(number) if dtype.is_integer else bool(number)


def onnx_dtype(b: NodeBuilder, code: int, what: str) -> DType:
    """Return the dtype of an ONNX element type number; UnsupportedModel, naming `what`, if kernels cannot hold it."""
    from .tensors import NARROW, numpy_dtype

    found = numpy_dtype(code, f"{b.node}: {what}")
    if found in NARROW:
        b.fail(f"{what} is the four-bit type {found}, which only weights may have")
    return from_numpy(found)
