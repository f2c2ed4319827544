"""The check that every register class has one space: whatever is equal is computed over the same dims.

Constants are the same over any space, and so is what is made of constants alone; such classes have none. Rules cannot
tell them apart, so this is not a fact like those of `rules/facts.egg` but looked at once, after saturation.
"""

from __future__ import annotations

from .engine import FactConflict, Row
from .handles import Handles, Shape


def check_spaces(rows: dict[str, list[Row]], handles: Handles) -> dict[int, Shape]:
    """Return the space of each register class that has one; FactConflict if two nodes of a class disagree."""
    found: dict[int, Shape] = {}
    polymorphic = _polymorphic(rows)
    for _, view, _, register in rows["Load"]:
        _note(found, register, handles.thing(view).out_shape, polymorphic)
    for _, shape, register in rows["Iota"]:
        _note(found, register, handles.thing(shape), polymorphic)
    waiting = [
        (register, _operands(name, row), _space_of(name, row, handles))
        for name in _INNER
        for *row, register in rows[name]
    ]
    while waiting:
        later = []
        for register, operands, space_of in waiting:
            known = [found[operand] for operand in operands if operand in found]
            if not known:
                later.append((register, operands, space_of))
                continue
            for space in known:
                result = space_of(space)
                if result is None:
                    raise FactConflict("space")
                _note(found, register, result, polymorphic)
        if len(later) == len(waiting):
            break
        waiting = later
    return found


def _polymorphic(rows: dict[str, list[Row]]) -> set[int]:
    """Return the classes of constants and of what is made of them alone: the same over any space, wherever it is read."""
    found = {row[-1] for row in rows["Const"]}
    waiting = [(register, _operands(name, row)) for name in _INNER for *row, register in rows[name]]
    while True:
        fresh = {register for register, operands in waiting if found.issuperset(operands)} - found
        if not fresh:
            return found
        found |= fresh


_INNER = {"E1": (1,), "E2": (1, 2), "E3": (1, 2, 3), "Gather": (1,), "Red": (1,), "Bcast": (0,)}


def _operands(name: str, row: list) -> list[int]:
    return [row[position] for position in _INNER[name]]


def _space_of(name: str, row: list, handles: Handles):
    if name == "Red":
        extents = handles.thing(row[2])
        return lambda space: space[: -len(extents)] if space[len(space) - len(extents) :] == extents else None
    if name == "Bcast":
        extents = handles.thing(row[1])
        return lambda space: space + extents
    return lambda space: space


def _note(found: dict[int, Shape], register: int, space: Shape, polymorphic: set[int]) -> None:
    if register not in polymorphic and found.setdefault(register, space) != space:
        raise FactConflict("space")
