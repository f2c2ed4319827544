"""Plans with control flow written by hand, with their kernels: what the runtime tests of loops, branches and sizes share.

Every kernel is there twice: as CUDA, which the CPU road compiles, and as a function on views of memory, from which a fake
GPU and `interpret` are made. `interpret` runs a plan as its nodes are defined, copying every value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence as ListLike
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fake_gpu import array_at
from handmade_artifact import PRELUDE, sha
from luminal_onnx.plan.dims import Dim, Range, ceil_div, evaluate
from luminal_onnx.plan.dtypes import DType, bool_, float32, int64
from luminal_onnx.plan.records import (
    Buffer,
    If,
    KernelRecord,
    KernelStep,
    Loop,
    LtStep,
    Plan,
    Port,
    Segment,
    Sequence,
    Tree,
)
from luminal_onnx.runtime.lt_reference import run_matmul

SOURCES_BY_ENTRY = {
    "mix": """
extern "C" __global__ void mix(float* out, const float* a, const float* b, long long n, long long at_a, long long at_b,
                               long long t) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[at_a + i] * 0.5f + b[at_b + i] * 0.25f + (float)t * 0.125f;
}
LUMINAL_EXPORT(mix)
""",
    "bump": """
extern "C" __global__ void bump(float* out, const float* a, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += a[i];
}
LUMINAL_EXPORT(bump)
""",
    "less": """
extern "C" __global__ void less(bool* on, const float* a, long long at, long long limit) {
    on[0] = a[at] < (float)limit;
}
LUMINAL_EXPORT(less)
""",
    "seen": """
extern "C" __global__ void seen(long long* count, const float* a, long long n) {
    long long found = 0;
    for (long long i = 0; i < n; i++) found += a[i] > 0.0f;
    count[0] = found;
}
LUMINAL_EXPORT(seen)
""",
    "pick": """
extern "C" __global__ void pick(float* out, const float* a, long long n, long long s) {
    long long found = 0;
    for (long long i = 0; i < n && found < s; i++) if (a[i] > 0.0f) out[found++] = a[i];
}
LUMINAL_EXPORT(pick)
""",
}  # fmt: skip
TEXTS = {entry: PRELUDE + text for entry, text in SOURCES_BY_ENTRY.items()}
SOURCES = {sha(text): text for text in TEXTS.values()}

View = Callable[..., np.ndarray]  # (place, count, dtype) → the elements there


def _mix(view: View, out, a, b, n, at_a, at_b, t):
    first, second = view(a, at_a + n, np.float32)[at_a:], view(b, at_b + n, np.float32)[at_b:]
    view(out, n, np.float32)[:] = first * np.float32(0.5) + second * np.float32(0.25) + np.float32(t * 0.125)


def _bump(view: View, out, a, n):
    view(out, n, np.float32)[:] += view(a, n, np.float32)


def _less(view: View, on, a, at, limit):
    view(on, 1, np.bool_)[0] = view(a, at + 1, np.float32)[at] < limit


def _seen(view: View, count, a, n):
    view(count, 1, np.int64)[0] = (view(a, n, np.float32) > 0).sum() if n else 0


def _pick(view: View, out, a, n, s):
    values = view(a, n, np.float32)
    view(out, s, np.float32)[:] = values[values > 0][:s]


EFFECTS = {"mix": _mix, "bump": _bump, "less": _less, "seen": _seen, "pick": _pick}
_ARGUMENTS = {"mix": (1, 2, 4), "bump": (1, 1, 1), "less": (1, 1, 2), "seen": (1, 1, 1), "pick": (1, 1, 2)}
GPU_KERNELS = {
    entry: (lambda *arguments, effect=effect: effect(array_at, *arguments), sum(_ARGUMENTS[entry]))
    for entry, effect in EFFECTS.items()
}


def launch(entry: str, out: int, reads: ListLike[int], scalars: ListLike[Dim], threads: Dim = 1) -> KernelStep:
    """Return a launch of one of the kernels; `threads` is how many elements there are to do."""
    grid = (ceil_div(threads, 32), 1, 1) if threads != 1 else (1, 1, 1)
    block = (32, 1, 1) if threads != 1 else (1, 1, 1)
    record = KernelRecord(entry, sha(TEXTS[entry]), entry, grid, block, 0, len(reads), 1, tuple(scalars), 64)
    return KernelStep(record, (out,), tuple(reads), (entry,))


def mix(out: int, a: int, b: int, n: Dim, at_a: Dim = 0, at_b: Dim = 0, t: Dim = 0) -> KernelStep:
    """out = a/2 + b/4 + t/8, n elements, of a from `at_a` on and of b from `at_b` on."""
    return launch("mix", out, (a, b), (n, at_a, at_b, t), n)


def bump(out: int, a: int, n: Dim) -> KernelStep:
    """out += a: changes what is there."""
    return launch("bump", out, (a,), (n,), n)


def less(on: int, a: int, limit: Dim, at: Dim = 0) -> KernelStep:
    """on = a[at] < limit."""
    return launch("less", on, (a,), (at, limit))


def seen(count: int, a: int, n: Dim) -> KernelStep:
    """count = how many of a's first n elements are positive."""
    return launch("seen", count, (a,), (n,))


