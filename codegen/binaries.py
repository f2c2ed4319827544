"""Compiles kernel texts for several architectures, from the cache where it can and with several processes where it must.

NVRTC compiles one kernel at a time in a process, so parallel compilation takes processes, not threads.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ..plan.errors import LuminalError
from . import kernel_cache, nvrtc
from .compile_worker import Job, compile_job

DEFAULT_ARCHES = ("sm_80", "sm_90", "sm_100")
DEFAULT_PTX = "compute_80"
# With fewer kernels than this to compile, starting another process costs more than it saves.
LEAST_SHARED_JOBS = 6
MOST_JOBS = 8


@dataclass
class Binaries:
    """Machine code by architecture and source hash, PTX by source hash, and what it took.

    `compiled` and `cached` count kernels and architectures; `seconds` is the wall time of the call.
    """

    cubins: dict[str, dict[str, bytes]] = field(default_factory=dict)
    ptx: dict[str, str] = field(default_factory=dict)
    compiled: int = 0
    cached: int = 0
    seconds: float = 0.0


def compile_sources(
    sources: Mapping[str, str],
    arches: Sequence[str] = DEFAULT_ARCHES,
    *,
    ptx: str | None = DEFAULT_PTX,
    cache: bool = True,
    jobs: int | None = None,
) -> Binaries:
    """Compile every text (by its SHA-256) to a cubin for each architecture, and to PTX unless `ptx` is None.

    At most `jobs` processes work at once; one a processor, up to 8, if that is None. LuminalError holds the compiler's messages if a text is not valid.
    """
    start = time.perf_counter()
    jobs = jobs or min(len(os.sched_getaffinity(0)), MOST_JOBS)
    wanted = [Job(source, "cubin", arch) for arch in arches for source in sources]
    if ptx is not None:
        wanted += [Job(source, "ptx", ptx) for source in sources]
    found: dict[Job, bytes] = {}
    if cache:
        for job in wanted:
            data = kernel_cache.load(kernel_cache.kernel_key(job.source, job.kind, job.arch))
            if data is not None:
                found[job] = data
    missing = [job for job in wanted if job not in found]
    result = Binaries(compiled=len(missing), cached=len(found))
    for job, data in _compile(missing, sources, jobs):
        found[job] = data
        if cache:
            kernel_cache.store(kernel_cache.kernel_key(job.source, job.kind, job.arch), data)
    result.cubins = {arch: {source: found[Job(source, "cubin", arch)] for source in sources} for arch in arches}
    if ptx is not None:
        result.ptx = {source: found[Job(source, "ptx", ptx)].decode("ascii") for source in sources}
    result.seconds = time.perf_counter() - start
    return result


def _compile(missing: Sequence[Job], sources: Mapping[str, str], jobs: int) -> list[tuple[Job, bytes]]:
    if missing:
        nvrtc.version()  # says what to install, before any process is started
    if jobs <= 1 or len(missing) < LEAST_SHARED_JOBS:
        return [(job, compile_job(job, sources[job.source])) for job in missing]
    by_size = sorted(missing, key=lambda job: -len(sources[job.source]))
    workers = min(jobs, len(missing) // 2)
    shares = [by_size[first::workers] for first in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(lambda share: _in_worker(share, sources), shares))
    return [pair for result in results for pair in result]


def _in_worker(share: Sequence[Job], sources: Mapping[str, str]) -> list[tuple[Job, bytes]]:
    """Compile a share of the jobs in another Python process, which gets and gives pickles through its pipes."""
    texts = {job.source: sources[job.source] for job in share}
    command = [sys.executable, "-P", "-m", f"{__package__}.compile_worker"]
    done = subprocess.run(command, input=pickle.dumps((list(share), texts)), capture_output=True, check=False)
    if done.returncode:
        raise LuminalError(f"a compiling process ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    status, answer = pickle.loads(done.stdout)
    if status == "error":
        raise LuminalError(answer)
    return list(zip(share, answer, strict=True))
