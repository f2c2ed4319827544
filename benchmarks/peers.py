"""The peers: the same module run by torch, each as a callable that enqueues one inference."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models import Workload


class Unfit(Exception):
    """This peer is not for this workload."""


class Peer:
    """One way of torch's to run a module. `run` enqueues an inference; `outputs` waits and returns its results.

    `eager` launches kernel by kernel; `graph` replays a CUDA graph of that; `inductor` and `max-autotune` replay a CUDA
    graph of what `torch.compile` made, which saves them the host's work and the copies of their own graph modes;
    `reduce-overhead` is torch's own graph mode. "-cl" has images and weights in the channels-last layout.
    """

    def __init__(self, name: str, workload: Workload) -> None:
        kind = name.removesuffix("-cl")
        module, inputs = workload.module, list(workload.inputs.values())
        if name.endswith("-cl"):
            if not workload.images:
                raise Unfit("only models of images have a layout to choose")
            # A copy, since graphs of the other layout hold the addresses of the module's own weights.
            module = copy.deepcopy(module).to(memory_format=torch.channels_last)
            inputs = [value.contiguous(memory_format=torch.channels_last) for value in inputs]
        self._kept = (module, inputs)  # a captured graph holds their addresses only
        self._result: Any = None
        started = time.perf_counter()
        call = compiled(module, kind)

        def once() -> None:
            self._result = call(*inputs)

        for _ in range(3):
            once()
        torch.cuda.synchronize()
        self.compile_seconds = time.perf_counter() - started
        captures = kind in ("graph", "inductor", "max-autotune")
        self.run: Callable[[], object] = captured(once) if captures else once

    def outputs(self) -> list[Tensor]:
        self.run()
        torch.cuda.synchronize()
        found = self._result if isinstance(self._result, tuple | list) else (self._result,)
        return [value.float().cpu() for value in found]


def compiled(module: nn.Module, kind: str) -> Callable[..., Any]:
    """Return the module as the peer of that kind runs it."""
    if kind in ("eager", "graph"):
        return module
    modes = {"inductor": None, "max-autotune": "max-autotune-no-cudagraphs", "reduce-overhead": "reduce-overhead"}
    return torch.compile(module, mode=modes[kind], dynamic=False)


def captured(once: Callable[[], None]) -> Callable[[], None]:
    """Capture a callable in a CUDA graph and return the replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            once()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        once()
    return graph.replay
