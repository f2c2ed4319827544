"""Random regions with random views under every schedule and the checker. A failure names its seed, which rebuilds it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from luminal_onnx.ir.schedule import ROW_SCHEDULES, schedules
from luminal_onnx.plan.dims import Range, symbol
from luminal_onnx.plan.dtypes import bfloat16, float16, float32, float64, int32
from luminal_onnx.plan.view import compose, expand, identity, pad, reshape, slice_, transpose
from region_values import HostRun, random_operands, region_values
from regions import RegionBuilder
from tolerances import REDUCTION, assert_close

DTYPES = (float32, float32, float16, bfloat16, float64, int32)


def random_view(rng, space, fill):
    """Return a view whose output space is `space`, built backwards from it by a few steps."""
    view = identity(space)
    for _ in range(rng.integers(0, 4)):
        shape, rank = view.in_shape, len(view.in_shape)
        kind = rng.integers(0, 5)
        if kind == 0 and rank:  # the operand is stored in another order of axes
            order = rng.permutation(rank)
            step = transpose(tuple(np.array(shape)[np.argsort(order)].tolist()), order.tolist())
        elif kind == 1:  # every so many elements of a larger operand, some axes backwards
            steps = [int(rng.choice([-2, -1, 1, 2, 3])) for _ in shape]
            larger = [abs(step) * max(extent - 1, 0) + 1 + int(rng.integers(0, 3)) for step, extent in zip(steps, shape)]
            starts = [0 if step > 0 else -step * max(extent - 1, 0) for step, extent in zip(steps, shape)]
            step = slice_(larger, starts, steps, shape)
        elif kind == 2:  # the border is not there
            before = [int(rng.integers(0, min(2, extent) + 1)) if extent > 1 else 0 for extent in shape]
            after = [int(rng.integers(0, 2)) if extent - b > 1 else 0 for extent, b in zip(shape, before)]
            inner = [extent - b - a for extent, b, a in zip(shape, before, after)]
            if 0 in inner:
                continue
            step = pad(inner, before, after, fill)
        elif kind == 3 and 0 not in shape:  # some axes repeat
            step = expand([1 if rng.random() < 0.4 else extent for extent in shape], shape)
        elif kind == 4:  # the elements lie in another shape
            total = math.prod(shape)
            divisors = [k for k in range(1, total + 1) if total % k == 0] or [1]
            first = int(rng.choice(divisors))
            step = reshape((first, total // first) if total else (0,), shape)
        else:
            continue
        view = compose(view, step) or view
    return view


def random_region(rng):
    rank = int(rng.integers(1, 4))
    rows = tuple(int(rng.choice([1, 2, 3, 5, 8])) for _ in range(rank - 1))
    columns = tuple(int(rng.choice([1, 2, 4, 7, 12, 32])) for _ in range(int(rng.integers(0, 3))))
    dtype = DTYPES[rng.integers(len(DTYPES))]
    b = RegionBuilder()
    space = rows + columns
    values = [b.load(dtype, random_view(rng, space, 1 if dtype is int32 else 0.5)) for _ in range(rng.integers(1, 4))]

    def grow():
        for _ in range(rng.integers(1, 4)):
            x, y = (values[rng.integers(len(values))] for _ in range(2))
            values.append(b.op(["add", "sub", "max", "min"][rng.integers(4)], x, y))

    grow()
    if not columns:
        return b.region(values[-1], *([values[-2]] if rng.random() < 0.3 else []))
    stores = []
    for _ in range(rng.integers(1, 4)):
        result = b.reduce(["sum", "max", "min"][rng.integers(3)], values[-1], len(columns))
        if rng.random() < 0.4:
            result = b.op("sub", result, b.load(dtype, random_view(rng, rows, 1 if dtype is int32 else 0.5)))
        if rng.random() < 0.6:
            stores.append(result)
        values.append(b.op("sub", values[-1], b.broadcast(result, columns)))
        grow()
    return b.region(*stores, values[-1]) if rng.random() < 0.6 or not stores else b.region(*stores)


@pytest.mark.parametrize("seed", range(40))
def test_random_regions(seed):
    rng = np.random.default_rng(seed)
    region = random_region(rng)
    operands = random_operands(region, {}, seed)
    columns = region.row_split()[1]
    names = ROW_SCHEDULES if columns else schedules(region)
    for schedule in names:
        kernel = HostRun(region, schedule, check=True)
        for got, want in zip(kernel.run(operands), region_values(region, operands, {}), strict=True):
            assert_close(got, want, REDUCTION, vacuous_ok=True)


@pytest.mark.parametrize("seed", range(8))
def test_random_symbolic_slices(seed):
    """Rows of a symbolic table, sliced from one with a symbolic margin; every text runs at several sizes."""
    rng = np.random.default_rng(seed)
    n, k = symbol("n"), symbol("k")
    ranges = {"n": Range(1, 8, 40), "k": Range(1, 8, 70)}
    width = int(rng.choice([1, 4, 6]))
    b = RegionBuilder(ranges)
    margin, step = int(rng.integers(0, 3)), int(rng.choice([1, 2]))
    view = slice_((n + margin, step * k, width), (margin, step - 1, 0), (1, step, 1), (n, k, width), ranges)
    x = b.load(float32, view)
    y = b.expanded(float32, (k, 1), (n, k, width))
    product = b.op("mul", x, y)
    total = b.reduce("sum", product, 2)
    region = b.region(b.op("sub", product, b.broadcast(total, (k, width))), total)
    for schedule in ROW_SCHEDULES:
        kernel = HostRun(region, schedule, ranges, check=True)
        for env in ({"n": 1, "k": 1}, {"n": 3, "k": 70}, {"n": 40, "k": 7}):
            operands = random_operands(region, env, seed)
            for got, want in zip(kernel.run(operands, env), region_values(region, operands, env), strict=True):
                assert_close(got, want, REDUCTION, vacuous_ok=True)
