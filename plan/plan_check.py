"""What must hold for a plan: everything is written before it is read, in the scope where it is read, and every symbol
has a value where a size needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .control import If, Loop, Segment, Sequence, Size, Tree, bound_symbols
from .dims import Dim, Expr, product, symbol, symbols
from .dtypes import DType, bool_, int64
from .errors import LuminalError
from .steps import KernelStep, Step, symbols_of

if TYPE_CHECKING:
    from .records import Buffer, Plan


_SHARED = "which the result of a loop or branch may share"


def check_plan(plan: Plan) -> None:
    """Raise LuminalError if the plan is not valid; see `Plan.validate`."""
    _Check(plan).run()


class _Scope:
    """What is known at one place of the tree: buffers that hold a value, and symbols that have one.

    `fixed` are the buffers that no step may write there, and why.
    """

    def __init__(self, ready: Iterable[int], known: Iterable[str], fixed: Mapping[int, str]) -> None:
        self.ready = set(ready)
        self.known = set(known)
        self.fixed = dict(fixed)

    def inner(self) -> _Scope:
        fixed = {buffer: self.fixed.get(buffer, "written outside of this body or branch") for buffer in self.ready}
        return _Scope(self.ready, self.known, fixed)

    def fix(self, buffers: Iterable[int], why: str) -> None:
        for buffer in buffers:
            self.fixed.setdefault(buffer, why)

    def set(self, buffer: int) -> None:
        """Note a value that a node gives; it may lie where another value lies."""
        self.ready.add(buffer)
        self.fix((buffer,), "which a loop or branch gives")


class _Check:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.buffers: Mapping[int, Buffer] = {buffer.id: buffer for buffer in plan.buffers}
        self.late = bound_symbols(plan.root)
        self.writers: dict[int, _Scope] = {}  # the one scope whose steps write a buffer
        self.position = 0
        self.loops = self.branches = 0

    def run(self) -> None:
        plan = self.plan
        given = {buffer.id for buffer in plan.buffers if buffer.kind != "temporary"}
        shapes = [dim for port in plan.inputs for dim in port.shape]
        fixed = dict.fromkeys(given, "an input or weight")
        scope = _Scope(given, (set(plan.ranges) | _symbols(shapes)) - self.late, fixed)
        if taken := _symbols(shapes) & self.late:
            raise LuminalError(f"dim {', '.join(sorted(taken))} is both the size of an input and set by the plan")
        self.tree(plan.root, scope)
        for port in plan.outputs:
            if port.buffer not in scope.ready:
                raise LuminalError(f"output {port.name!r} is never written")
            self.known(f"output {port.name!r}", (*port.shape, *self.buffers[port.buffer].shape), scope)
        for buffer in plan.buffers:
            if unknown := _symbols(buffer.shape) - scope.known - self.late:
                raise LuminalError(
                    f"buffer {buffer.id} ({buffer.name!r}) has dim {', '.join(sorted(unknown))}, "
                    "which is the size of no input and which no node sets"
                )

    def tree(self, tree: Tree, scope: _Scope) -> None:
        if isinstance(tree, Segment):
            for step in tree.steps:
                self.step(step, scope)
        elif isinstance(tree, Sequence):
            for child in tree.children:
                self.tree(child, scope)
        elif isinstance(tree, Loop):
            self.loop(tree, scope)
        elif isinstance(tree, If):
            self.branch(tree, scope)
        else:
            self.size(tree, scope)

    def step(self, step: Step, scope: _Scope) -> None:
        where = f"step {self.position}"
        self.position += 1
        record = step.kernel if isinstance(step, KernelStep) else step.matmul
        record.validate()
        for buffer in (*step.reads, *step.writes):
            if buffer not in self.buffers:
                raise LuminalError(f"{where} names buffer {buffer}, which the plan does not have")
        for buffer in step.reads:
            self.reads(where, buffer, scope)
        for buffer in step.writes:
            why = scope.fixed.get(buffer)
            if why is None and self.writers.setdefault(buffer, scope) is not scope:
                why = "written in another body or branch"
            if why is not None:
                raise LuminalError(f"{where} writes buffer {buffer}, {why}")
        scope.ready.update(step.writes)
        if self.late and (unknown := symbols_of(step) & self.late - scope.known):
            raise LuminalError(f"{where} needs dim {', '.join(sorted(unknown))}, which has no value there")

    def loop(self, loop: Loop, scope: _Scope) -> None:
        where = f"loop {self.loops} over {loop.trip!r}"
        self.loops += 1
        if loop.trips is None and loop.condition is None:
            raise LuminalError(f"{where} has neither a number of trips nor a condition")
        if loop.count is not None and loop.condition is None:
            raise LuminalError(f"{where} counts its trips, which only a loop with a condition may do")
        if loop.rows and loop.condition is not None and loop.count is None:
            raise LuminalError(f"{where} collects rows under a condition, so it must count its trips")
        if loop.trips is not None:
            self.known(where, (loop.trips,), scope)
        body = scope.inner()
        self.bind(where, loop.trip, body)
        for carried in loop.carried:
            self.reads(where, carried.initial, scope)
            self.fresh(where, carried.state, body)
            body.set(carried.state)
        if loop.condition is not None:
            self.scalar(where, loop.condition[0], bool_, scope)
        self.tree(loop.body, body)
        if loop.condition is not None:
            self.scalar(where, loop.condition[1], bool_, body)
        for carried in loop.carried:
            self.reads(where, carried.next, body)
            self.fresh(where, carried.result, body)
            for other in (carried.state, carried.next, carried.result):
                self.same_type(where, carried.initial, other)
            self.free_of(where, carried.state, loop.trip)
            body.ready.add(carried.result)
            scope.set(carried.result)
            scope.fix({carried.initial, carried.next} & scope.ready, _SHARED)
        if loop.count is not None:
            self.bind(where, loop.count, scope)
        made: Dim = loop.trips if loop.count is None else symbol(loop.count)
        for row in loop.rows:
            self.reads(where, row.row, body)
            self.fresh(where, row.result, body)
            self.same_type(where, row.row, row.result, (made,))
            self.free_of(where, row.row, loop.trip)
            body.ready.add(row.result)
            scope.set(row.result)

    def branch(self, node: If, scope: _Scope) -> None:
        where = f"branch {self.branches}"
        self.branches += 1
        self.scalar(where, node.condition, bool_, scope)
        sides = []
        for tree in (node.then, node.otherwise):
            side = scope.inner()
            self.tree(tree, side)
            sides.append(side)
        for merged in node.results:
            for side, buffer in zip(sides, (merged.then, merged.otherwise)):
                self.reads(where, buffer, side)
                self.fresh(where, merged.result, side)
                self.same_type(where, buffer, merged.result)
            scope.fix({merged.then, merged.otherwise} & scope.ready, _SHARED)
            scope.set(merged.result)
            for side in sides:
                side.ready.add(merged.result)

    def size(self, size: Size, scope: _Scope) -> None:
        where = f"size {size.symbol!r}"
        self.scalar(where, size.buffer, int64, scope)
        self.known(where, (size.least, size.most), scope)
        self.bind(where, size.symbol, scope)

    def reads(self, where: str, buffer: int, scope: _Scope) -> None:
        if buffer not in self.buffers:
            raise LuminalError(f"{where} names buffer {buffer}, which the plan does not have")
        if buffer not in scope.ready:
            raise LuminalError(f"{where} reads buffer {buffer} before anything wrote it")

    def scalar(self, where: str, buffer: int, dtype: DType, scope: _Scope) -> None:
        self.reads(where, buffer, scope)
        held = self.buffers[buffer]
        if held.dtype != dtype or any(size != 1 for size in held.shape):
            raise LuminalError(
                f"{where} looks at buffer {buffer}, {held.dtype}[{_text(held.shape)}]: expected one {dtype}"
            )

    def fresh(self, where: str, buffer: int, scope: _Scope) -> None:
        """Check that a state or result is a temporary that nothing has written yet."""
        if buffer not in self.buffers:
            raise LuminalError(f"{where} names buffer {buffer}, which the plan does not have")
        if self.buffers[buffer].kind != "temporary" or buffer in scope.ready:
            raise LuminalError(f"{where} sets buffer {buffer}, which holds another value already")

    def bind(self, where: str, name: str, scope: _Scope) -> None:
        if name in scope.known:
            raise LuminalError(f"{where} sets dim {name!r}, which has a value already")
        scope.known.add(name)

    def known(self, where: str, dims: Iterable[Dim], scope: _Scope) -> None:
        if unknown := _symbols(dims) - scope.known:
            raise LuminalError(f"{where} needs dim {', '.join(sorted(unknown))}, which has no value there")

    def free_of(self, where: str, buffer: int, name: str) -> None:
        if name in _symbols(self.buffers[buffer].shape):
            raise LuminalError(f"{where}: the shape of buffer {buffer} changes from trip to trip")

    def same_type(self, where: str, one: int, other: int, before: tuple[Dim, ...] = ()) -> None:
        """Check types and, as far as dims tell without their values, sizes; binding checks the rest.

        A buffer is its elements in a row, so one that is as large serves as another shape.
        """
        a, b = self.buffers[one], self.buffers[other]
        expected = (*before, *a.shape)
        sizes = product(expected), product(b.shape)
        if a.dtype != b.dtype or (all(isinstance(size, int) for size in sizes) and sizes[0] != sizes[1]):
            raise LuminalError(
                f"{where}: buffer {other} is {b.dtype}[{_text(b.shape)}], "
                f"expected {a.dtype}[{_text(expected)}] as buffer {one} gives it"
            )


def _symbols(dims: Iterable[Dim]) -> set[str]:
    return {name for dim in dims if isinstance(dim, Expr) for name in symbols(dim)}


def _text(dims: Iterable[Dim]) -> str:
    return ", ".join(map(str, dims))
