"""The prelude's helpers against NumPy, for every element type, extremes included."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from luminal_onnx.runtime.cpu import compile_many

C_TYPES = {
    np.dtype(np.int8): "int8_t", np.dtype(np.int16): "int16_t", np.dtype(np.int32): "int32_t",
    np.dtype(np.int64): "int64_t",
    np.dtype(np.uint8): "uint8_t", np.dtype(np.uint16): "uint16_t", np.dtype(np.uint32): "uint32_t",
    np.dtype(np.uint64): "uint64_t", np.dtype(np.float16): "half", np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(np.float32): "float", np.dtype(np.float64): "double", np.dtype(np.bool_): "bool",
}  # fmt: skip
INTEGERS = [dtype for dtype in C_TYPES if dtype.kind in "iu"]
FLOATS = [dtype for dtype in C_TYPES if dtype.kind in "fV"]
IDS = {dtype: dtype.name for dtype in C_TYPES}.get


def _values(dtype: np.dtype, seed: int) -> np.ndarray:
    """64 random values and the extremes."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, 64).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        small = rng.integers(0, 10, 32) - (5 if dtype.kind == "i" else 0)
        wide = rng.integers(info.min, info.max, 32, dtype=dtype, endpoint=True)
        return np.concatenate([small.astype(dtype), wide, np.array([0, 1, info.min, info.max], dtype)])
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        0.5,
        -0.5,
        1.5,
        2.5,
        127.5,
        255.0,
        -129.0,
        65504.0,
        3e9,
        -3e9,
        1e19,
    ]
    with np.errstate(over="ignore"):
        return np.concatenate([rng.standard_normal(64) * 50, special]).astype(dtype)


def _binary_kernels(expressions: dict[str, str], dtypes, prelude):
    """One kernel an element type: all expressions of (a, b), each to its own row of the output."""
    kernels = []
    for dtype in dtypes:
        c = C_TYPES[dtype]
        rows = "\n".join(f"  o[{row} * n + i] = {text};" for row, text in enumerate(expressions.values()))
        text = f"""{prelude}
extern "C" __global__ void binary(const {c}* pa, const {c}* pb, {c}* o, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {c} a = pa[i], b = pb[i];
{rows}
}}
LUMINAL_EXPORT(binary)
"""
        kernels.append((text, "binary"))
    return kernels


