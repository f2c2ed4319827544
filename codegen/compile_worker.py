"""The process that compiles a share of the kernels: jobs and texts come in as a pickle, machine code goes out as one."""

from __future__ import annotations

import pickle
import sys
from typing import NamedTuple

from ..plan.errors import LuminalError
from . import nvrtc


class Job(NamedTuple):
    """One compilation: the text with hash `source`, to a "cubin" or to "ptx", for an architecture."""

    source: str
    kind: str
    arch: str


def compile_job(job: Job, text: str) -> bytes:
    """Return the cubin, or the PTX as ASCII."""
    if job.kind == "cubin":
        return nvrtc.compile_cubin(text, job.arch)
    return nvrtc.compile_ptx(text, job.arch).encode("ascii")


def main() -> None:
    """Answer ("done", results in the order of the jobs) or ("error", the message)."""
    jobs, texts = pickle.load(sys.stdin.buffer)
    try:
        answer = ("done", [compile_job(job, texts[job.source]) for job in jobs])
    except LuminalError as error:
        answer = ("error", str(error))
    pickle.dump(answer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
