"""What a program computes, kernel by kernel, in NumPy: the oracle for what the search chose, before any CUDA."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping

import numpy as np

from ..plan.dims import evaluate
from ..plan.lt import LtMatmul
from .feeds import bind_size
from .primitives import scatter_array, shape_at
from .program import BranchKernel, Kernel, LoopKernel, LtKernel, Program, RegionKernel, SizeRead
from .region_reference import run_region


def run_program(program: Program, feeds: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> list[np.ndarray]:
    """Return the outputs, in signature order, for feeds by input name and a value for every symbolic dim."""
    dims = dict(dims)
    buffers = run_kernels(program, feeds, dims)
    return [buffers[tensor].reshape(shape_at(type.shape, dims)) for _, type, tensor in program.outputs]


def run_kernels(
    program: Program, feeds: Mapping[str, np.ndarray], dims: MutableMapping[str, int]
) -> dict[int, np.ndarray]:
    """Return every tensor of the program, flat, by its number. `dims` gets the sizes that are read on the way."""
    buffers = {tensor.id: tensor.data.reshape(-1) for tensor in program.tensors if tensor.data is not None}
    for name, _, tensor in program.inputs:
        buffers[tensor] = np.ascontiguousarray(feeds[name]).reshape(-1)
    for kernel in program.kernels:
        operands = [buffers[tensor] for tensor in kernel.reads]
        if isinstance(kernel, SizeRead):
            dims[kernel.symbol] = bind_size(kernel.symbol, kernel.least, kernel.most, int(operands[0][0]), dims)
            continue
        if isinstance(kernel, LoopKernel):
            results = _run_loop(kernel, operands, dims)
        elif isinstance(kernel, BranchKernel):
            results = _run_body(kernel.then if operands[0][0] else kernel.otherwise, operands[1:], dims)
        else:
            results = _run_kernel(kernel, operands, dims)
        for tensor, result in zip(kernel.writes, results, strict=True):
            buffers[tensor] = result.reshape(-1)
    return buffers


def _run_loop(
    kernel: LoopKernel, operands: list[np.ndarray], dims: MutableMapping[str, int]
) -> list[np.ndarray]:
    first = int(kernel.conditional)
    goes_on = bool(operands[0][0]) if kernel.conditional else True
    states, captured = operands[first : first + kernel.states], operands[first + kernel.states :]
    most = math.inf if kernel.trips is None else int(evaluate(kernel.trips, dims))
    made: list[list[np.ndarray]] = []
    while goes_on and len(made) < most:
        results = _run_body(kernel.body, [*states, *captured], {**dims, kernel.trip: len(made)})
        goes_on = bool(results[0].reshape(-1)[0]) if kernel.conditional else True
        states = results[first : first + kernel.states]
        made.append(results[first + kernel.states :])
    if kernel.count is not None:
        dims[kernel.count] = len(made)
    types = [type for _, type, _ in kernel.body.outputs[first + kernel.states :]]
    rows = [np.concatenate([row.reshape(-1) for row in column]) for column in zip(*made)]
    return [*states, *(rows if made else [np.zeros(0, type.dtype.numpy) for type in types])]


def _run_body(body: Program, operands: list[np.ndarray], dims: Mapping[str, int]) -> list[np.ndarray]:
    feeds = {name: operand for (name, _, _), operand in zip(body.inputs, operands, strict=True)}
    return run_program(body, feeds, dims)


def _run_kernel(kernel: Kernel, operands: list[np.ndarray], dims: Mapping[str, int]) -> list[np.ndarray]:
    if isinstance(kernel, RegionKernel):
        types = kernel.region.operands
        shaped = [operand.reshape(shape_at(type.shape, dims)) for operand, type in zip(operands, types, strict=True)]
        return run_region(kernel.region, shaped, dims)
    if isinstance(kernel, LtKernel):
        return [run_lt(kernel.matmul.resolve(dims), operands)]
    dest, index, src = operands
    return [scatter_array(kernel.fn, dest, index, src)]


def run_lt(record: LtMatmul, operands: list[np.ndarray]) -> np.ndarray:
    """Return D, flat, of a record whose sizes are numbers: each matrix is addressed exactly as the record says."""
    a, b = operands[0], operands[1]
    layouts = record.matrices()
    left = a[_addresses(layouts["A"], record.batch, record.stride_a, record.offset_a)]
    right = b[_addresses(layouts["B"], record.batch, record.stride_b, record.offset_b)]
    wide = record.compute.numpy
    left = left.swapaxes(1, 2) if record.transpose_a else left
    right = right.swapaxes(1, 2) if record.transpose_b else right
    result = record.alpha * np.matmul(left.astype(wide), right.astype(wide))
    if record.has_c:
        places = _addresses(layouts["C"], record.batch, record.stride_c, record.offset_c)
        result = result + record.beta * operands[2][places].astype(wide)
    if record.has_bias:
        result = result + operands[-1][: record.m].astype(wide)[None, :, None]
    if record.activation == "relu":
        result = np.where(result > 0, result, 0.0).astype(wide)  # as the library does it: NaN becomes 0
    elif record.activation == "gelu":
        result = 0.5 * result * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (result + 0.044715 * result**3)))
    places = _addresses(layouts["D"], record.batch, record.stride_d, 0)
    out = np.zeros(places.size, record.type_d.numpy)
    out[places] = result.astype(record.type_d.numpy)
    return out


def _addresses(layout: tuple[int, int, int, str], batch: int, stride: int, offset: int) -> np.ndarray:
    """Return the element number of every [batch, row, column] of a matrix."""
    rows, columns, ld, order = layout
    row, column = np.arange(rows)[:, None], np.arange(columns)[None, :]
    one = row + column * ld if order == "col" else row * ld + column
    return offset + np.arange(batch)[:, None, None] * stride + one
