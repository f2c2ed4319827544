"""The parity bar: every output against onnxruntime over several input sets together, with the checks that make it mean something."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from tolerances import LEAST_SPREAD, MODEL_SPREAD, OPT_NOISES

Feeds = dict[str, np.ndarray]
# Half precision carries about 2^-11 an operation; whole models of it are held to these shares of (max - min).
HALF_SPREAD = {"float16": 2e-2, "bfloat16": 8e-2}


def onnxruntime_outputs(
    model: onnx.ModelProto | str, sets: Sequence[Feeds]
) -> tuple[list[str], list[list[np.ndarray]]]:
    """Return the output names and onnxruntime's outputs for each set of feeds."""
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return [output.name for output in session.get_outputs()], [session.run(None, feeds) for feeds in sets]


def assert_parity(
    names: Sequence[str],
    actual: Sequence[Sequence[np.ndarray]],
    expected: Sequence[Sequence[np.ndarray]],
    opt_noise: float = 0.0,
) -> dict[str, float]:
    """Hold each output to the bar over all sets; return for each float output its error as a share of its spread.

    The bar is MODEL_SPREAD of (max - min), or OPT_NOISES times `opt_noise` of the peak where that is larger: `opt_noise` is
    what onnxruntime's own optimisations change, as a share of the peak. The spread must be at least LEAST_SPREAD of the
    peak, integers must be equal, and argmax over the last axis must agree wherever the two largest values differ by more
    than twice the tolerance.
    """
    shares = {}
    for position, name in enumerate(names):
        got = [run[position] for run in actual]
        want = [np.asarray(run[position]) for run in expected]
        for have, need in zip(got, want):
            assert have.shape == need.shape and have.dtype == need.dtype, f"{name}: {have.dtype}{have.shape}"
        if want[0].dtype.kind in "iub":
            for have, need in zip(got, want):
                np.testing.assert_array_equal(have, need, err_msg=name)
            continue
        flat = np.concatenate([array.astype(np.float64).ravel() for array in want])
        assert np.isfinite(flat).all(), f"{name}: onnxruntime's output is not finite"
        spread, peak = float(np.ptp(flat)), float(np.abs(flat).max())
        assert spread >= LEAST_SPREAD * peak > 0, f"{name}: vacuous, spread {spread:.3g} of peak {peak:.3g}"
        tolerance = HALF_SPREAD.get(want[0].dtype.name, MODEL_SPREAD) * spread
        tolerance = max(tolerance, OPT_NOISES * opt_noise * peak)
        error = max(float(np.abs(h.astype(np.float64) - w.astype(np.float64)).max()) for h, w in zip(got, want))
        assert error <= tolerance, f"{name}: error {error:.3g}, allowed {tolerance:.3g} (spread {spread:.3g})"
        for have, need in zip(got, want):
            _assert_same_argmax(name, have, need, tolerance)
        shares[name] = error / spread
    return shares


def _assert_same_argmax(name: str, have: np.ndarray, need: np.ndarray, tolerance: float) -> None:
    if need.ndim == 0 or need.shape[-1] < 2:
        return
    top = np.sort(need.astype(np.float64), axis=-1)
    clear = top[..., -1] - top[..., -2] > 2 * tolerance
    np.testing.assert_array_equal(have.argmax(-1)[clear], need.argmax(-1)[clear], err_msg=f"{name}: argmax")
