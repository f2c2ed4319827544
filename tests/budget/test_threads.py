"""One session, eight threads, a thousand runs each, on the CPU road: no wrong result, and memory that does not grow."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

import luminal_onnx
from luminal_onnx.models import load_digits, load_digits_samples

pytestmark = pytest.mark.slow

THREADS, RUNS = 8, 1000
# What the allocator may keep back from the operating system between run 100 and run 1000, all threads together.
SLACK_BYTES = 4 * 2**20


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_eight_threads_share_a_session_for_a_thousand_runs_each() -> None:
    images, _ = load_digits_samples()
    feeds = [{"image": images[index : index + 1 + index % 3]} for index in range(THREADS)]
    artifact = luminal_onnx.compile(load_digits(), dims={"batch": (1, 2, 4)}, arches=["sm_90"], verify=False)
    with luminal_onnx.InferenceSession(artifact, device="cpu") as session:
        expected = [session.run(None, item) for item in feeds]
        assert all(np.ptp(outputs[0]) > 1.0 for outputs in expected)
        wrong: list[str] = []
        resident: list[int] = []
        meeting = threading.Barrier(THREADS)

        def work(number: int) -> None:
            for turn in range(RUNS):
                which = (number + turn) % THREADS
                for got, want in zip(session.run(None, feeds[which]), expected[which]):
                    if not np.array_equal(got, want):
                        wrong.append(f"thread {number}, run {turn}")
                if turn in (100, RUNS - 1) and meeting.wait() == 0:
                    gc.collect()
                    resident.append(_resident_bytes())

        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[:3]
    after_100, after_all = resident
    assert after_all - after_100 <= SLACK_BYTES, f"{after_100} bytes after 100 runs, {after_all} after {RUNS}"