def pick(out: int, a: int, n: Dim, s: Dim) -> KernelStep:
    """out = the first s positive elements of a. Launched only if s is not 0."""
    step = launch("pick", out, (a,), (n, s))
    return KernelStep(
        KernelRecord(**{**vars(step.kernel), "grid": (ceil_div(s, 1 << 20), 1, 1), "block": (1, 1, 1)}),
        (out,),
        (a,),
        ("pick",),
    )


def mixed(a: np.ndarray, b: np.ndarray, t: int = 0) -> np.ndarray:
    """What `mix` computes."""
    return a * 0.5 + b * 0.25 + t * 0.125


@dataclass
class Maker:
    """Collects the buffers of a plan."""

    buffers: list[Buffer] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def _new(self, name: str, kind: str, dtype: DType, shape: ListLike[Dim]) -> int:
        self.buffers.append(Buffer(len(self.buffers), name, kind, dtype, tuple(shape)))
        return len(self.buffers) - 1

    def input(self, name: str, *shape: Dim, dtype: DType = float32) -> int:
        return self._new(name, "input", dtype, shape)

    def weight(self, name: str, array: np.ndarray) -> int:
        self.weights[name] = array
        return self._new(name, "weight", float32, array.shape)

    def temp(self, *shape: Dim, dtype: DType = float32) -> int:
        return self._new(f"t{len(self.buffers)}", "temporary", dtype, shape)

    def flag(self) -> int:
        return self.temp(dtype=bool_)

    def number(self) -> int:
        return self.temp(dtype=int64)

    def plan(self, root: Tree | ListLike[Tree | KernelStep], outputs: ListLike[int], **ranges: Range) -> Plan:
        """Return the plan; steps that stand alone become segments."""
        ports = [Port(b.name, b.dtype, b.shape, b.id) for b in self.buffers]
        given = tuple(port for port, b in zip(ports, self.buffers) if b.kind == "input")
        named = tuple(Port(f"y{at}", ports[b].dtype, ports[b].shape, b) for at, b in enumerate(outputs))
        return Plan("sm_90", tuple(self.buffers), given, named, block(root), ranges)


def block(root: Any) -> Tree:
    """Return steps and trees in order as one tree."""
    if isinstance(root, (KernelStep, LtStep)):
        return Segment((root,))
    if not isinstance(root, (list, tuple)):
        return root
    if root and all(isinstance(child, (KernelStep, LtStep)) for child in root):
        return Segment(tuple(root))
    return Sequence(tuple(block(child) for child in root))


@dataclass
class Case:
    """A plan, sets of feeds, and for each what comes out and how many scalars are read to get there."""

    plan: Plan
    weights: Mapping[str, np.ndarray]
    feeds: list[dict[str, np.ndarray]]
    expected: Callable[..., list[np.ndarray]]
    read_backs: Callable[..., int] = lambda **feeds: 0


def write(path: Path, case: Case, gpu: bool = False, binaries: Any = None) -> Path:
    """Write an artifact with the case's plan; with `gpu` it holds what the fake GPU takes for machine code, with `binaries`
    real code."""
    from luminal_onnx.codegen.artifact import write_artifact

    fake = {"sm_90": {source: f"cubin {source}".encode() for source in SOURCES}} if gpu else {}

    write_artifact(
        path,
        manifest_info={"model": {"name": "control", "sha256": "0" * 64}},
        plans={"sm_90": case.plan},
        cubins=fake if binaries is None else binaries.cubins,
        ptx={} if binaries is None else binaries.ptx,
        sources=SOURCES,
        weights=case.weights,
    )
    return path


