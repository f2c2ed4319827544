"""ONNX's own node tests: each gives its expected outputs, or stands in the list of what is not supported.

A case with an operand that must be constant is run with the operands after the first stored as initializers, or all.
"""

from __future__ import annotations

import re
import warnings

import numpy as np
import onnx
import pytest
from luminal_onnx.importer import load
from luminal_onnx.ir import interpreter
from luminal_onnx.plan.errors import UnsupportedModel
from onnx import numpy_helper
from tolerances import MODEL, assert_close

# What an unsupported case's message says -> why. A pattern that no case meets fails the test.
UNSUPPORTED = {
    r"element type (STRING|UINT2|INT2|FLOAT8|FLOAT4|COMPLEX)": "kernels hold no such type",
    r"four-bit type": "four-bit integers are for weights only",
    r"(sequence|optional)_type": "values are tensors",
    r"\.(Sequence|Optional|SplitToSequence|ConcatFromSequence)\w*, opset|TYPE_PROTO": "values are tensors",
    r"\.(String|Regex|TfIdf|ImageDecoder)\w*, opset": "text and files are read before the model",
    r"training": "inference only",
    r"\.(SoftmaxCrossEntropyLoss|NegativeLogLikelihoodLoss), opset": "losses are for training",
    r"\.(Bernoulli|Random\w+), opset": "random numbers cannot be checked",
    r"ai\.onnx\.(ml|preview)\.": "another domain",
    r"\.(Unique|NonMaxSuppression), opset": "the size of the result depends on data",
    r"\.(LinearAttention|CausalConvWithState|BitCast), opset": "new in opset 26 and 27",
    r"\.(DeformConv|RoiAlign|Det|MelWeightMatrix), opset": "not written",
    r"tf_crop_and_resize|antialias=1|keep_aspect_ratio_policy": "not written",
    r"an inverse transform of one side": "not written",
    r"version 8 of this operator": "Scan had another form in opset 8",
}
# Expected outputs that do not follow from the text of the specification, and which onnxruntime does not give either.
DISPUTED = {
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
}
DATA_DECIDES = re.compile("depends on the data|must be constant|must be a number|only known when the model runs")


def array(value: object) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def imported(model: onnx.ModelProto, inputs: list):
    """Import a case, with operands made constant where it cannot be done otherwise."""
    try:
        return load(model).graph
    except UnsupportedModel as error:
        if not DATA_DECIDES.search(str(error)):
            raise
    for first in (1, 0):
        fixed = onnx.ModelProto()
        fixed.CopyFrom(model)
        for info, value in list(zip(model.graph.input, inputs, strict=True))[first:]:
            fixed.graph.initializer.append(numpy_helper.from_array(array(value), info.name))
        try:
            return load(fixed).graph
        except UnsupportedModel:
            if first == 0:
                raise


@pytest.mark.slow
def test_onnx_node_tests_pass_or_are_listed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    failures, reasons, passed = [], set(), 0
    for case in cases:
        inputs, outputs = case.data_sets[0]
        try:
            graph = imported(case.model, inputs)
        except UnsupportedModel as error:
            met = [pattern for pattern in UNSUPPORTED if re.search(pattern, str(error))]
            reasons.update(met)
            if not met:
                failures.append(f"{case.name}: {error}")
            continue
        feeds = {info.name: array(value) for info, value in zip(case.model.graph.input, inputs, strict=True)}
        results = interpreter.run(graph, {name: feeds[name] for name in graph.input_names})
        try:
            for got, want in zip(results, map(array, outputs), strict=True):
                assert got.dtype == want.dtype
                assert_close(got, want, MODEL, vacuous_ok=True)  # some are written with four decimals only
            passed += case.name not in DISPUTED
        except AssertionError as error:
            if case.name not in DISPUTED:
                failures.append(f"{case.name}: {error}")
    assert not failures, f"{len(failures)} cases:\n" + "\n".join(failures)
    assert set(UNSUPPORTED) - reasons == set()
    assert passed > 0.7 * len(cases)
