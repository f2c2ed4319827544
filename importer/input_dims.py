"""Dims of the model's inputs: names from the model, made safe and unique, and what the caller fixed or bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import onnx

from ..plan.buckets import MOST_BUCKETS, Bucket, cover_problem, disjoint, grid, hull
from ..plan.dims import Dim, Range, evaluate, parse, substitute, symbol, symbols
from ..plan.errors import InvalidInput, InvalidModel
from ..plan.solving import solve
from .assumptions import Assumption

DimSpec = int | str | Sequence[int | Sequence[int]]
# The least, usual and greatest shape of each input that is named.
Profile = Mapping[str, tuple[Sequence[int], Sequence[int], Sequence[int]]]
DEFAULT_RANGE = Range(1, 1, 4096)
_OPERATOR = re.compile(r"[-+*/%()]")


class InputDims:
    """The shapes of the model's inputs as dims, with a range for each symbol that is left.

    An axis without a usable name is called `<input>_d<axis>`. Equal names are one symbol. A name that is an expression
    of other inputs' names ("past + sequence") is that expression. `original` maps each symbol to the model's spelling;
    `derived` are the symbols that assumptions made.
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
        self.buckets: list[Bucket] = [{}]
        self.open: list[str] = []
        self.derived: dict[str, Range] = {}

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
        self,
        dims: Mapping[str, DimSpec],
        shapes: Mapping[str, Sequence[int]],
        profiles: Sequence[Profile] = (),
        assumed: Sequence[Assumption] = (),
    ) -> None:
        """Fix or bound dims as the caller asked, then put what is assumed of the others in their place, in order.

        Afterwards `shapes` and `ranges` are final, `buckets` has the boxes that the caller cut the range into, and `open`
        the symbols that the caller did not bound.
        """
        fixed: dict[str, Dim] = {}
        parts: dict[str, list[Range]] = {}
        written = {name: self._expression(name, spec) for name, spec in dims.items() if isinstance(spec, str)}
        for name, spec in dims.items():
            key = self._known(name)
            if name in written:
                fixed[key] = written[name]
            elif isinstance(spec, int):
                fixed[key] = _size(name, spec)
            else:
                parts[key] = _parts(name, spec)
        by_profile = [self._profile(number, profile) for number, profile in enumerate(profiles)]
        _check_profiles(by_profile, {self.original[key] for key in (*fixed, *parts)}, self.original)
        for name, sizes in shapes.items():
            self._fix_shape(name, sizes, fixed)
        boxes = [{**cell, **box} for box in disjoint(by_profile or [{}]) for cell in grid(parts)]
        bounded = set(boxes[0])
        one_size = {name: known[0].min for name, known in parts.items() if len(known) == 1 and _is_fixed(known[0])}
        one_size |= {n: r.min for n, r in boxes[0].items() if len(boxes) == 1 and _is_fixed(r)}
        fixed.update(one_size)
        for _ in fixed:  # what stands for one dim may name others that are fixed too
            self._substitute(fixed)
        for assumption in assumed:
            self._substitute({assumption.name: assumption.value})
            self.derived.update(assumption.ranges)
            self.original.update({new: new for new in assumption.ranges if new not in self.original})
        for name, sizes in shapes.items():
            if self.shapes[name] != tuple(sizes):
                raise InvalidInput(
                    f"shapes: after fixing dims, input {name!r} has the shape {_text(self.shapes[name])}, "
                    f"not {list(sizes)}"
                )
        used = sorted({found for shape in self.shapes.values() for dim in shape for found in symbols(dim)})
        self.open = [name for name in self.original if name in used and name not in bounded]
        unsaid = {name: self.derived.get(name, DEFAULT_RANGE) for name in used if name not in bounded}
        self._set_buckets(disjoint({name: {**unsaid, **box}[name] for name in used} for box in boxes))

    def _set_buckets(self, boxes: list[dict[str, Range]]) -> None:
        whole = hull(boxes)
        problem = cover_problem(whole, boxes)
        if problem is not None:
            raise InvalidInput(f"dims: the ranges given leave a gap: {problem}; together they must be one range")
        if len(boxes) > MOST_BUCKETS:
            raise InvalidInput(
                f"dims: the ranges given make {len(boxes)} buckets, more than the {MOST_BUCKETS} allowed"
            )
        self.ranges, self.buckets = whole, boxes

    def within(self, bucket: Bucket) -> tuple[dict[str, tuple[Dim, ...]], dict[str, Range]]:
        """Return the inputs' shapes in a bucket, and the ranges of the symbols that are left in them."""
        fixed = {name: known.min for name, known in bucket.items() if _is_fixed(known)}
        shapes = {name: tuple(substitute(dim, fixed) for dim in shape) for name, shape in self.shapes.items()}
        return shapes, {name: known for name, known in bucket.items() if name not in fixed}

    def _profile(self, number: int, profile: Profile) -> dict[str, Range]:
        """Return the range that a profile gives each symbol."""
        found: dict[str, Range] = {}
        for name, given in profile.items():
            if name not in self.shapes:
                raise InvalidInput(
                    f"profile {number}: the model has no input {name!r}; it has: {', '.join(self.shapes) or 'none'}"
                )
            shape = self.shapes[name]
            if len(given) != 3 or any(len(sizes) != len(shape) for sizes in given):
                raise InvalidInput(
                    f"profile {number}: input {name!r} needs a min, an opt and a max shape of {len(shape)} axes, "
                    f"{_text(shape)}; got {', '.join(str(list(sizes)) for sizes in given)}"
                )
            for axis, (dim, *sizes) in enumerate(zip(shape, *given)):
                told = f"profile {number}: axis {axis} of input {name!r}"
                for symbol_name, known in _solved(dim, sizes, told):
                    if found.setdefault(symbol_name, known) != known:
                        raise InvalidInput(
                            f"{told} gives dim {self.original[symbol_name]!r} {_range_text(known)}, "
                            f"another axis {_range_text(found[symbol_name])}; one dim has one range"
                        )
        return found

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


