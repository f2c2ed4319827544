"""What a region means, in NumPy, and the harness that runs a generated kernel on the CPU."""

from __future__ import annotations

import numpy as np
from luminal_onnx.codegen import lower_region
from luminal_onnx.ir.region import Broadcast, Constant, Elementwise, Gather, Iota, Load, Reduce, Region
from luminal_onnx.ir.scalars import evaluate as scalar
from luminal_onnx.plan.dims import evaluate
from luminal_onnx.plan.dtypes import DType
from luminal_onnx.runtime.cpu import CheckedBuffer, compile_host

Env = dict[str, int]


def shape_of(space, env: Env) -> tuple[int, ...]:
    return tuple(evaluate(dim, env) for dim in space)


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Return values of about 1 for floats, small integers, or coin tosses."""
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    if dtype.is_integer:
        return rng.integers(-9 if dtype.kind == "i" else 0, 10, shape).astype(dtype.numpy)
    return rng.random(shape) < 0.5


def random_operands(region: Region, env: Env, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [random_array(rng, operand.dtype, shape_of(operand.shape, env)) for operand in region.operands]


def region_values(region: Region, operands: list[np.ndarray], env: Env) -> list[np.ndarray]:
    """Return every store's value, with floats computed in float64."""
    values: list[np.ndarray] = []
    for node in region.nodes:
        shape = shape_of(node.space, env)
        if isinstance(node, Load):
            value = node.view.apply(operands[node.slot], env)
        elif isinstance(node, Constant):
            value = np.broadcast_to(np.frombuffer(node.bits, node.dtype.numpy)[0], shape)
        elif isinstance(node, Iota):
            axes = np.meshgrid(*(np.arange(size) for size in shape), indexing="ij") if shape else ()
            value = np.broadcast_to(np.asarray(evaluate(node.expr, env, axes), np.int64), shape)
        elif isinstance(node, Elementwise):
            target = node.dtype.numpy if not node.dtype.is_float else np.dtype(np.float64)
            value = scalar(node.fn, [values[arg] for arg in node.args], _of(target))
            if node.fn == "cast" and node.dtype.is_float and node.dtype.bits == 16:
                value = value.astype(node.dtype.numpy)
        elif isinstance(node, Gather):
            flat = operands[node.slot].reshape(-1)
            value = flat[np.clip(values[node.args[0]], 0, flat.size - 1)]
        elif isinstance(node, Reduce):
            axes = tuple(range(len(shape), len(shape) + len(node.extents)))
            value = _reduced(node, values[node.args[0]], axes)
        elif isinstance(node, Broadcast):
            value = np.broadcast_to(values[node.args[0]].reshape(*shape[: -len(node.extents)], *[1] * len(node.extents)), shape)
        values.append(value.astype(np.float64) if node.dtype.is_float else value)
    return [values[at] for at in region.stores]


def _of(target: np.dtype):
    class Named:
        numpy = target

    return Named


def _reduced(node: Reduce, value: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    if node.fn in ("sum", "prod"):
        return getattr(np, node.fn)(value, axis=axes, dtype=value.dtype)
    if node.dtype.is_float:
        start = -np.inf if node.fn == "max" else np.inf
    elif node.dtype.is_integer:
        start = getattr(np.iinfo(node.dtype.numpy), "min" if node.fn == "max" else "max")
    else:
        start = node.fn == "min"
    return getattr(np, node.fn)(value, axis=axes, initial=start)



class HostRun:
    """A region's kernel, compiled for the CPU; `run` launches it at the dims of env and returns what it stored."""

    def __init__(self, region: Region, schedule: str, ranges=None, *, check: bool = False) -> None:
        self.region = region
        self.record, self.text = lower_region(region, schedule, ranges)
        self.record.validate()
        self.kernel = compile_host(self.text, self.record.entry, check=check)
        self.check = check

    def run(self, operands: list[np.ndarray], env: Env | None = None, *, reverse: bool = False) -> list[np.ndarray]:
        env = env or {}
        record = self.record
        nodes = [self.region.nodes[at] for at in self.region.stores]
        outputs = [garbage(node.dtype, shape_of(node.space, env)) for node in nodes]
        scalar_type = np.int64 if record.scalar_bits == 64 else np.int32
        scalars = [scalar_type(evaluate(dim, env)) for dim in record.scalars]
        grid = tuple(evaluate(size, env) for size in record.grid)
        buffers = None
        if self.check:
            buffers = [CheckedBuffer(f"out{k}", array, initialised=False) for k, array in enumerate(outputs)]
            buffers += [CheckedBuffer(f"in{k}", array, read_only=True) for k, array in enumerate(operands)]
        arguments = [*outputs, *operands, *scalars]
        self.kernel.launch(grid, record.block, record.shared_bytes, arguments, buffers=buffers, reverse=reverse)
        return outputs


def garbage(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array whose bytes no test expects."""
    array = np.empty(shape, dtype.numpy)
    array.reshape(-1).view(np.uint8)[:] = 1 if dtype.kind == "b" else 0xA5
    return array
