"""A run whose inputs stay on the device, for measuring and for running the same feeds again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..plan.errors import InvalidInput
from .binding import BoundPlan
from .cuda_context import Context
from .cuda_driver import destroy_quietly
from .cuda_program import Program
from .launches import Launch
from .step_times import StepTime, time_steps

if TYPE_CHECKING:
    from .cuda_backend import CudaBackend


class BoundRun:
    """A run whose inputs lie on the device: `launch` enqueues it again, without copies, for measuring.

    One thread may use it at a time. Close it, or use it in a `with` block, to give its context back.
    """

    def __init__(self, backend: CudaBackend, context: Context, bound: BoundPlan, program: Program) -> None:
        self._backend = backend
        self._context: Context | None = context
        self._bound = bound
        self._program = program

    @property
    def nodes(self) -> int:
        """Nodes of the graph, or of all graphs that were made so far; 0 if kernels are launched one by one."""
        return self._program.nodes

    @property
    def graphs(self) -> int:
        """How many graphs were made so far."""
        return self._program.graphs

    @property
    def launches(self) -> list[Launch]:
        """What a run launches, in order; where that is decided while running, what the last run did."""
        return self._program.launches

    @property
    def read_backs(self) -> int:
        """Scalars that the last run looked at to decide what comes next."""
        return self._program.read_backs

    def launch(self) -> None:
        """Enqueue the work once and return at once, or after the last decision if the plan decides while it runs."""
        context = self._lent()
        with self._backend.driver.current():
            context.launch(self._bound, self._program)

    def synchronize(self) -> None:
        """Wait until all that was launched is done."""
        context = self._lent()
        with self._backend.driver.current():
            context.synchronize()

    def outputs(self, output_positions: Sequence[int] | None = None) -> list[np.ndarray]:
        """Wait, and return the outputs as new arrays."""
        context = self._lent()
        wanted = range(len(self._bound.plan.outputs)) if output_positions is None else output_positions
        with self._backend.driver.current():
            return context.fetch(self._bound, self._program, wanted)

    def time_replay(self, n: int = 50, warmup: int = 10) -> float:
        """Return the mean seconds of a run, by events around `n` runs in a row after `warmup` others."""
        context = self._lent()
        driver = self._backend.driver
        with driver.current():
            events = [driver.call("cuEventCreate", 0) for _ in range(2)]
            try:
                for _ in range(warmup):
                    context.launch(self._bound, self._program)
                driver.call("cuEventRecord", events[0], context.stream)
                for _ in range(n):
                    context.launch(self._bound, self._program)
                driver.call("cuEventRecord", events[1], context.stream)
                driver.call("cuEventSynchronize", events[1])
                return driver.call("cuEventElapsedTime", *events) / 1e3 / n
            finally:
                for event in events:
                    driver.call("cuEventDestroy", event)

    def run_times(self, n: int = 100, warmup_seconds: float = 0.2) -> list[float]:
        """Return the seconds of each of `n` runs, by events around each, after running for `warmup_seconds`."""
        context = self._lent()
        driver = self._backend.driver
        with driver.current():
            started = time.perf_counter()
            while True:
                context.launch(self._bound, self._program)
                context.synchronize()
                if time.perf_counter() - started >= warmup_seconds:
                    break
            events = [driver.call("cuEventCreate", 0) for _ in range(2)]
            try:
                return [self._one_run(context, events) for _ in range(n)]
            finally:
                for event in events:
                    driver.call("cuEventDestroy", event)

    def _one_run(self, context: Context, events: Sequence[Any]) -> float:
        driver = self._backend.driver
        driver.call("cuEventRecord", events[0], context.stream)
        context.launch(self._bound, self._program)
        driver.call("cuEventRecord", events[1], context.stream)
        driver.call("cuEventSynchronize", events[1])
        return driver.call("cuEventElapsedTime", *events) / 1e3

    def time_steps(self, cold: bool = False) -> list[StepTime]:
        """Return every launch and how long it takes alone; see `step_times.time_steps`."""
        context = self._lent()
        if not self._program.trail:
            self.launch()
        return time_steps(self._backend, context, self._bound, self._program, context.workspace, cold)

    @property
    def bound_plan(self) -> BoundPlan:
        """The plan with the sizes of this run."""
        return self._bound

    def close(self) -> None:
        """Give the context back; calling it twice is fine."""
        context, self._context = self._context, None
        if context is not None and not self._backend.closed:
            with self._backend.driver.current():
                destroy_quietly(context.synchronize)
            self._backend.give_back(context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lent(self) -> Context:
        if self._context is None or self._backend.closed:
            raise InvalidInput("this bound run or its session is closed; bind again")
        return self._context
