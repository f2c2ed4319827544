"""Loops, branches and sizes on the CPU road: real kernels, with and without the checker, in one thread and in eight."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tolerances
from control_cases import CASES
from control_plans import interpret, write
from luminal_onnx.runtime.artifact import Artifact
from luminal_onnx.runtime.session import InferenceSession


def check(outputs, expected):
    assert len(outputs) == len(expected)
    for output, wanted in zip(outputs, expected):
        tolerances.assert_close(output, wanted, tolerances.REDUCTION, vacuous_ok=not np.asarray(wanted).size)


@pytest.mark.parametrize("name", CASES)
def test_the_plan_means_what_numpy_says(name):
    case = CASES[name]()
    case.plan.validate()
    for feeds in case.feeds:
        check(interpret(case.plan, case.weights, feeds), case.expected(**feeds))


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("name", CASES)
def test_runs_are_right_whatever_ran_before(name, checked, tmp_path):
    case = CASES[name]()
    with InferenceSession(write(tmp_path / "m.luminal", case), device="cpu", check_kernels=checked) as session:
        reads = 0
        for feeds in [*case.feeds, *reversed(case.feeds)]:
            check(session.run(None, feeds), case.expected(**feeds))
            reads += case.read_backs(**feeds)
            assert session.report()["read_backs"] == reads


def test_an_artifact_of_the_second_format_always_loads():
    """Written by the release that made version 2 (`python tests/control_cases.py PATH`): it is read as it was meant."""
    case = CASES["everything_at_once"]()
    with Artifact.open(Path(__file__).parent / "data" / "format_v2.luminal") as artifact:
        artifact.check()
        assert artifact.manifest["version"] == 2 and artifact.plan("sm_90") == case.plan
        with InferenceSession(artifact, device="cpu") as session:
            for feeds in case.feeds:
                check(session.run(None, feeds), case.expected(**feeds))


@pytest.mark.parametrize("name", ["recurrence_with_rows", "branch_in_a_loop", "sizes_of_sizes_in_a_loop"])
def test_eight_threads_get_right_results(name, tmp_path):
    case = CASES[name]()
    with InferenceSession(write(tmp_path / "m.luminal", case), device="cpu") as session:
        barrier = threading.Barrier(8)

        def work(seed):
            barrier.wait()
            for turn in range(12):
                feeds = case.feeds[(seed + turn) % len(case.feeds)]
                check(session.run(None, feeds), case.expected(**feeds))
            return True

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(8)))
        assert 1 <= session.report()["contexts"] <= 8
