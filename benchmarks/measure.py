"""Measure one row on the GPU: check every contender's outputs, then time them, taking turns."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.clock import Sampler, take_turns, torch_sampler
from benchmarks.failures import one_line
from benchmarks.models import Workload, build
from benchmarks.ours import Ours
from benchmarks.peers import Peer, Unfit
from benchmarks.rows import Row

# The largest error of an output, as a share of the reference's spread, with which a contender still counts as right.
WORST_ERROR = {"float32": 1e-4, "float16": 3e-2}


def measure(
    row: Row, artifact: Path | None, peers: Sequence[str], rounds: int, save: Callable[[dict[str, Any]], None]
) -> None:
    """Check and time our artifact (None if there is none) and the peers; `save` is called whenever more is known."""
    warnings.filterwarnings("ignore")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    workload = build(row)
    feeds = {name: value.numpy() for name, value in workload.inputs.items()}
    result: dict[str, Any] = {"contenders": {}}
    try:
        result.update(counted(workload))
    except Exception as error:  # the roofline is then missing, nothing else
        result["uncounted"] = one_line(error)
    reference = exact(workload)
    workload.module = workload.module.cuda()
    workload.inputs = {name: value.cuda() for name, value in workload.inputs.items()}
    result["spread"] = [float(value.max() - value.min()) for value in reference]
    samplers: dict[str, Sampler] = {}
    kept: list[Any] = []

    def enter(name: str, make: Callable[[], tuple[Any, Sampler]]) -> None:
        """Set a contender up and check it; one that fails is reported and left out, one that is wrong is marked."""
        entry: dict[str, Any] = {}
        result["contenders"][name] = entry
        try:
            contender, sampler = make()
            error = worst_error([torch.as_tensor(value) for value in contender.outputs()], reference)
            entry["error"] = error
            entry["compile_seconds"] = getattr(contender, "compile_seconds", None)
            if not error <= WORST_ERROR[row.dtype]:
                limit = WORST_ERROR[row.dtype]
                entry["failure"] = (
                    f"WRONG OUTPUTS: error {error:.3g} of the spread, at most {limit:g} allowed; timed all the same"
                )
            kept.append(contender)
            # Timed on its own first, so that a number is there should a later contender hang or crash.
            entry.update(take_turns({name: sampler}, 5)[name])
            samplers[name] = sampler
        except Unfit:
            del result["contenders"][name]
        except Exception as error:  # a peer may raise anything; the others go on
            entry["failure"] = one_line(error)
        save(result)

    def peer(name: str) -> tuple[Peer, Sampler]:
        contender = Peer(name, workload)
        return contender, torch_sampler(contender.run)

    def ours() -> tuple[Ours, Sampler]:
        contender = Ours(artifact, feeds)
        return contender, contender.sample

    if artifact is not None:
        enter("ours", ours)
    for name in peers:
        enter(name, lambda name=name: peer(name))
    for name, times in take_turns(samplers, rounds).items():
        result["contenders"][name].update(times)
    for contender in kept:
        if isinstance(contender, Ours):
            result["memory"] = contender.session.memory_bytes()
    result["complete"] = True
    save(result)


def exact(workload: Workload) -> list[Tensor]:
    """Return the outputs of the very weights and inputs in float32, without tensor cores."""
    module = workload.module
    dtype = next(module.parameters()).dtype
    inputs = [value.cuda() for value in workload.inputs.values()]
    inputs = [value.float() if value.is_floating_point() else value for value in inputs]
    found = module.cuda().float()(*inputs)
    found = found if isinstance(found, tuple | list) else (found,)
    reference = [value.float().cpu() for value in found]
    module.to(dtype)  # what was rounded once comes back to the bit
    del found, inputs
    gc.collect()
    torch.cuda.empty_cache()
    return reference


def worst_error(found: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """Return the largest difference of any output as a share of that output's spread; NaN counts as infinite."""
    if len(found) != len(reference):
        raise ValueError(f"{len(found)} outputs, expected {len(reference)}")
    worst = 0.0
    for ours, right in zip(found, reference):
        if ours.shape != right.shape:
            raise ValueError(f"an output is {list(ours.shape)}, expected {list(right.shape)}")
        spread = float(right.max() - right.min())
        if not spread > 0:
            raise ValueError("the reference output is constant, so that nothing could be checked")
        error = float((ours.float() - right).abs().max()) / spread
        worst = float("inf") if math.isnan(error) else max(worst, error)
    return worst


def counted(workload: Workload) -> dict[str, int]:
    """Return the operations of matrix products and convolutions, and the bytes that must cross the memory bus once.

    Counted on tensors without storage; weights and inputs are read once, outputs written once.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    weights = sum(value.nbytes for value in workload.module.state_dict().values())
    tables = [table.weight for table in workload.tables]
    unread = sum(table.nbytes - workload.lookups * table[0].nbytes for table in tables)
    moved = weights - unread + sum(value.nbytes for value in workload.inputs.values())
    torch.backends.mha.set_fastpath_enabled(False)  # the fused operator is one that the counter does not know
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, FlopCounterMode(display=False) as counter:
            outputs = workload.module(*(mode.from_tensor(value) for value in workload.inputs.values()))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    moved += sum(value.numel() * value.element_size() for value in outputs)
    return {"flops": counter.get_total_flops(), "bytes": moved}
