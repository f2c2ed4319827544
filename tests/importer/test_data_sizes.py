"""Operators whose output sizes data decides: values against onnxruntime at several such sizes, none and all included."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from luminal_onnx.importer import load
from luminal_onnx.ir import interpreter
from luminal_onnx.ir.graph import Graph
from luminal_onnx.ir.legality import violations
from luminal_onnx.plan.dims import symbol
from luminal_onnx.plan.errors import InvalidInput, UnsupportedModel
from onnx import TensorProto, helper, numpy_helper
from tolerances import REDUCTION, assert_close

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model(nodes: str, inputs: dict, outputs: str, opset: int = 18, **stored: object) -> onnx.ModelProto:
    """A model from lines such as "y = Add(a, b) axis=1"; inputs map names to (type, shape)."""
    made = []
    for line in filter(None, map(str.strip, nodes.splitlines())):
        results, rest = line.split(" = ")
        op, rest = rest.split("(", 1)
        operands, attributes = rest.split(")", 1)
        given = dict(pair.split("=") for pair in attributes.split())
        names = [name.strip() for name in operands.split(",")] if operands.strip() else []
        outs = [name.strip() for name in results.split(",")]
        made.append(helper.make_node(op, names, outs, **{k: int(v) for k, v in given.items()}))
    graph = helper.make_graph(
        made, "subject",
        [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
        [onnx.ValueInfoProto(name=name.strip()) for name in outputs.split(",")],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(subject: onnx.ModelProto, *feed_sets: dict, vacuous_ok: bool = False, **options: object) -> Graph:
    """The import is legal and gives onnxruntime's outputs for every set of feeds; at least one of them shows something."""
    graph = load(subject, **options).graph
    assert violations(graph) == []
    session = onnxruntime.InferenceSession(subject.SerializeToString())
    for feeds in feed_sets:
        results = interpreter.run(graph, feeds)
        for got, want in zip(results, session.run(None, feeds), strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            assert_close(got, want, REDUCTION, vacuous_ok=True)
    assert vacuous_ok or graph.sizes
    return graph


def sparse(*shape: int, share: float = 0.5, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.uniform(0.5, 1.5, shape) * (rng.random(shape) < share)).astype(np.float32)


SHARES = (0.0, 0.3, 1.0)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (0, 3), (1, 1), (13, 41)])
def test_nonzero(shape: tuple[int, ...]) -> None:
    names = [f"d{axis}" for axis in range(len(shape))]
    subject = model("y = NonZero(x)", {"x": (FLOAT, names)}, "y")
    ranges = {name: (0, 8, 64) for name in names}
    graph = check(subject, *({"x": sparse(*shape, share=share)} for share in SHARES), dims=ranges)
    assert graph.outputs[0].shape == (len(shape), symbol("nonzero"))
    size = graph.sizes["nonzero"]
    assert size.least == 0 and str(size.most) == "*".join(sorted(names))


def test_nonzero_of_many_elements_counts_in_blocks() -> None:
    subject = model("y = NonZero(x)", {"x": (BOOL, [101, 57])}, "y")
    graph = check(subject, *({"x": sparse(101, 57, share=share) > 0} for share in SHARES))
    widest = max(len(node.types[0].shape) for node in graph.nodes())
    assert widest >= 3 and graph.sizes["nonzero"].most == 101 * 57


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(axis: int | None) -> None:
    spelled = "" if axis is None else f" axis={axis}"
    subject = model(f"y = Compress(x, c){spelled}", {"x": (FLOAT, [5, 7]), "c": (BOOL, [5])}, "y")
    x = np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)
    graph = check(subject, *({"x": x, "c": sparse(5, share=share) > 0} for share in SHARES))
    assert graph.sizes["compress"].most == 5


def test_rows_picked_multiplied_and_normalised_over_how_many_there_are() -> None:
    subject = model(
        """places = NonZero(mask)
        column = Transpose(places)
        rows = GatherND(x, column)
        product = MatMul(rows, w)
        y = Softmax(product) axis=0
        shape = Shape(rows)
        s = ReduceSum(product, axes) keepdims=0""",
        {"mask": (BOOL, ["n"]), "x": (FLOAT, ["n", 4])}, "y, shape, s",
        w=np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32), axes=np.array([1]),
    )
    feeds = []
    for n in (1, 5, 11):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        feeds += [{"mask": sparse(n, share=share) > 0, "x": x} for share in SHARES]
    graph = check(subject, *feeds)
    assert set(graph.sizes) == {"nonzero"} and graph.outputs[0].shape == (symbol("nonzero"), 3)


