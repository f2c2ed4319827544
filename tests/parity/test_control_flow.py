"""Loops and branches on the whole road: emitted kernels on the CPU, under the race and bounds checker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from luminal_onnx.codegen import lower
from luminal_onnx.importer import load
from luminal_onnx.ir.program import LoopKernel, LtKernel
from luminal_onnx.ir.program_reference import run_program
from luminal_onnx.ir.search import search, target
from luminal_onnx.plan.control import If, Loop, walk
from luminal_onnx.plan.errors import InvalidInput
from luminal_onnx.runtime.session import InferenceSession
from onnx import helper, numpy_helper, parser
from parity.cpu_road import Stages, compile_for_cpu
from tolerances import MODEL, assert_close

TARGET = target("sm_90")


def model(nodes, inputs: str, outputs: str, **stored: np.ndarray) -> onnx.ModelProto:
    """A model of nodes, or of text for some; `inputs` are declared as in ONNX's text form, outputs need no shape."""
    shell = parser.parse_graph(f"subject ({inputs}) => ({', '.join(f'float {name}' for name in outputs.split())}) {{}}")
    for node in nodes:
        shell.node.extend(steps(node) if isinstance(node, str) else [node])
    shell.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items())
    for output in shell.output:
        output.CopyFrom(helper.make_empty_tensor_value_info(output.name))
    return helper.make_model(shell, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def steps(text: str) -> list[onnx.NodeProto]:
    """Nodes from ONNX's text form."""
    return list(parser.parse_graph(f"steps () => () {{ {text} }}").node)


def body(text: str) -> onnx.GraphProto:
    return parser.parse_graph(text)


def agrees(made: onnx.ModelProto, folder: Path, feeds: list[dict], reads: list[int] | None = None, **options):
    """Every run gives onnxruntime's outputs, in any order of sizes; `reads` are the numbers read back in each."""
    artifact, _ = compile_for_cpu(folder / "m.luminal", made, Stages(), **options)
    reference = onnxruntime.InferenceSession(made.SerializeToString())
    expected = [reference.run(None, fed) for fed in feeds]
    with InferenceSession(artifact, device="cpu", check_kernels=True) as session:
        made_reads = 0
        for number in [*range(len(feeds)), *reversed(range(len(feeds)))]:
            for got, want in zip(session.run(None, feeds[number]), expected[number], strict=True):
                assert got.dtype == want.dtype and got.shape == want.shape
                assert_close(got, want, MODEL, vacuous_ok=want.size < 8)
            made_reads += reads[number] if reads else 0
            assert reads is None or session.report()["read_backs"] == made_reads
    return artifact


def draws(made: onnx.ModelProto, feeds: dict, dims: dict, seeds: range) -> None:
    """Programs drawn at random, in bodies too, compute what onnxruntime does."""
    graph = load(made).graph
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
    texts = set()
    for seed in seeds:

        def drawn(space, seed=seed):
            solution = space.choose()
            solution.chosen = space.drawn(seed) or solution.chosen
            return solution

        program = search(graph, TARGET, choose=drawn).program
        texts.add(str([getattr(k, "schedule", type(k)) for k in program.all_kernels()]))
        lower(program, "sm_90")
        for got, want in zip(run_program(program, feeds, dims), expected, strict=True):
            assert_close(got, want, MODEL, vacuous_ok=want.size < 8)
    assert len(texts) > 1


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-0.5, 0.5, shape).astype(np.float32)


