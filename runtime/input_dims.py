"""The values of a model's dims, read off the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..plan.dims import Dim, Expr, evaluate, symbol, symbols
from ..plan.errors import InvalidInput, LuminalError
from ..plan.signature import InputPort, Signature
from ..plan.solving import solve


def bind_dims(signature: Signature, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """Return the value of every dim symbol, given the shape of each input; ranks must be right already.

    Raises InvalidInput, in ONNX Runtime's words, if a size is not what the model says, lies outside its range, or
    contradicts another input.
    """
    dims: dict[str, int] = {name: r.min for name, r in signature.ranges.items() if r.min == r.max}
    first_seen: dict[str, str] = {}
    for port, shape in zip(signature.inputs, shapes):
        for axis, (dim, size) in enumerate(zip(port.shape, shape)):
            name = symbol_name(dim)
            if name is None:
                continue
            if name not in first_seen:
                allowed = signature.ranges.get(name)
                if allowed is not None and not allowed.min <= size <= allowed.max:
                    raise InvalidInput(
                        f"{_invalid(port, axis)} Expected: {name} in {allowed.min}..{allowed.max} Got: {size}\n"
                        f" Feed a size in that range, or compile with --dim {name}=MIN:OPT:MAX."
                    )
                dims[name] = size
                first_seen[name] = f"input {port.name!r} axis {axis}"
            elif dims[name] != size:
                raise InvalidInput(
                    f"{_invalid(port, axis)} Expected: {dims[name]} Got: {size}\n"
                    f" Dim {name} is {dims[name]} from {first_seen[name]}; it must be the same everywhere."
                )
    _solve_others(signature, shapes, dims)
    for port, shape in zip(signature.inputs, shapes):
        for axis, (dim, size) in enumerate(zip(port.shape, shape)):
            expected = _evaluated(dim, dims, port)
            if expected != size:
                why = "" if isinstance(dim, int) else f" ({dim} for {told(dims)})"
                raise InvalidInput(
                    f"{_invalid(port, axis)} Expected: {expected}{why} Got: {size}\n"
                    " Please fix either the inputs/outputs or the model."
                )
    return dims


def _solve_others(signature: Signature, shapes: Sequence[Sequence[int]], dims: dict[str, int]) -> None:
    """Add symbols that no axis shows alone, such as h where an axis is `32*h`."""
    for port, shape in zip(signature.inputs, shapes):
        for axis, (dim, size) in enumerate(zip(port.shape, shape)):
            solved = solve(dim, size)
            if solved is None or solved[0] in dims:
                continue
            name, value = solved
            allowed = signature.ranges.get(name)
            if allowed is not None and not allowed.min <= value <= allowed.max:
                raise InvalidInput(
                    f"{_invalid(port, axis)} Expected: {dim} with {name} in {allowed.min}..{allowed.max} Got: {size}\n"
                    f" Feed a size in that range, or compile with --dim {name}=MIN:OPT:MAX."
                )
            dims[name] = value


def symbol_name(dim: Dim) -> str | None:
    """Return the name of a dim that is a single symbol, else None."""
    if not isinstance(dim, Expr):
        return None
    names = symbols(dim)
    if len(names) != 1:
        return None
    (name,) = names
    return name if dim == symbol(name) else None


def _evaluated(dim: Dim, dims: Mapping[str, int], port: InputPort) -> int:
    if isinstance(dim, int):
        return dim
    unknown = sorted(symbols(dim) - set(dims))
    if unknown:
        raise LuminalError(f"input {port.name!r}: dim {', '.join(unknown)} of {dim} is the size of no input axis")
    return int(evaluate(dim, dims))


def _invalid(port: InputPort, axis: int) -> str:
    return f"Got invalid dimensions for input: {port.name} for the following indices\n index: {axis}"


def told(dims: Mapping[str, int]) -> str:
    """Return dims as text for a message, such as `batch=4, seq=7`."""
    return ", ".join(f"{name}={value}" for name, value in dims.items()) or "this model"
