"""Which regions are attention: `softmax(f(q k)) v`, row by row, with any elementwise f between product and softmax.

A region has no way to read a register value through a view. So all its nodes range over the axes of the result, `d` too,
which nothing but v depends on; a kernel computes scores once for all of `d`.

    result                      space [batch..., m..., d...], in any order
    probabilities, v            and n
    scores, what they become    and n
    q, k                        and n, k
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..plan.dims import Ranges, index_symbol, product
from ..plan.dtypes import DType, bfloat16, float16, float32
from ..plan.view import select
from .graph import TensorType
from .region import Broadcast, Elementwise, Load, Reduce, Region, RegionNode
from .region_axes import axes_used, through_casts, without_widening
from .region_moves import moved
from .scalars import result_dtype

LEAST_WIDTH, MOST_WIDTH = 8, 128  # of a head; multiples of LEAST_WIDTH


@dataclass(frozen=True)
class AttentionAxes:
    """A region read as attention.

    `batch`, `m` and `d` hold the row axes: those that k or v have in common with the rest, those of the queries alone,
    those of v alone. `n` is the axis of the softmax, `k` are those that queries and keys are summed over. `q`, `key`, `v`
    are the positions of the factors, each of `dtype` or widened from it; `scores` is the sum of the first product,
    `logits` what the softmax is of, `out` the sum of the second product.
    """

    batch: tuple[int, ...]
    m: tuple[int, ...]
    d: tuple[int, ...]
    n: int
    k: tuple[int, ...]
    q: int
    key: int
    v: int
    scores: int
    logits: int
    out: int
    dtype: DType


def classify_attention(region: Region) -> AttentionAxes | None:
    """Read the region as attention on tensor cores; None if it is not exactly that."""
    if len(region.reductions) != 4 or len(region.stores) != 1:
        return None
    nodes, out = region.nodes, region.stores[0]
    factors = _factors(region, out)
    if factors is None or len(nodes[out].extents) != 1:
        return None
    for p, v in (factors, factors[::-1]):
        p, v = without_widening(region, p), without_widening(region, v)
        logits = _softmax_of(region, _uncast(region, p))
        if logits is not None:
            break
    else:
        return None
    below_logits = _ancestors(region, logits)
    scores = [at for at in below_logits if isinstance(nodes[at], Reduce)]
    if len(scores) != 1 or any(isinstance(nodes[at], Reduce) for at in _ancestors(region, v)):
        return None
    first = _factors(region, scores[0])
    if first is None or nodes[scores[0]].space != nodes[out].space + nodes[out].extents:
        return None
    used = axes_used(region)
    n = len(nodes[out].space)
    q, key = first if n in used[first[1]] else first[::-1]
    q, key = without_widening(region, q), without_widening(region, key)
    if n in used[q] or n not in used[key]:
        return None
    dtype = nodes[v].dtype
    exact = all(nodes[at].dtype is dtype for at in (q, key, p)) and dtype in (float16, bfloat16)
    wide = all(node.dtype.compute is float32 for node in region.reductions)
    rows = range(n)
    d = tuple(axis for axis in rows if axis in used[v] and axis not in used[logits])
    shared = used[key] | used[v]
    batch = tuple(axis for axis in rows if axis in shared and axis not in d)
    m = tuple(axis for axis in rows if axis not in shared)
    k = tuple(range(n + 1, n + 1 + len(nodes[scores[0]].extents)))
    widths = (product(nodes[out].space[axis] for axis in d), product(nodes[scores[0]].extents))
    if not (exact and wide and m and d and all(map(_is_head_width, widths))):
        return None
    return AttentionAxes(batch, m, d, n, k, q, key, v, scores[0], logits, out, dtype)


def _is_head_width(width: object) -> bool:
    return type(width) is int and LEAST_WIDTH <= width <= MOST_WIDTH and width % LEAST_WIDTH == 0


def _factors(region: Region, at: int) -> tuple[int, int] | None:
    """Return the factors of a sum of products."""
    node = region.nodes[at]
    if not (isinstance(node, Reduce) and node.fn == "sum"):
        return None
    multiplication = region.nodes[through_casts(region, node.args[0])]
    if not (isinstance(multiplication, Elementwise) and multiplication.fn == "mul"):
        return None
    return multiplication.args


def _uncast(region: Region, at: int) -> int:
    node = region.nodes[at]
    return node.args[0] if isinstance(node, Elementwise) and node.fn == "cast" else at


def _softmax_of(region: Region, at: int) -> int | None:
    """Return x where the node is `exp(x - max x) / sum exp(x - max x)`, else None."""
    powers = _argument(region, at, "div", 0)
    below = _argument(region, at, "div", 1)
    if powers is None or _repeated(region, below, "sum") != powers:
        return None
    difference = _argument(region, powers, "exp", 0)
    x = None if difference is None else _argument(region, difference, "sub", 0)
    if x is None or _repeated(region, _argument(region, difference, "sub", 1), "max") != x:
        return None
    return x


def _argument(region: Region, at: int, fn: str, number: int) -> int | None:
    node = region.nodes[at]
    return node.args[number] if isinstance(node, Elementwise) and node.fn == fn else None


def _repeated(region: Region, at: int, fn: str) -> int | None:
    """Return what a broadcast row value is the reduction `fn` of."""
    if not isinstance(region.nodes[at], Broadcast):
        return None
    reduction = region.nodes[region.nodes[at].args[0]]
    return reduction.args[0] if isinstance(reduction, Reduce) and reduction.fn == fn else None


def _ancestors(region: Region, root: int) -> list[int]:
    """Return the nodes that a node is computed from, itself among them, operands first."""
    found: set[int] = set()
    stack = [root]
    while stack:
        at = stack.pop()
        if at not in found:
            found.add(at)
            stack += region.nodes[at].args
    return sorted(found)


# ---- its two products, each as a region of its own -------------------------------------------------------------------


def scores_region(region: Region, axes: AttentionAxes, ranges: Ranges | None) -> tuple[Region, dict[int, int]]:
    """Return the region of the logits over [row axes but d, n], with all operands of the whole, and nodes' new places."""
    wide = region.nodes[axes.scores].space
    kept = [axis for axis in range(len(wide)) if axis not in axes.d]
    place_of = {axis: index_symbol(place) for place, axis in enumerate(kept)}
    narrow = tuple(wide[axis] for axis in kept)
    index = [place_of.get(axis, 0) for axis in range(len(wide))]
    extents = region.nodes[axes.scores].extents
    inner = [index_symbol(len(kept) + number) for number in range(len(extents))]
    moves = {
        wide: select(wide, narrow, index, ranges),
        wide + extents: select(wide + extents, narrow + extents, [*index, *inner], ranges),
    }
    slots = {slot: slot for slot in range(len(region.operands))}
    nodes: list[RegionNode] = []
    place: dict[int, int] = {}
    for at in _ancestors(region, axes.logits):
        place[at] = len(nodes)
        nodes.append(moved(region.nodes[at], place, moves, slots, ranges))
    return Region(tuple(nodes), (place[axes.logits],), region.operands), place


def values_region(region: Region, axes: AttentionAxes, ranges: Ranges | None) -> tuple[Region, dict[int, int]]:
    """Return the region of the second product, the probabilities being its operand 0 of more: node 0, the last slot."""
    out = region.nodes[axes.out]
    full = out.space + out.extents
    kept = [axis for axis in range(len(full)) if axis not in axes.d]
    probabilities = TensorType(axes.dtype, tuple(full[axis] for axis in kept))
    view = select(probabilities.shape, full, [index_symbol(axis) for axis in kept], ranges)
    nodes: list[RegionNode] = [Load(len(region.operands), view, axes.dtype, full)]
    place: dict[int, int] = {}
    for at in _ancestors(region, axes.v):
        node = region.nodes[at]
        place[at] = len(nodes)
        nodes.append(replace(node, args=tuple(place[arg] for arg in node.args)))
    factors = (0, place[axes.v])
    nodes.append(Elementwise("mul", factors, result_dtype("mul", [axes.dtype, axes.dtype], None), full))
    nodes.append(Reduce("sum", (len(nodes) - 1,), out.extents, out.dtype, out.space))
    place[axes.out] = len(nodes) - 1
    return Region(tuple(nodes), (len(nodes) - 1,), (*region.operands, probabilities)), place