def layer(kind: str, gates: int, directions: int, hidden: int = 7, features: int = 5, **attributes) -> onnx.ModelProto:
    """A layer with stored weights over x[T, N, features] whose sequences have lengths of their own."""
    rng = np.random.default_rng((gates, directions, hidden))
    outputs = ["y", "h", "c"][: 3 if kind == "LSTM" else 2]
    stored = {
        "w": weights(rng, directions, gates * hidden, features),
        "r": weights(rng, directions, gates * hidden, hidden),
        "b": weights(rng, directions, 2 * gates * hidden),
    }
    direction = {1: "forward", 2: "bidirectional"}[directions]
    attributes = {"hidden_size": hidden, "direction": direction, **attributes}
    node = helper.make_node(kind, ["x", "w", "r", "b", "lengths"], outputs, name="layer", **attributes)
    inputs = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["T", "N", features]),
        helper.make_tensor_value_info("lengths", onnx.TensorProto.INT32, ["N"]),
    ]
    graph = helper.make_graph(
        [node],
        "layer",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def sequences(steps: int, batch: int, features: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng((steps, batch))
    x = rng.uniform(-2, 2, (steps, batch, features)).astype(np.float32)
    return {"x": x, "lengths": rng.integers(1, steps + 1, batch).astype(np.int32)}


@pytest.mark.parametrize(
    "kind, gates, directions, attributes",
    [
        ("LSTM", 4, 1, {}),
        ("LSTM", 4, 2, {"clip": 0.9}),
        ("GRU", 3, 2, {}),
        ("GRU", 3, 1, {"linear_before_reset": 1}),
        ("RNN", 1, 2, {}),
    ],
)
def test_layers_over_any_number_of_steps(kind: str, gates: int, directions: int, attributes: dict, tmp_path: Path):
    made = layer(kind, gates, directions, **attributes)
    feeds = [sequences(steps, batch) for steps, batch in ((1, 2), (2, 1), (13, 3), (5, 2))]
    artifact = agrees(made, tmp_path, feeds, dims={"T": (1, 8, 64), "N": (1, 2, 8)})
    plan = artifact.plan("sm_90")
    assert [str(loop.trips) for loop in walk(plan.root) if isinstance(loop, Loop)] == ["T"] * directions
    stored = sum(buffer.kind == "weight" for buffer in plan.buffers)
    assert stored <= 5 * directions


def test_a_layer_over_no_steps_keeps_its_state(tmp_path: Path) -> None:
    made = layer("GRU", 3, 1)
    artifact, _ = compile_for_cpu(tmp_path / "m.luminal", made, Stages(), dims={"T": (0, 8, 64), "N": 2})
    with InferenceSession(artifact, device="cpu", check_kernels=True) as session:
        y, h = session.run(None, {"x": np.zeros((0, 2, 5), np.float32), "lengths": np.zeros(2, np.int32)})
    assert y.shape == (0, 1, 2, 7) and h.shape == (1, 2, 7) and not h.any()


def test_random_programs_of_a_layer(tmp_path: Path) -> None:
    draws(layer("LSTM", 4, 1), sequences(6, 3), {"T": 6, "N": 3}, range(6))


def test_a_step_is_a_call_of_the_library_where_it_is_large() -> None:
    made = layer("LSTM", 4, 1, hidden=512, features=512)
    program = search(load(made, dims={"T": (1, 100, 1000), "N": 64}).graph, TARGET).program
    (loop,) = [kernel for kernel in program.kernels if isinstance(kernel, LoopKernel)]
    assert any(isinstance(kernel, LtKernel) for kernel in loop.body.kernels)
    assert any(isinstance(kernel, LtKernel) for kernel in program.kernels)  # the input's projection, for all steps


def test_equal_layers_are_searched_once_and_no_weight_is_stored_twice() -> None:
    rng = np.random.default_rng(3)
    text, stored = "", {}
    for number in range(3):
        stored |= {f"w{number}": weights(rng, 1, 32, 8), f"r{number}": weights(rng, 1, 32, 8)}
        text += f"y{number} = LSTM<hidden_size = 8>(x{number}, w{number}, r{number}) x{number + 1} = Squeeze(y{number}, one) "
    made = model([text], "float[T, 2, 8] x0", "x3", one=np.array([1]), **stored)
    result = search(load(made).graph, TARGET)
    assert result.report.kernels["loop"] == 3
    lowered = lower(result.program, "sm_90")
    loops = [loop for loop in walk(lowered.plan.root) if isinstance(loop, Loop)]
    first, *others = [{step.kernel.source for step in loop.body.steps} for loop in loops]
    assert others == [first, first]
    total = sum(array.nbytes for array in stored.values())
    assert sum(array.nbytes for array in lowered.weights.values()) <= total + 64


STEP = """item = Gather<axis = 0>(x, trip)
    halved = Mul(s, half)
    t = Add(halved, item)
    row = Mul(t, item)
    total = ReduceSum<keepdims = 0>(t)"""
INPUTS = "float[T, 3] x, float[3] start, float limit"
LENGTH = "shape = Shape<end = 1>(x) most = Squeeze(shape)"
HALF = {"half": np.float32(0.5)}


def turning(trips: str, condition: str, more: str, step: str = STEP) -> onnx.NodeProto:
    """A loop whose state halves and takes in an item of x every trip."""
    inside = f"""turn (int64 trip, bool go, float[3] s) => (bool more, float[3] t, float[3] row) {{
        {step} {more}
    }}"""
    return helper.make_node("Loop", [trips, condition, "start"], ["end", "rows"], name="turning", body=body(inside))


def items(n: int, limit: float = 3.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    fed = {"x": rng.uniform(0.1, 2, (n, 3)), "start": rng.uniform(-1, 1, 3), "limit": np.array(limit)}
    return {name: array.astype(np.float32) for name, array in fed.items()}


ALWAYS, SMALL = "more = Identity(go)", "more = Less(total, limit)"


def test_a_loop_over_a_symbolic_number_of_trips_reads_nothing_back(tmp_path: Path) -> None:
    made = model([LENGTH, turning("most", "", ALWAYS)], INPUTS, "end rows", **HALF)
    agrees(made, tmp_path, [items(n) for n in (1, 2, 7, 13)], [0] * 4, dims={"T": (1, 8, 32)})


def test_a_condition_ends_a_loop_and_what_follows_knows_how_long_it_was(tmp_path: Path) -> None:
    after = "centre = ReduceMean<keepdims = 1, axes = [0]>(rows) shifted = Sub(rows, centre) count = Shape(rows)"
    made = model([LENGTH, turning("most", "", SMALL), after], INPUTS, "end shifted count", **HALF)
    feeds = [items(n, limit) for n, limit in ((1, 9.0), (7, 4.0), (7, 99.0), (13, 5.0), (13, -9.0))]
    agrees(made, tmp_path, feeds, dims={"T": (1, 8, 32)})
    draws(made, feeds[3], {"T": 13}, range(4))


@pytest.mark.parametrize("more", [ALWAYS, SMALL])
def test_a_trip_count_is_data(more: str, tmp_path: Path) -> None:
    made = model([turning("most", "", more)], f"{INPUTS}, int64 most", "end rows", **HALF)
    feeds = [{**items(13, 5.0), "most": np.array(n)} for n in (0, 1, 7, 13)]
    agrees(made, tmp_path, feeds, dims={"T": 13})
    artifact, warnings = compile_for_cpu(tmp_path / "again.luminal", made, Stages(), dims={"T": 13})
    assert "room for 4096 trips" in warnings[0]
    with InferenceSession(artifact, device="cpu") as session, pytest.raises(InvalidInput, match="5000"):
        session.run(None, {**feeds[0], "most": np.array(5000)})


def test_a_scan_runs_backward_over_any_axis(tmp_path: Path) -> None:
    inside = body(
        "turn (float[2] s, float[2] item) => (float[2] t, float[2] row) { t = Add(s, item) row = Mul(t, item) }"
    )
    node = helper.make_node(
        "Scan",
        ["start", "x"],
        ["end", "rows"],
        body=inside,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
        scan_input_directions=[1],
        scan_output_directions=[1],
    )
    made = model([node], "float[2] start, float[2, T] x", "end rows")
    rng = np.random.default_rng(0)
    feeds = [
        {"start": rng.uniform(-1, 1, 2).astype(np.float32), "x": rng.uniform(-1, 1, (2, n)).astype(np.float32)}
        for n in (1, 5, 11)
    ]
    agrees(made, tmp_path, feeds, [0, 0, 0])


SIZE = 160  # of a matrix that is too much work to be multiplied by for nothing
MATRIX = np.random.default_rng(5).standard_normal((SIZE, SIZE)).astype(np.float32) / np.float32(np.sqrt(SIZE))


def choose(condition: str, result: str, then: str, otherwise: str) -> onnx.NodeProto:
    return helper.make_node(
        "If", [condition], result.split(), name=f"choose_{result}", then_branch=body(then), else_branch=body(otherwise)
    )


def test_a_branch_is_run_and_the_other_is_not(tmp_path: Path) -> None:
    node = choose(
        "c",
        "y",
        f"yes () => (float[{SIZE}, N] t) {{ m = MatMul(matrix, x) t = Tanh(m) }}",
        f"no () => (float[{SIZE}, N] e) {{ e = Neg(x) }}",
    )
    made = model([node, "z = Mul(y, x)"], f"float[{SIZE}, N] x, bool c", "y z", matrix=MATRIX)
    rng = np.random.default_rng(1)
    feeds = [
        {"x": rng.uniform(-1, 1, (SIZE, n)).astype(np.float32), "c": np.array(c)}
        for n in (160, 163)
        for c in (True, False)
    ]
    artifact = agrees(made, tmp_path, feeds, [1] * 4, dims={"N": (1, 160, 256)})
    (branch,) = [node for node in walk(artifact.plan("sm_90").root) if isinstance(node, If)]
    assert branch.then.steps and branch.otherwise.steps


def test_an_if_in_a_loop_in_an_if_captures_from_all_around(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("luminal_onnx.importer.ops.control.MOST_CHOSEN_WORK", 0)
    inner = choose(
        "big",
        "t",
        "yes () => (float[3] a) { m = MatMul(mix, halved) a = Add(m, outer) }",
        "no () => (float[3] b) { d = Sub(item, halved) b = Mul(d, outer) }",
    )
    loop = turning("most", "", ALWAYS, "item = Gather<axis = 0>(x, trip) halved = Mul(s, half)")
    (gathered, halved, again) = loop.attribute[0].g.node
    del loop.attribute[0].g.node[:]
    extra = steps("total = ReduceSum<keepdims = 0>(item) big = Greater(total, limit)")
    loop.attribute[0].g.node.extend([gathered, halved, *extra, inner, *steps("row = Mul(t, item)"), again])
    yes = body("yes () => (float[3] end, float[T, 3] rows) { }")
    yes.node.extend([loop])
    outermost = helper.make_node(
        "If",
        ["c"],
        ["y", "ys"],
        name="outermost",
        then_branch=yes,
        else_branch=body("no () => (float[3] f, float[T, 3] g) { f = Neg(start) g = Mul(x, outer) }"),
    )
    mix = {"mix": np.random.default_rng(2).uniform(-0.5, 0.5, (3, 3)).astype(np.float32)}
    made = model([LENGTH, "outer = Exp(start)", outermost], f"{INPUTS}, bool c", "y ys", **HALF, **mix)
    feeds = [{**items(n), "c": np.array(c)} for n in (1, 6, 11) for c in (True, False)]
    totals = np.concatenate([fed["x"].sum(axis=1) for fed in feeds])
    assert 0.2 < (totals > 3).mean() < 0.8
    reads = [1 + len(fed["x"]) * bool(fed["c"]) for fed in feeds]
    agrees(made, tmp_path, feeds, reads, dims={"T": (1, 8, 32)})
    draws(made, feeds[2], {"T": 6}, range(4))


AWKWARD = """turn (int64 trip, bool go, float[3] a, float[3] b, float[3] c, float[3] d) =>
    (bool more, float[3] next_a, float[3] next_b, float[3] next_c, float[3] next_d, float[3] r, float[3] q, float[3] p, float[3] o)
{
    more = Identity(go)
    next_a = Identity(b)
    next_b = Add(a, b)
    next_c = Identity(weight)
    next_d = Identity(limit3)
    r = Identity(a)
    q = Identity(weight)
    p = Identity(limit3)
    o = Identity(c)
}"""


@pytest.mark.parametrize("condition", ["", "go_on"])
def test_bodies_that_hand_on_states_weights_and_captures_as_they_are(condition: str, tmp_path: Path) -> None:
    outputs = ["ea", "eb", "ec", "ed", "rs", "qs", "ps", "os"]
    loop = helper.make_node(
        "Loop", ["most", condition, "start", "start", "start", "weight"], outputs, body=body(AWKWARD)
    )
    inputs = "float[T, 3] x, float[3] start, float[3] limit3, bool go_on"
    weight = np.array([0.5, -1.5, 2.5], np.float32)
    made = model([LENGTH, loop], inputs, " ".join(outputs), weight=weight)
    rng = np.random.default_rng(4)
    feeds = [
        {
            "x": np.zeros((n, 3), np.float32),
            "start": rng.uniform(-1, 1, 3).astype(np.float32),
            "limit3": rng.uniform(-1, 1, 3).astype(np.float32),
            "go_on": np.array(n != 5),
        }
        for n in (1, 2, 5, 7)
    ]
    if not condition:
        feeds = [{name: array for name, array in fed.items() if name != "go_on"} for fed in feeds]
        del made.graph.input[3]
    agrees(made, tmp_path, feeds, dims={"T": (1, 4, 16)})


def test_a_size_that_data_decides_in_every_trip(tmp_path: Path) -> None:
    picks = """item = Gather<axis = 0>(x, trip) high = Greater(item, limit) places = NonZero(high) taken = Gather(item, places)
        taken_sum = ReduceSum<keepdims = 0>(taken) halved = Mul(s, half) t = Add(halved, taken_sum) row = Mul(t, item)"""
    made = model([LENGTH, turning("most", "", ALWAYS, picks)], INPUTS, "end rows", **HALF)
    agrees(made, tmp_path, [items(n, 1.0) for n in (1, 2, 7)], [1, 2, 7], dims={"T": (1, 4, 16)})


def test_branches_of_different_shapes(tmp_path: Path) -> None:
    node = choose(
        "c",
        "y",
        "yes () => (float[A, B] t) { doubled = Mul(x, two) t = Concat<axis = 0>(x, doubled) }",
        "no () => (float[A, B] e) { high = Greater(column, limit) places = NonZero(high) index = Transpose(places) e = GatherND(x, index) }",
    )
    after = "centre = ReduceMean<keepdims = 1, axes = [0]>(y) z = Sub(y, centre) s = Shape(z)"
    text = "column = ReduceMax<keepdims = 0, axes = [1]>(x)"
    made = model([text, node, after], "float[N, 3] x, float limit, bool c", "z s", two=np.float32(2))
    rng = np.random.default_rng(6)
    feeds = [
        {"x": rng.uniform(-1, 1, (n, 3)).astype(np.float32), "limit": np.array(0.4, np.float32), "c": np.array(c)}
        for n in (3, 7, 13)
        for c in (True, False)
    ]
    lengths = {onnxruntime.InferenceSession(made.SerializeToString()).run(None, fed)[0].shape[0] for fed in feeds}
    assert len(lengths) > 4
    agrees(made, tmp_path, feeds, dims={"N": (1, 8, 32)})
