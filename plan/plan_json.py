"""A plan as plain lists, dicts, strings and numbers, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .control import Carried, If, Loop, Merged, Row, Segment, Sequence, Size, Tree
from .dims import Dim, parse
from .lt import LtMatmul
from .steps import KernelRecord, KernelStep, LtStep, Step


def dim_out(dim: Dim) -> int | str:
    """Return a dim as a number or its text."""
    return dim if isinstance(dim, int) else str(dim)


def dim_in(data: int | str) -> Dim:
    """Return the dim that `dim_out` wrote."""
    return parse(data) if isinstance(data, str) else data


def dims_out(dims: Iterable[Dim]) -> list[int | str]:
    """Return dims as a list of numbers and texts."""
    return [dim_out(dim) for dim in dims]


def dims_in(data: Iterable[int | str]) -> tuple[Dim, ...]:
    """Return the dims that `dims_out` wrote."""
    return tuple(dim_in(dim) for dim in data)


def tree_out(node: Tree) -> dict[str, Any]:
    """Return a plan's tree; `tree_in` reads it back to an equal one."""
    if isinstance(node, Segment):
        return {"segment": [_step_out(step) for step in node.steps]}
    if isinstance(node, Sequence):
        return {"sequence": [tree_out(child) for child in node.children]}
    if isinstance(node, Size):
        return {"size": {**vars(node), "least": dim_out(node.least), "most": dim_out(node.most)}}
    if isinstance(node, If):
        return {
            "if": {
                "condition": node.condition,
                "results": [vars(merged) for merged in node.results],
                "then": tree_out(node.then),
                "otherwise": tree_out(node.otherwise),
            }
        }
    return {
        "loop": {
            "trip": node.trip,
            "trips": None if node.trips is None else dim_out(node.trips),
            "condition": None if node.condition is None else list(node.condition),
            "carried": [vars(carried) for carried in node.carried],
            "rows": [vars(row) for row in node.rows],
            "count": node.count,
            "body": tree_out(node.body),
        }
    }


def tree_in(data: Mapping[str, Any]) -> Tree:
    """Return the tree that `tree_out` wrote."""
    ((kind, held),) = data.items()
    if kind == "segment":
        return Segment(tuple(_step_in(step) for step in held))
    if kind == "sequence":
        return Sequence(tuple(tree_in(child) for child in held))
    if kind == "size":
        return Size(**{**held, "least": dim_in(held["least"]), "most": dim_in(held["most"])})
    if kind == "if":
        results = tuple(Merged(**merged) for merged in held["results"])
        return If(held["condition"], tree_in(held["then"]), tree_in(held["otherwise"]), results)
    if kind != "loop":
        raise ValueError(f"unknown kind of plan node {kind!r}")
    return Loop(
        trip=held["trip"],
        trips=None if held["trips"] is None else dim_in(held["trips"]),
        body=tree_in(held["body"]),
        carried=tuple(Carried(**carried) for carried in held["carried"]),
        rows=tuple(Row(**row) for row in held["rows"]),
        condition=None if held["condition"] is None else (held["condition"][0], held["condition"][1]),
        count=held["count"],
    )


def _step_out(step: Step) -> dict[str, Any]:
    common = {"writes": list(step.writes), "reads": list(step.reads), "origin": list(step.origin)}
    if isinstance(step, LtStep):
        return {"lt": step.matmul.to_json(), **common}
    record = dict(vars(step.kernel))
    for name in ("grid", "scalars", "block"):
        record[name] = dims_out(record[name])
    for name in ("flops", "bytes_moved"):
        record[name] = dim_out(record[name])
    return {"kernel": record, **common}


def _step_in(data: Mapping[str, Any]) -> Step:
    common = {name: tuple(data[name]) for name in ("writes", "reads", "origin")}
    if "lt" in data:
        return LtStep(LtMatmul.from_json(data["lt"]), **common)
    record = dict(data["kernel"])
    for name in ("grid", "scalars", "block"):
        record[name] = dims_in(record[name])
    for name in ("flops", "bytes_moved"):
        record[name] = dim_in(record[name])
    return KernelStep(KernelRecord(**record), **common)