def test_one_mask_used_twice_is_one_size_and_two_masks_are_two() -> None:
    subject = model(
        """a = Compress(x, c) axis=0
        b = Compress(y, c) axis=0
        both = Add(a, b)
        d = Compress(x, e) axis=0
        joined = Concat(both, d) axis=0""",
        {"x": (FLOAT, ["n"]), "y": (FLOAT, ["n"]), "c": (BOOL, ["n"]), "e": (BOOL, ["n"])}, "both, joined",
    )
    rng = np.random.default_rng(3)
    feeds = [
        {"x": rng.standard_normal(6).astype(np.float32), "y": rng.standard_normal(6).astype(np.float32),
         "c": sparse(6, share=first) > 0, "e": sparse(6, share=second, seed=9) > 0}
        for first in SHARES for second in SHARES
    ]
    graph = check(subject, *feeds)
    assert set(graph.sizes) == {"compress", "compress_2"}
    assert graph.outputs[1].shape == (symbol("compress") + symbol("compress_2"),)


def test_taking_an_element_of_what_may_be_nothing_is_an_error_when_it_is_nothing() -> None:
    subject = model(
        "a = Compress(x, c) axis=0\ny = Gather(a, last) axis=0", {"x": (FLOAT, ["n"]), "c": (BOOL, ["n"])}, "y", last=-1
    )
    x = np.arange(5, dtype=np.float32)
    graph = check(subject, {"x": x, "c": x > 2})
    with pytest.raises(InvalidInput, match="'compress'.* is 0, outside of 1..5"):
        interpreter.run(graph, {"x": x, "c": x > 9})


COUNT = "shown = Cast(mask) to=7\nn = ReduceSum(shown) keepdims=0\n"  # how many elements of a mask are true
MASKS = [{"mask": sparse(9, share=share) > 0} for share in (0.0, 0.3, 0.6, 1.0)]
ROWS = np.random.default_rng(4).standard_normal((9, 4)).astype(np.float32)


def counted(nodes: str, outputs: str = "y", **stored: object) -> onnx.ModelProto:
    """A model that sees rows x and n, how many of nine flags are true."""
    return model(COUNT + nodes, {"mask": (BOOL, [9]), "x": (FLOAT, [9, 4])}, outputs, **stored)


def fed(extra: dict | None = None) -> list[dict]:
    return [{**mask, "x": ROWS, **(extra or {})} for mask in MASKS]


@pytest.mark.parametrize(
    "nodes, stored",
    [
        ("y = Range(zero, n, one)", {"zero": np.array(0), "one": np.array(1)}),
        ("y = Range(n, two, down)", {"two": np.array(2), "down": np.array(-3)}),
        ("y = Range(two, n, step)", {"two": np.array(2), "step": np.array(2)}),
        ("s = Unsqueeze(n, axis)\ny = ConstantOfShape(s)", {"axis": np.array([0])}),
        ("r = Unsqueeze(n, axis)\ns = Concat(three, r) axis=0\ny = Expand(row, s)",
         {"axis": np.array([0]), "three": np.array([3]), "row": np.ones((3, 1), np.float32)}),
        ("r = Unsqueeze(n, axis)\ns = Concat(r, one) axis=0\ny = Tile(x, s)", {"axis": np.array([0]), "one": np.array([2])}),
        ("k = Unsqueeze(n, axis)\ny, i = TopK(x, k) axis=0", {"axis": np.array([0])}),
        ("e = Unsqueeze(n, axis)\ny = Slice(x, zero, e, axis)", {"axis": np.array([0]), "zero": np.array([0])}),
        ("s = Unsqueeze(n, axis)\ny = Slice(x, s, far, axis)", {"axis": np.array([0]), "far": np.array([2**40])}),
        ("s = Unsqueeze(n, axis)\nm = Neg(s)\ny = Slice(x, m, far, axis)", {"axis": np.array([0]), "far": np.array([2**40])}),
        ("s = Unsqueeze(n, axis)\ne = Add(s, two)\ny = Slice(x, s, e, axis)", {"axis": np.array([0]), "two": np.array([2])}),
        ("s = Unsqueeze(n, axis)\ny = Slice(x, s, far, axis, down)",
         {"axis": np.array([0]), "far": np.array([-(2**40)]), "down": np.array([-2])}),
        ("s = Unsqueeze(n, axis)\ny = Slice(x, two, s, axis, up)",
         {"axis": np.array([0]), "two": np.array([-8]), "up": np.array([3])}),
        ("f = Gather(values, n) axis=0\ny = Trilu(x, n)", {"values": np.arange(10)}),
        ("d = Max(n, one)\ny = OneHot(places, d, values)",
         {"places": np.array([0, 3, 8]), "values": np.array([0, 1]), "one": np.array(1)}),
    ],
)
def test_sizes_that_are_computed(nodes: str, stored: dict) -> None:
    check(counted(nodes, **stored), *fed(), vacuous_ok="Trilu" in nodes)