def interpret(plan: Plan, weights: Mapping[str, np.ndarray], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run a plan as its nodes are defined: every value is copied, every temporary new."""
    return _Interpreter(plan, weights, feeds).run()


class _Interpreter:
    def __init__(self, plan: Plan, weights, feeds) -> None:
        self.plan = plan
        self.buffers = {buffer.id: buffer for buffer in plan.buffers}
        self.dims: dict[str, int] = {}
        self.values: dict[int, np.ndarray] = {}
        for port in plan.inputs:
            self.values[port.buffer] = feeds[port.name].copy()
            for dim, size in zip(port.shape, feeds[port.name].shape):
                if not isinstance(dim, int):
                    self.dims[str(dim)] = size
        for buffer in plan.buffers:
            if buffer.kind == "weight":
                self.values[buffer.id] = weights[buffer.name].copy()

    def run(self) -> list[np.ndarray]:
        self.tree(self.plan.root)
        return [
            self.values[port.buffer].reshape(-1)[: int(np.prod(shape, dtype=int))].reshape(shape).copy()
            for port in self.plan.outputs
            for shape in [self.shape(port.shape)]
        ]

    def shape(self, shape) -> tuple[int, ...]:
        return tuple(int(evaluate(dim, self.dims)) for dim in shape)

    def tree(self, tree: Tree) -> None:
        if isinstance(tree, Segment):
            for step in tree.steps:
                self.step(step)
        elif isinstance(tree, Sequence):
            for child in tree.children:
                self.tree(child)
        elif isinstance(tree, Loop):
            self.loop(tree)
        elif isinstance(tree, If):
            holds = bool(self.values[tree.condition].reshape(-1)[0])
            self.tree(tree.then if holds else tree.otherwise)
            for merged in tree.results:
                self.values[merged.result] = self.values[merged.then if holds else merged.otherwise].copy()
        else:
            value = int(self.values[tree.buffer].reshape(-1)[0])
            assert evaluate(tree.least, self.dims) <= value <= evaluate(tree.most, self.dims)
            self.dims[tree.symbol] = value

    def loop(self, loop: Loop) -> None:
        trips = np.inf if loop.trips is None else evaluate(loop.trips, self.dims)
        states = [self.values[carried.initial].copy() for carried in loop.carried]
        rows: list[list[np.ndarray]] = [[] for _ in loop.rows]
        on = loop.condition is None or bool(self.values[loop.condition[0]].reshape(-1)[0])
        trip = 0
        while on and trip < trips:
            self.dims[loop.trip] = trip
            for carried, state in zip(loop.carried, states):
                self.values[carried.state] = state
            self.tree(loop.body)
            states = [self.values[carried.next].copy() for carried in loop.carried]
            for row, collected in zip(loop.rows, rows):
                collected.append(self.values[row.row].copy())
            on = loop.condition is None or bool(self.values[loop.condition[1]].reshape(-1)[0])
            trip += 1
        for carried, state in zip(loop.carried, states):
            self.values[carried.result] = state
        if loop.count is not None:
            self.dims[loop.count] = trip
        for row, collected in zip(loop.rows, rows):
            dtype = self.buffers[row.result].dtype.numpy
            self.values[row.result] = np.array(collected, dtype).reshape(self.shape(self.buffers[row.result].shape))

    def step(self, step) -> None:
        if isinstance(step, LtStep):
            self._ready(step.writes)
            flat = [self.values[buffer].reshape(-1) for buffer in step.reads]
            run_matmul(step.matmul.resolve(self.dims), self.values[step.writes[0]].reshape(-1), flat)
            return
        self._ready(step.writes)
        if 0 in self.shape(step.kernel.grid):
            return
        places = [self.values[buffer] for buffer in (*step.writes, *step.reads)]
        scalars = self.shape(step.kernel.scalars)
        EFFECTS[step.kernel.entry](lambda array, count, dtype: array.reshape(-1)[:count], *places, *scalars)

    def _ready(self, writes) -> None:
        """Give what is written a place, filled with what no test may see, unless it holds a value of this very shape."""
        for buffer in writes:
            held = self.buffers[buffer]
            shape = self.shape(held.shape)
            if buffer not in self.values or self.values[buffer].shape != shape:
                self.values[buffer] = np.full(shape, 77, held.dtype.numpy)
