"""Whether a joined product is worth it, decided before candidates are made.

Every reader of a part could read the joined product as well, through a slice. To leave that open for each reader would
double the ways to compute all that follows, and only mixtures that gain nothing would be added: where one reader has the
joined product made, the others read it for free. So one call is compared with several, and the loser's loads vanish.
"""

from __future__ import annotations

from collections.abc import Collection

from ..cost import CostModel
from .classes import Classes
from .lift import dtype_of


def settle_joined(classes: Classes, costs: CostModel) -> None:
    """Let readers load from the joined product where it is cheaper than its parts, else from the parts.

    A part keeps its own product and its copy out of the joined one, for whoever needs it in memory by itself.
    """
    for joint, parts in sorted(classes.parts.items()):
        if _is_cheaper(joint, parts, classes, costs):
            _drop_reads(classes, parts, joint)
        else:
            _drop_reads(classes, {joint}, None)


def _is_cheaper(joint: int, parts: Collection[int], classes: Classes, costs: CostModel) -> bool:
    together = _library_seconds(joint, classes, costs)
    apart = [_library_seconds(part, classes, costs) for part in parts]
    if together is None or None in apart:
        return False
    for part in parts:
        if part in classes.outputs:
            size = dtype_of(classes.tensor_dtypes[part]).size
            together += costs.copy(2.0 * size * costs.volume(classes.shape_of(part)))
    return together < sum(apart)


def _library_seconds(tensor: int, classes: Classes, costs: CostModel) -> float | None:
    calls = classes.library.get(tensor, ())
    return min((costs.lt(classes.saturated.handles.thing(call.record)) for call in calls), default=None)


def _drop_reads(classes: Classes, tensors: Collection[int], instead: int | None) -> None:
    """Drop what reads the tensors where something else does without them: with `instead` given, where that is read."""
    for register, nodes in classes.registers.items():
        loaded = {node.tensor for node in nodes if node.kind == "load"}
        if loaded.isdisjoint(tensors) or (instead is not None and instead not in loaded):
            continue
        classes.registers[register] = [
            node for node in nodes if not (node.kind == "load" and node.tensor in tensors)
        ]
    for tensor, calls in classes.library.items():
        left = [call for call in calls if not set(tensors).intersection(call.operands)]
        if left and (instead is None or any(instead in call.operands for call in left)):
            classes.library[tensor] = left
