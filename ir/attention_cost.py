"""What attention in one kernel costs, by the roofline of `ir/cost.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .attention import LEAST_WIDTH, classify_attention
from .region import Elementwise, Gather, Load, Region
from .scalars import TABLE

if TYPE_CHECKING:
    from .cost import CostModel

TILE_M = TILE_N = 64
WARP_M = 16
EFFICIENCY = 0.45  # of what tensor cores can do, for long sequences
START = 1.5e-6  # seconds until the first tile has come
STEP = 0.5e-6  # seconds for a tile of keys and values, at least
SOFTMAX = 8.0  # units of scalar cost beside the exponential
OVERLAP = 0.1


def attention_seconds(model: CostModel, region: Region) -> float:
    """Return the time of a region that `classify_attention` reads as attention."""
    axes, target = classify_attention(region), model.target
    space = region.nodes[axes.out].space
    batch, m, d = (model.volume(tuple(space[axis] for axis in group)) for group in (axes.batch, axes.m, axes.d))
    n, k = model.volume(region.nodes[axes.out].extents), model.volume(region.nodes[axes.scores].extents)
    rows = math.ceil(m / WARP_M) * WARP_M
    blocks = batch * math.ceil(m / TILE_M)
    filled = min(1.0, blocks / target.multiprocessors)
    padded = sum(math.ceil(width / (2 * LEAST_WIDTH)) * 2 * LEAST_WIDTH for width in (k, d))
    products = 2.0 * batch * rows * n * padded / (target.half_flops * EFFICIENCY)
    scalar = batch * rows * n * (_logit_cost(region) + TABLE["exp"].cost + SOFTMAX) / (target.f32_flops / 2)
    serial = START + math.ceil(n / TILE_N) * STEP
    size = axes.dtype.size
    again = batch * math.ceil(m / TILE_M) * n * (k + d) * size  # keys and values, for every block
    read = sum(model.volume(operand.shape) * operand.dtype.size for operand in region.operands)
    written = batch * m * d * region.nodes[axes.out].dtype.size
    moving = max((min(read, _touched(model, region)) + written) / target.bandwidth, again / target.cache_bandwidth)
    times = ((products + scalar) / filled, moving / max(filled, 0.05), serial)
    return target.launch + max(times) + OVERLAP * (sum(times) - max(times))


def _logit_cost(region: Region) -> float:
    """Return the units of scalar cost that a score takes on its way to the softmax."""
    axes = classify_attention(region)
    full = region.nodes[axes.logits].space
    between = [node for node in region.nodes[axes.scores : axes.logits + 1] if node.space == full]
    return sum(TABLE[node.fn].cost if isinstance(node, Elementwise) else 2.0 for node in between)


def _touched(model: CostModel, region: Region) -> float:
    """Return the bytes of operands that are read at all."""
    total = 0.0
    for node in region.nodes:
        if isinstance(node, Load | Gather):
            total += model.volume(node.space) * node.dtype.size
    return total
