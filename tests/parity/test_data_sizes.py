"""Models whose sizes data decides, on the whole road: emitted kernels on the CPU, under the race and bounds checker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from luminal_onnx.plan.errors import InvalidInput
from luminal_onnx.runtime.session import InferenceSession
from onnx import numpy_helper, parser
from parity.cpu_road import Stages, compile_for_cpu
from tolerances import MODEL, assert_close

HEADER = '<ir_version: 9, opset_import: ["" : 18]> '
SHARES = (0.0, 0.2, 0.7, 1.0)


def model(text: str, **stored: np.ndarray) -> onnx.ModelProto:
    """A model from ONNX's text form; outputs need no shape."""
    made = parser.parse_model(HEADER + text)
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items())
    for output in made.graph.output:
        output.type.tensor_type.ClearField("shape")
    return made


def agrees(made: onnx.ModelProto, folder: Path, feeds: list[dict], reads: int, dims: dict | None = None) -> None:
    """Every run gives onnxruntime's outputs, in any order of sizes, and reads back so many numbers each time."""
    artifact, _ = compile_for_cpu(folder / "m.luminal", made, Stages(), dims=dims)
    reference = onnxruntime.InferenceSession(made.SerializeToString())
    with InferenceSession(artifact, device="cpu", check_kernels=True) as session:
        for number, fed in enumerate([*feeds, *reversed(feeds)], 1):
            for got, want in zip(session.run(None, fed), reference.run(None, fed), strict=True):
                assert got.dtype == want.dtype and got.shape == want.shape
                assert_close(got, want, MODEL, vacuous_ok=want.size < 8)
            assert session.report()["read_backs"] == number * reads


def rows(n: int, share: float, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng((n, seed))
    return {"x": rng.uniform(-1, 1, (n, 6)).astype(np.float32), "mask": rng.random(n) < share}


def test_rows_picked_multiplied_normalised_and_counted(tmp_path: Path) -> None:
    made = model(
        """picked (float[n, 6] x, bool[n] mask) => (float y, int64 shape, float pooled) {
            places = NonZero(mask)
            columns = Transpose(places)
            taken = GatherND(x, columns)
            product = MatMul(taken, w)
            y = Softmax<axis = 0>(product)
            shape = Shape(y)
            pooled = ReduceMean<keepdims = 0>(x, zero)
        }""",
        w=np.random.default_rng(1).uniform(-1, 1, (6, 5)).astype(np.float32), zero=np.array([0]),
    )
    agrees(made, tmp_path, [rows(n, share) for n in (1, 7, 40) for share in SHARES], reads=1, dims={"n": (1, 8, 64)})


def test_scores_of_picked_rows_against_picked_rows(tmp_path: Path) -> None:
    """Two sizes; a product of both, whose weights are normalised over one of them."""
    made = model(
        """attended (float[n, 6] x, bool[n] mask, bool[n] other) => (float y) {
            queries = Compress<axis = 0>(x, mask)
            keys = Compress<axis = 0>(x, other)
            turned = Transpose(keys)
            scores = MatMul(queries, turned)
            weights = Softmax<axis = 1>(scores)
            y = MatMul(weights, keys)
        }"""
    )
    feeds = [
        {**rows(n, share), "other": rows(n, other, 1)["mask"]}
        for n in (1, 9, 33) for share in SHARES for other in (0.2, 1.0)
    ]
    feeds = [fed for fed in feeds if fed["other"].any()]  # a mean over nothing is NaN
    agrees(made, tmp_path, feeds, reads=2, dims={"n": (1, 8, 64)})


def test_a_size_that_places_a_view(tmp_path: Path) -> None:
    made = model(
        """parted (float[n, 6] x, bool[n] mask) => (float first, float rest, float back) {
            taken = Compress<axis = 0>(x, mask)
            length = Shape<start = 0, end = 1>(taken)
            first = Slice(x, zero, length, zero)
            rest = Slice(x, length, far, zero)
            both = Concat<axis = 0>(rest, taken)
            back = Exp(both)
        }""",
        zero=np.array([0]), far=np.array([2**62]),
    )
    agrees(made, tmp_path, [rows(n, share) for n in (1, 12) for share in SHARES], reads=1, dims={"n": (1, 8, 64)})


def test_a_size_within_a_size(tmp_path: Path) -> None:
    made = model(
        """twice (float[n, 6] x, bool[n] mask) => (float y, int64 places, int64 counts) {
            taken = Compress<axis = 0>(x, mask)
            scaled = Mul(taken, three)
            whole = Round(scaled)
            y, places, inverse, counts = Unique(whole)
        }""",
        three=np.array(3, np.float32),
    )
    agrees(made, tmp_path, [rows(n, share) for n in (1, 8, 13) for share in SHARES], reads=2, dims={"n": (1, 8, 16)})


def test_places_of_many_elements_are_counted_in_blocks(tmp_path: Path) -> None:
    made = model("many (float[h, w] x) => (int64 y) { y = NonZero(x) }")
    feeds = [{"x": (np.random.default_rng(k).random((47, 31)) < share).astype(np.float32)} for k, share in enumerate(SHARES)]
    agrees(made, tmp_path, feeds, reads=1, dims={"h": (1, 64, 100), "w": (1, 64, 100)})


def test_a_number_that_does_not_fit_stops_the_run_and_the_next_one_is_right(tmp_path: Path) -> None:
    made = model("few (float[5] x, int64[1] k) => (float y, int64 i) { y, i = TopK(x, k) }")
    artifact, _ = compile_for_cpu(tmp_path / "m.luminal", made, Stages())
    x = np.random.default_rng(3).permutation(5).astype(np.float32)
    with InferenceSession(artifact, device="cpu") as session:
        for wrong in (6, -1):
            with pytest.raises(InvalidInput, match=f"topk.*{wrong}"):
                session.run(None, {"x": x, "k": np.array([wrong])})
        y, i = session.run(None, {"x": x, "k": np.array([2])})
    np.testing.assert_array_equal(y, [4, 3])
    np.testing.assert_array_equal(x[i], y)
