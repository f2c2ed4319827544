"""The trained digits network: accurate on images it has not seen, small, and honest in its metadata."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from luminal_onnx.models import digits, load_digits, load_digits_samples


def test_samples_are_classified_as_well_as_the_metadata_says():
    model = load_digits()
    onnx.checker.check_model(model, full_check=True)
    images, labels = load_digits_samples()
    assert images.shape == (32, 1, 8, 8)
    assert len(set(labels.tolist())) == 10
    logits, probabilities = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"image": images})
    assert (probabilities.argmax(axis=1) == labels).mean() >= 0.97
    assert np.ptp(logits, axis=0).min() > 1
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert float(metadata["accuracy"]) >= 0.97
    assert {"split", "seed", "dataset"} <= metadata.keys()


def test_files_are_small_and_the_batch_is_symbolic():
    folder = Path(digits.__file__).parent
    assert (folder / "digits.onnx").stat().st_size < 200_000
    assert (folder / "digits_samples.npz").stat().st_size < 20_000
    model = load_digits()
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"


def test_samples_were_held_out_of_training():
    """The split that the training script makes, made again: no sample is among the images trained on."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is only for training")
    from luminal_onnx.models import digits_train

    data = datasets.load_digits()
    split = digits_train.train_test_split(
        data.images, data.target, test_size=digits_train.HELD_OUT, random_state=digits_train.SEED, stratify=data.target
    )
    images, labels = load_digits_samples()
    np.testing.assert_array_equal(images[:, 0], split[1][:32])
    np.testing.assert_array_equal(labels, split[3][:32])
