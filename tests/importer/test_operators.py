"""Every registered operator against onnxruntime, in models of one node; the cases are in `op_table.py`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import defs, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))

import op_table
from luminal_onnx.importer import load, registry
from luminal_onnx.ir import interpreter
from tolerances import assert_close

onnxruntime.set_default_logger_severity(4)
TABLE = op_table.load_all()
NEWEST_REFERENCE_OPSET = 23  # the newest opset whose kernels the oldest supported onnxruntime has


def element_type(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def one_node_model(domain: str, name: str, opset: int, case: op_table.Case, symbolic: bool) -> onnx.ModelProto:
    """A model of one node. Outputs have no declared shape."""
    names = ["" if array is None else f"x{k}" for k, array in enumerate(case.inputs)]
    outputs = [f"y{k}" for k in range(case.outputs)]
    node = helper.make_node(name, names, outputs, name="subject", domain=domain, **case.attributes)
    inputs, stored = [], []
    for k, array in enumerate(case.inputs):
        if array is None:
            continue
        if k in case.constant:
            stored.append(numpy_helper.from_array(array, names[k]))
            continue
        shape = [
            n if symbolic and n else s for n, s in zip(case.dims.get(k, [None] * array.ndim), array.shape, strict=True)
        ]
        inputs.append(helper.make_tensor_value_info(names[k], element_type(array), shape))
    declared = [helper.make_empty_tensor_value_info(output) for output in outputs]
    graph = helper.make_graph([node], "one_node", inputs, declared, stored)
    imports = [helper.make_opsetid("", opset if domain == "" else 17)]
    if domain:
        imports.append(helper.make_opsetid(domain, opset))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def reference_outputs(domain: str, name: str, opset: int, case: op_table.Case, feeds: dict) -> list[np.ndarray]:
    """Outputs of onnxruntime; at an older opset of the same meaning where it lacks the kernel of this one."""
    candidates = [opset] if domain else [opset, *range(min(opset, NEWEST_REFERENCE_OPSET), 6, -1)]
    failure: Exception | None = None
    for candidate in candidates:
        model = one_node_model(domain, name, candidate, case, symbolic=False)
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            return session.run(None, feeds)
        except Exception as error:  # noqa: BLE001  onnxruntime has no narrower class for what it cannot run
            failure = error
    raise AssertionError(f"onnxruntime runs {name} at no opset: {failure}")


def _id(operator: registry.Operator) -> str:
    return f"{operator.name}-{operator.since}"


def opset_of_version(since: int) -> int:
    return max(since, 7)


SUBJECTS = [
    pytest.param(operator, k, id=f"{operator.domain}{operator.name}-{operator.since}-{k}")
    for operator in registry.registered()
    for k, case in enumerate(TABLE.get((operator.domain, operator.name), []))
    if case.since <= max(operator.since, 7 if operator.domain == "" else 1) and operator.since <= case.until
]


@pytest.mark.parametrize("operator, number", SUBJECTS)
def test_operator_agrees_with_onnxruntime(operator: registry.Operator, number: int) -> None:
    case = TABLE[operator.domain, operator.name][number]
    opset = opset_of_version(operator.since) if operator.domain == "" else 1
    if registry.find(operator.domain, operator.name, opset) is not operator:
        pytest.fail(f"no opset from 7 on means version {operator.since}; register the versions that can be met")
    feeds = {f"x{k}": a for k, a in enumerate(case.inputs) if a is not None and k not in case.constant}
    if case.reference is not None:
        expected = case.reference(*case.inputs)
    else:
        expected = reference_outputs(operator.domain, operator.name, opset, case, feeds)
    for symbolic in (False, True) if case.dims else (False,):
        imported = load(one_node_model(operator.domain, operator.name, opset, case, symbolic))
        assert symbolic == bool(imported.graph.ranges.keys() - imported.graph.sizes.keys())
        for got, want in zip(interpreter.run(imported.graph, feeds), expected, strict=True):
            assert got.dtype == want.dtype
            assert_close(got, want, case.classes, vacuous_ok=case.vacuous_ok or case.classes is op_table.ELEMENTWISE)


def test_every_registered_operator_has_a_row_and_every_row_an_operator() -> None:
    registered = {(operator.domain, operator.name) for operator in registry.registered()}
    covered = {key for key, cases in TABLE.items() if cases} | {
        ("", "If"),
        ("", "Loop"),
        ("", "Scan"),
    }  # test_control_flow
    assert registered - covered == set()
    assert covered - registered == set()


@pytest.mark.parametrize("operator", [o for o in registry.registered() if o.domain == "" and defs.has(o.name)], ids=_id)
def test_registered_versions_take_exactly_the_attributes_of_their_schema(operator: registry.Operator) -> None:
    schema = defs.get_schema(operator.name, operator.since, "")
    assert schema.since_version == operator.since
    assert operator.attributes | operator.ignored >= set(schema.attributes) - {
        "value_string",
        "value_strings",
        "consumed_inputs",
    }
    parameters = inspect.signature(operator.function).parameters
    others = operator.attributes - set(schema.attributes)  # those of other versions that share the function
    assert all(parameters[name].default is not inspect.Parameter.empty for name in others)