def _run_binary(kernel, a, b, rows: int) -> np.ndarray:
    out = np.zeros((rows, a.size), a.dtype)
    kernel.launch((-(-a.size // 64), 1, 1), (64, 1, 1), 0, [a, b, out, np.int32(a.size)])
    return out


def _trunc_div(a, b):
    return np.array(
        [0 if y == 0 else abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b)], object
    )


def _power(a, b):
    def one(x, y):
        if y < 0:
            return {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0)
        return pow(x, y, 2**64)

    return np.array([one(int(x), int(y)) for x, y in zip(a, b)], object)


def _shift(a, b, left: bool):
    bits = 8 * a.dtype.itemsize
    out = []
    for x, y in zip(map(int, a), map(int, b)):
        outside = not 0 <= y < bits
        out.append((0 if outside else x << y) if left else ((-1 if x < 0 else 0) if outside else x >> y))
    return np.array(out, object)


def _wrap(exact: np.ndarray, dtype: np.dtype) -> np.ndarray:
    unsigned = np.array([int(value) % 2 ** (8 * dtype.itemsize) for value in exact], np.uint64)
    return unsigned.astype(f"u{dtype.itemsize}").view(dtype)


INTEGER_FUNCTIONS = {
    "trunc_div": _trunc_div,
    "trunc_mod": lambda a, b: np.array(
        [0 if y == 0 else x - y * q for x, y, q in zip(*_exact(a, b), _trunc_div(a, b))], object
    ),
    "floor_div": lambda a, b: np.array([0 if y == 0 else x // y for x, y in zip(*_exact(a, b))], object),
    "floor_mod": lambda a, b: np.array([0 if y == 0 else x % y for x, y in zip(*_exact(a, b))], object),
    "nan_max": lambda a, b: np.maximum(a, b),
    "nan_min": lambda a, b: np.minimum(a, b),
    "ipow": _power,
    "shift_left": lambda a, b: _shift(a, b, True),
    "shift_right": lambda a, b: _shift(a, b, False),
}


def _exact(*arrays: np.ndarray):
    return [[int(value) for value in array] for array in arrays]


@pytest.fixture(scope="module")
def integer_kernels(prelude, host_cache):
    expressions = {name: f"{name}(a, b)" for name in INTEGER_FUNCTIONS}
    kernels = compile_many(_binary_kernels(expressions, INTEGERS, prelude), cache_dir=host_cache)
    return dict(zip(INTEGERS, kernels))


@pytest.mark.parametrize("dtype", INTEGERS, ids=IDS)
def test_integer_functions_are_exact(dtype, integer_kernels):
    a, b = (np.repeat(_values(dtype, 1), 68), np.tile(_values(dtype, 2), 68))
    out = _run_binary(integer_kernels[dtype], a, b, len(INTEGER_FUNCTIONS))
    for row, (name, reference) in enumerate(INTEGER_FUNCTIONS.items()):
        expected = _wrap(reference(a, b), dtype)
        wrong = np.flatnonzero(out[row] != expected)[:3]
        assert not wrong.size, f"{name}: {[(a[i], b[i], out[row][i], expected[i]) for i in wrong]}"


@pytest.fixture(scope="module")
def float_kernels(prelude, host_cache):
    expressions = {"max": "nan_max(a, b)", "min": "nan_min(a, b)"}
    kernels = compile_many(_binary_kernels(expressions, FLOATS, prelude), cache_dir=host_cache)
    return dict(zip(FLOATS, kernels))


@pytest.mark.parametrize("dtype", FLOATS, ids=IDS)
def test_float_extremes_keep_nan(dtype, float_kernels):
    values = _values(dtype, 3)
    a, b = np.repeat(values, values.size), np.tile(values, values.size)
    out = _run_binary(float_kernels[dtype], a, b, 2).astype(np.float64)
    np.testing.assert_array_equal(out[0], np.maximum(a.astype(np.float64), b.astype(np.float64)))
    np.testing.assert_array_equal(out[1], np.minimum(a.astype(np.float64), b.astype(np.float64)))


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)], ids=IDS)
def test_float_floor_mod(dtype, prelude, host_cache):
    (kernel,) = compile_many(_binary_kernels({"mod": "floor_mod(a, b)"}, [dtype], prelude), cache_dir=host_cache)
    values = _values(dtype, 4)
    a, b = np.repeat(values, values.size), np.tile(values, values.size)
    out = _run_binary(kernel, a, b, 1)[0]
    with np.errstate(all="ignore"):
        expected = np.mod(a, b)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(np.signbit(out[out == 0]), np.signbit(expected[out == 0]))


def _convert(values: np.ndarray, to: np.dtype) -> np.ndarray:
    """Floats truncate and are clamped into integers, NaN gives 0; integers wrap; bool is != 0."""
    if to.kind == "b":
        return values.astype(np.float64) != 0 if values.dtype.kind in "fV" else values != 0
    if values.dtype.kind in "fV" and to.kind in "iu":
        info = np.iinfo(to)
        wide = values.astype(np.float64)
        clamped = [
            0 if np.isnan(v) else info.min if v <= info.min else info.max if v >= info.max else int(v) for v in wide
        ]
        return np.array(clamped, to)
    if to.kind == "V" and values.dtype != np.float64:
        values = values.astype(np.float32)
    with np.errstate(all="ignore"):
        return values.astype(to)


@pytest.fixture(scope="module")
def convert_kernels(prelude, host_cache):
    kernels = []
    for source in C_TYPES:
        parameters = ", ".join(f"{c}* o{i}" for i, c in enumerate(C_TYPES.values()))
        rows = "\n".join(f"    o{i}[i] = convert<{c}>(in[i]);" for i, c in enumerate(C_TYPES.values()))
        text = f"""{prelude}
extern "C" __global__ void conversions(const {C_TYPES[source]}* in, int n, {parameters}) {{
  int i = threadIdx.x;
  if (i < n) {{
{rows}
  }}
}}
LUMINAL_EXPORT(conversions)
"""
        kernels.append((text, "conversions"))
    return dict(zip(C_TYPES, compile_many(kernels, cache_dir=host_cache)))


@pytest.mark.parametrize("source", C_TYPES, ids=IDS)
def test_conversions_between_all_types(source, convert_kernels):
    values = _values(source, 5)
    outs = [np.zeros(values.size, to) for to in C_TYPES]
    convert_kernels[source].launch((1, 1, 1), (128, 1, 1), 0, [values, np.int32(values.size), *outs])
    for out in outs:
        expected = _convert(values, out.dtype)
        same = (out == expected) | (np.isnan(out.astype(np.float64)) & np.isnan(expected.astype(np.float64)))
        assert same.all(), f"to {out.dtype}: {[(values[i], out[i], expected[i]) for i in np.flatnonzero(~same)[:4]]}"


def test_constants_and_packs(prelude, host_cache):
    text = f"""{prelude}
extern "C" __global__ void constants(float* f, double* d, half* h, int8_t* b) {{
  f[0] = INFINITY;
  f[1] = -INFINITY;
  f[2] = NAN;
  f[3] = quiet_nan();
  d[0] = infinity<double>();
  d[1] = quiet_nan<double>();
  auto eight = load_pack<8>(h);
  for (int i = 0; i < 8; i++) eight[i] = convert<half>(widen(eight[i]) * 2);
  store_pack(h, eight);
  auto two = load_pack<2>(b);
  store_pack(b + 2, Pack<int8_t, 2>{{{{two[1], two[0]}}}});
}}
LUMINAL_EXPORT(constants)
"""
    (kernel,) = compile_many([(text, "constants")], cache_dir=host_cache)
    f, d, h, b = np.zeros(4, np.float32), np.zeros(2), np.arange(8).astype(np.float16), np.array([3, -4, 0, 0], np.int8)
    kernel.launch((1, 1, 1), (1, 1, 1), 0, [f, d, h, b])
    np.testing.assert_array_equal(f, [np.inf, -np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(d, [np.inf, np.nan])
    np.testing.assert_array_equal(h, np.arange(8) * 2)
    np.testing.assert_array_equal(b, [3, -4, -4, 3])


def test_warp_reductions_of_all_types(prelude, host_cache):
    kernels = []
    for c in C_TYPES.values():
        kernels.append((f"""{prelude}
extern "C" __global__ void reduce(const {c}* in, {c}* o) {{
  {c} v = in[threadIdx.x];
  o[threadIdx.x] = warp_max(v);
  o[32 + threadIdx.x] = warp_min<8>(v);
  o[64 + threadIdx.x] = shuffle_from(v, 7);
  o[96 + threadIdx.x] = shuffle_xor(v, 9);
}}
LUMINAL_EXPORT(reduce)
""", "reduce"))  # fmt: skip
    for dtype, kernel in zip(C_TYPES, compile_many(kernels, cache_dir=host_cache)):
        values = _values(dtype, 6)[:32]
        out = np.zeros((4, 32), dtype)
        kernel.launch((1, 1, 1), (32, 1, 1), 0, [values, out])
        wide = values.astype(np.float64) if dtype.kind in "fV" else values
        lanes = np.arange(32)
        smallest = wide.reshape(4, 8).min(1)[lanes // 8]
        expected = [np.full(32, wide.max()), smallest, np.full(32, wide[7]), wide[lanes ^ 9]]
        np.testing.assert_array_equal(out.astype(wide.dtype), expected, err_msg=dtype.name)