def _parts(name: str, spec: Sequence[int | Sequence[int]]) -> list[Range]:
    """Return the ranges that a dim's sizes are cut into, in ascending order: one, or one for each bucket."""
    if all(isinstance(part, int) for part in spec):
        return [_range(name, spec)]
    parts = sorted(
        (_range(name, (part, part) if isinstance(part, int) else part) for part in spec), key=lambda r: r.min
    )
    for left, right in zip(parts, parts[1:]):
        if right.min != left.max + 1:
            what = "leave out" if right.min > left.max + 1 else "overlap at"
            low, high = sorted((left.max + 1, right.min - 1)) if right.min > left.max else (right.min, left.max)
            sizes = f"{low}..{high}" if low != high else str(low)
            raise InvalidInput(f"dims: the buckets of {name!r} {what} {sizes}; each size belongs in one of them")
    return parts


def _range(name: str, spec: Sequence[int]) -> Range:
    if len(spec) not in (2, 3):
        raise InvalidInput(f"dims: {name!r} needs a size, (min, max), (min, opt, max) or a list of these, got {spec!r}")
    low, high = spec[0], spec[-1]
    return Range(low, spec[1] if len(spec) == 3 else min(max(low, 1), high), high)


def _solved(dim: Dim, sizes: Sequence[int], told: str) -> Iterator[tuple[str, Range]]:
    """Yield what three sizes of an axis, its least, usual and greatest, say of the symbol in its dim."""
    if list(sizes) != sorted(sizes):
        raise InvalidInput(f"{told}: sizes must not fall from min to opt to max, got {', '.join(map(str, sizes))}")
    if isinstance(dim, int):
        if any(size != dim for size in sizes):
            raise InvalidInput(f"{told} is {dim} in the model, not {', '.join(map(str, sizes))}")
        return
    values = []
    for size in sizes:
        solved = solve(dim, size)
        if solved is None:  # several symbols: other axes tell what they are
            return
        if evaluate(dim, dict([solved])) != size:
            raise InvalidInput(f"{told} is {dim}, which is never {size}")
        values.append(solved[1])
    yield solved[0], Range(*values)


def _check_profiles(profiles: Sequence[Mapping[str, Range]], by_name: set[str], original: Mapping[str, str]) -> None:
    """Raise InvalidInput if profiles bound what is also bounded by name, or not all the same dims."""
    for number, profile in enumerate(profiles):
        twice = sorted(original[name] for name in profile if original[name] in by_name)
        if twice:
            raise InvalidInput(f"profile {number} and dims both bound {twice[0]!r}; leave one of them out")
        differing = sorted(set(profile) ^ set(profiles[0]))
        if differing:
            raise InvalidInput(
                f"profiles 0 and {number} do not bound the same dims: {original[differing[0]]!r} is in one of them only"
            )


def _is_fixed(known: Range) -> bool:
    return known.min == known.max


def _range_text(known: Range) -> str:
    return f"{known.min}:{known.opt}:{known.max}"


def _text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"
