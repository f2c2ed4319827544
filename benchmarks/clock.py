"""Timing by CUDA events, the contenders taking turns so that a drift of the clocks hits them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

import torch

SAMPLE_MS = 2.0  # a sample is of as many replays in a row as take about this long
MOST_CHAINED = 20

Sampler = Callable[[int], float]
"""Called with n: runs n times in a row and returns the mean milliseconds of one run."""


def torch_sampler(run: Callable[[], object]) -> Sampler:
    """Return the sampler of a callable that enqueues on torch's current stream."""

    def sample(count: int) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        run()  # keeps the device busy while the host enqueues the first of those that count
        begin.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count

    return sample


def chain_length(sample: Sampler) -> int:
    """Return how many replays one sample should hold, after warming up."""
    sample(3)
    return max(1, min(MOST_CHAINED, round(SAMPLE_MS / max(sample(5), 1e-4))))


def take_turns(samplers: Mapping[str, Sampler], rounds: int) -> dict[str, dict[str, float]]:
    """Return for each contender its median, fastest and slowest sample in milliseconds, and the replays in a sample."""
    chains = {name: chain_length(sample) for name, sample in samplers.items()}
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    for turn in range(rounds + 2):
        for name, sample in samplers.items():
            torch.cuda.synchronize()
            taken = sample(chains[name])
            if turn >= 2:
                samples[name].append(taken)
    return {
        name: {"ms": median(taken), "fastest": min(taken), "slowest": max(taken), "chained": chains[name]}
        for name, taken in samples.items()
    }
