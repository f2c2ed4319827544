"""From one region and one schedule to one kernel."""

from __future__ import annotations

from collections.abc import Collection

from ..ir.region import Region
from ..ir.schedule import ATTENTION, ELEMENTWISE, MATMUL_MMA, MATMUL_TILED, ROW_SCHEDULES
from ..plan.dims import Ranges
from ..plan.errors import LuminalError
from ..plan.records import KernelRecord
from .attention import attention_text
from .elementwise import elementwise_text
from .matmul import matmul_text
from .matmul_mma import matmul_mma_text
from .row_program import row_program_text


def lower_region(
    region: Region,
    schedule: str,
    ranges: Ranges | None,
    name_hint: str | None = None,
    weights: Collection[int] = (),
) -> tuple[KernelRecord, str]:
    """Return the launch record and the CUDA C++ text of a region under a schedule.

    Equal regions, schedules, ranges and weights give the same text to the byte. `name_hint` becomes the record's name,
    which otherwise is the function's. `weights` are slots of operands that nothing writes while the plan runs; reads of
    those may take any order and any cache.
    """
    if schedule == ATTENTION:
        return attention_text(region, ranges).finish(name_hint, weights)
    if region.row_split() is None:
        raise LuminalError(f"no schedule fits a region whose nodes do not share one row split: {region}")
    if schedule == ELEMENTWISE and not region.reductions:
        text = elementwise_text(region, ranges)
    elif schedule in ROW_SCHEDULES and region.reductions:
        text = row_program_text(region, schedule, ranges)
    elif schedule == MATMUL_TILED:
        text = matmul_text(region, ranges)
    elif schedule == MATMUL_MMA:
        text = matmul_mma_text(region, ranges)
    else:
        raise LuminalError(f"the schedule {schedule!r} cannot run a region with {len(region.reductions)} reductions")
    return text.finish(name_hint, weights)