def test_bounds_are_as_tight_as_can_be_shown() -> None:
    def most(nodes: str, **stored: object) -> object:
        (size,) = load(counted(nodes, **stored)).graph.sizes.values()
        return size.most

    axis, zero = np.array([0]), np.array([0])
    assert most("e = Unsqueeze(n, axis)\ny = Slice(x, zero, e, axis)", axis=axis, zero=zero) == 9
    assert most("s = Unsqueeze(n, a)\ne = Add(s, two)\ny = Slice(x, s, e, a)", a=axis, two=np.array([2])) == 2
    assert most("h = Div(n, two)\ns = Unsqueeze(h, a)\ny = ConstantOfShape(s)", a=axis, two=np.array(2)) == 4
    clipped = "m = Min(n, five)\ns = Unsqueeze(m, a)\ny = ConstantOfShape(s)"
    assert most(clipped, a=axis, five=np.array(5)) == 5
    last = "b = ArgMax(x) axis=0 keepdims=0 select_last_index=1\nh = Gather(b, one) axis=0\ny = Range(z, h, one)"
    assert most(last, z=np.array(0), one=np.array(1)) == 8


def test_a_size_that_nothing_bounds_is_refused_with_the_remedy() -> None:
    subject = model("y = ConstantOfShape(s)", {"s": (INT, [2])}, "y")
    with pytest.raises(UnsupportedModel, match="ConstantOfShape.*axis 0 of the shape .* nothing bounds it.*Min, Clip"):
        load(subject)


RESHAPES = [[6, 4], [2, -1], [-1, 3], [24, 1], [0, 4], [12, 0, -1]]


@pytest.mark.parametrize("wanted", RESHAPES)
def test_reshape_to_a_shape_that_is_fed(wanted: list[int]) -> None:
    subject = model("y = Reshape(x, s)", {"x": (FLOAT, [6, 4]), "s": (INT, [len(wanted)])}, "y")
    x = np.random.default_rng(7).standard_normal((6, 4)).astype(np.float32)
    graph = load(subject).graph
    assert len(graph.sizes) == len(wanted) and all(size.most == 24 for size in graph.sizes.values())
    if wanted == [12, 0, -1]:  # 12 * 4 is too many
        with pytest.raises(InvalidInput, match="'reshape.*'.* is -1, outside of 0..24"):
            interpreter.run(graph, {"x": x, "s": np.array(wanted)})
    else:
        check(subject, {"x": x, "s": np.array(wanted)})


def test_an_extent_that_the_number_of_elements_decides_is_no_size() -> None:
    subject = model(
        "s = Concat(two, n) axis=0\ny = Reshape(x, s)", {"x": (FLOAT, ["b", 6]), "n": (INT, [1])}, "y", two=np.array([2])
    )
    graph = load(subject).graph
    assert graph.sizes == {} and graph.outputs[0].shape == (2, 3 * symbol("b"))


def test_expand_where_only_the_run_tells_which_side_is_one() -> None:
    subject = model(
        COUNT + """kept = Compress(x, mask) axis=0
        r = Unsqueeze(n, axis)
        y = Expand(kept, r)
        m = Min(r, one)
        z = Expand(kept, m)""",
        {"x": (FLOAT, [9]), "mask": (BOOL, [9])}, "y, z", axis=np.array([0]), one=np.array([1]),
    )
    feeds = [{"x": ROWS[:, 0], "mask": np.arange(9) < k} for k in (1, 2, 9)]
    check(subject, *feeds)


def test_a_size_that_is_too_large_stops_the_run() -> None:
    subject = model("y, i = TopK(x, k) axis=0", {"x": (FLOAT, [5]), "k": (INT, [1])}, "y")
    x = np.random.default_rng(0).standard_normal(5).astype(np.float32)
    graph = check(subject, *({"x": x, "k": np.array([k])} for k in (0, 1, 5)))
    with pytest.raises(InvalidInput, match="'topk'.* is 6, outside of 0..5"):
        interpreter.run(graph, {"x": x, "k": np.array([6])})


@pytest.mark.parametrize("spelled", ["", " sorted=0", " axis=0", " axis=1 sorted=0"])
@pytest.mark.parametrize("kinds", [1, 2, 50])
def test_unique(spelled: str, kinds: int) -> None:
    outputs = "y, first, inverse, counts"
    subject = model(f"{outputs} = Unique(x){spelled}", {"x": (INT, ["a", "b"])}, outputs)
    rng = np.random.default_rng(kinds)
    graph = check(subject, *({"x": rng.integers(0, kinds, shape)} for shape in ((1, 1), (5, 3), (7, 11))))
    assert graph.sizes["unique"].least == 1


def test_unique_takes_nan_as_one_element_that_comes_last() -> None:
    subject = model("y, f, i, c = Unique(x)", {"x": (FLOAT, [7])}, "y, i, c")
    x = np.array([np.nan, 2, -np.inf, np.nan, 2, 0.0, -0.0], np.float32)
    y, inverse, counts = interpreter.run(load(subject).graph, {"x": x})
    np.testing.assert_array_equal(y, [-np.inf, 0, 2, np.nan])
    np.testing.assert_array_equal(inverse, [3, 2, 0, 3, 2, 1, 1])
    np.testing.assert_array_equal(counts, [1, 2, 2, 2])
