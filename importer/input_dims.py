"""Dims of the model's inputs: names from the model, made safe and unique, and what the caller fixed or bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import onnx

from ..plan.dims import Dim, Range, parse, substitute, symbol, symbols
from ..plan.errors import InvalidInput, InvalidModel

DimSpec = int | str | tuple[int, int] | tuple[int, int, int]
DEFAULT_RANGE = Range(1, 1, 4096)
_OPERATOR = re.compile(r"[-+*/%()]")


class InputDims:
    """The shapes of the model's inputs as dims, with a range for each symbol that is left.

    An axis without a usable name is called `<input>_d<axis>`. Equal names are one symbol. A name that is an expression
    of other inputs' names ("past + sequence") is that expression. `original` maps each symbol to the model's spelling.
    """

    def __init__(self, inputs: Sequence[onnx.ValueInfoProto]) -> None:
        self.original: dict[str, str] = {}
        self._symbols: dict[str, str] = {}
        self.shapes: dict[str, tuple[Dim, ...]] = {}
        declared = {
            axis.dim_param for info in inputs for axis in _axes(info) if axis.WhichOneof("value") == "dim_param"
        }
        for info in inputs:
            self.shapes[info.name] = tuple(
                self._dim(axis, f"{info.name}_d{position}", declared) for position, axis in enumerate(_axes(info))
            )
        self.ranges: dict[str, Range] = {}
        self.open: list[str] = []

    def _dim(self, axis: onnx.TensorShapeProto.Dimension, fallback: str, declared: set[str]) -> Dim:
        if axis.WhichOneof("value") == "dim_value" and axis.dim_value >= 0:
            return int(axis.dim_value)
        name = axis.dim_param if axis.WhichOneof("value") == "dim_param" else ""
        if not any(character.isalnum() for character in name) or re.fullmatch(r"-?\d+", name):
            return symbol(self._symbol(fallback))
        if _OPERATOR.search(name):
            expression = _parsed(name)
            if expression is not None and symbols(expression) <= declared - {name}:
                return substitute(expression, {inner: symbol(self._symbol(inner)) for inner in symbols(expression)})
        return symbol(self._symbol(name))

    def _symbol(self, name: str) -> str:
        """Return the symbol for a name of the model: an identifier of its own, close to the name."""
        if name not in self._symbols:
            safe = base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "dim"
            if safe[0].isdigit() or re.fullmatch(r"i\d+|max|min", safe):
                safe = base = f"dim_{safe}"
            count = 2
            while safe in self.original:
                safe, count = f"{base}_{count}", count + 1
            self._symbols[name] = safe
            self.original[safe] = name
        return self._symbols[name]

    def apply(
        self, dims: Mapping[str, DimSpec], shapes: Mapping[str, Sequence[int]], assumed: Mapping[str, Dim] | None = None
    ) -> None:
        """Fix or bound dims as the caller asked, then put what is assumed of the others in their place, in order.

        Afterwards `shapes` and `ranges` are final, and `open` has the symbols that the caller did not bound.
        """
        fixed: dict[str, Dim] = {}
        ranges: dict[str, Range] = {}
        written = {name: self._expression(name, spec) for name, spec in dims.items() if isinstance(spec, str)}
        for name, spec in dims.items():
            key = self._known(name)
            if name in written:
                fixed[key] = written[name]
            elif isinstance(spec, int):
                fixed[key] = _size(name, spec)
            else:
                known = _range(name, spec)
                if known.min == known.max:
                    fixed[key] = known.min
                else:
                    ranges[key] = known
        for name, sizes in shapes.items():
            self._fix_shape(name, sizes, fixed)
        for _ in fixed:  # what stands for one dim may name others that are fixed too
            self._substitute(fixed)
        for name, value in (assumed or {}).items():
            self._substitute({name: value})
        for name, sizes in shapes.items():
            if self.shapes[name] != tuple(sizes):
                raise InvalidInput(
                    f"shapes: after fixing dims, input {name!r} has the shape {_text(self.shapes[name])}, "
                    f"not {list(sizes)}"
                )
        used = sorted({found for shape in self.shapes.values() for dim in shape for found in symbols(dim)})
        self.ranges = {name: ranges.get(name, DEFAULT_RANGE) for name in used}
        self.open = [name for name in self.original if name in used and name not in ranges]

    def _substitute(self, values: Mapping[str, Dim]) -> None:
        self.shapes = {name: tuple(substitute(dim, values) for dim in shape) for name, shape in self.shapes.items()}

    def _expression(self, name: str, text: str) -> Dim:
        """Read a dim that is given as an expression, such as `32*h`; names that the model lacks are new ones."""
        if text in self._symbols or text in self.original:
            return symbol(self._known(text))
        expression = _parsed(text)
        if expression is None or self._known(name) in symbols(expression):
            raise InvalidInput(
                f"dims: {name!r} cannot be {text!r}; expected an expression of other dims, such as '32*h'"
            )
        return substitute(expression, {inner: symbol(self._symbol(inner)) for inner in symbols(expression)})

    def _known(self, name: str) -> str:
        safe = self._symbols.get(name, name)
        if safe not in self.original:
            names = ", ".join(self.original.values()) or "none"
            raise InvalidInput(f"dims: the model's inputs have no dim {name!r}; they have: {names}")
        return safe

    def _fix_shape(self, name: str, sizes: Sequence[int], fixed: dict[str, Dim]) -> None:
        if name not in self.shapes:
            raise InvalidInput(f"shapes: the model has no input {name!r}; it has: {', '.join(self.shapes) or 'none'}")
        shape = self.shapes[name]
        if len(sizes) != len(shape):
            raise InvalidInput(f"shapes: input {name!r} has {len(shape)} axes, {_text(shape)}; got {list(sizes)}")
        for dim, size in zip(shape, sizes, strict=True):
            names = symbols(dim)
            if len(names) == 1 and dim == symbol(*names):
                (only,) = names
                if fixed.setdefault(only, int(size)) != size:
                    raise InvalidInput(f"shapes: dim {self.original[only]!r} would be both {fixed[only]} and {size}")


def _axes(info: onnx.ValueInfoProto) -> Sequence[onnx.TensorShapeProto.Dimension]:
    if not info.type.tensor_type.HasField("shape"):
        raise InvalidModel(f"input {info.name!r} has no shape, not even a rank; state one when exporting the model")
    return info.type.tensor_type.shape.dim


def _parsed(text: str) -> Dim | None:
    try:
        return parse(text)
    except (InvalidInput, ValueError, ZeroDivisionError):
        return None


def _size(name: str, size: int) -> int:
    if size < 0:
        raise InvalidInput(f"dims: {name!r} cannot be {size}")
    return int(size)


def _range(name: str, spec: Sequence[int]) -> Range:
    if len(spec) not in (2, 3):
        raise InvalidInput(f"dims: {name!r} needs a size, (min, max) or (min, opt, max), got {spec!r}")
    low, high = spec[0], spec[-1]
    return Range(low, spec[1] if len(spec) == 3 else min(max(low, 1), high), high)


def _text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"
