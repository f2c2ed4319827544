"""Choosing the cheapest set of kernels for the whole DAG, exactly.

The problem is cut where it falls apart by itself. A tensor that every choice needs is *settled*; what remains open links
kernels into independent parts. Equal parts, such as the layers of a deep model, are solved once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Choice(Protocol):
    """What the solver looks at: tensors written and read, and a cost."""

    writes: tuple[int, ...]
    reads: tuple[int, ...]
    cost: float


@dataclass
class Solution:
    """Chosen kernels, and how sure their choice is: "optimal", or "greedy" where the time ran out."""

    chosen: list[Choice]
    cost: float
    status: str = "optimal"
    parts: int = 0
    distinct_parts: int = 0
    largest_part: int = 0
    seconds: float = 0.0


@dataclass
class _Part:
    choices: list[int] = field(default_factory=list)


def solve(
    by_tensor: Mapping[int, Sequence[Choice]],
    roots: Iterable[int],
    free: Callable[[int], bool],
    order: Callable[[int], int],
    seconds: float = 20.0,
) -> Solution:
    """Return a cheapest acyclic set of choices in which every root is written, and everything read is written or free.

    `order` numbers tensors so that equal parts of a model count alike; it only breaks ties and finds equal parts.
    """
    started = time.perf_counter()
    problem = _Problem(by_tensor, sorted(set(root for root in roots if not free(root)), key=order), free, order)
    parts = problem.parts()
    known: dict[tuple, list[int] | None] = {}
    chosen: list[Choice] = []
    status = "optimal"
    for part in parts:
        key = problem.signature(part)
        if key not in known:
            left = seconds - (time.perf_counter() - started)
            known[key] = problem.solve_part(part, left) if left > 0 else None
        if known[key] is None:
            status = "greedy"
            break
        chosen.extend(problem.choices[part[position]] for position in known[key])
    if status == "greedy":
        chosen = problem.greedy()
    chosen = problem.needed(chosen)
    return Solution(
        chosen=chosen,
        cost=sum(choice.cost for choice in chosen),
        status=status,
        parts=len(parts),
        distinct_parts=len(known),
        largest_part=max(map(len, parts), default=0),
        seconds=time.perf_counter() - started,
    )


class _Problem:
    def __init__(
        self,
        by_tensor: Mapping[int, Sequence[Choice]],
        roots: list[int],
        free: Callable[[int], bool],
        order: Callable[[int], int],
    ) -> None:
        self.roots, self.free, self.order = roots, free, order
        self.tensors = self._reachable(by_tensor)
        dropped = _dominated(choice for tensor in self.tensors for choice in by_tensor[tensor])
        self.by_tensor = {
            tensor: [choice for choice in by_tensor[tensor] if id(choice) not in dropped] for tensor in self.tensors
        }
        seen: dict[int, int] = {}
        self.choices: list[Choice] = []
        for tensor in self.tensors:
            for choice in self.by_tensor[tensor]:
                if id(choice) not in seen:
                    seen[id(choice)] = len(self.choices)
                    self.choices.append(choice)
        self.number = seen
        self.reads = [[read for read in choice.reads if not free(read)] for choice in self.choices]
        self.writes = [[write for write in choice.writes if write in self.by_tensor] for choice in self.choices]
        self.settled = self._settled()
        self.cyclic = self._components()

    def _reachable(self, by_tensor: Mapping[int, Sequence[Choice]]) -> list[int]:
        found, stack = set(), list(self.roots)
        while stack:
            tensor = stack.pop()
            if tensor not in found:
                found.add(tensor)
                for choice in by_tensor[tensor]:
                    stack.extend(read for read in choice.reads if not self.free(read))
                    stack.extend(write for write in choice.writes if write in by_tensor)
        return sorted(found, key=self.order)

    def _settled(self) -> set[int]:
        """Return the tensors that every solution writes: the roots, and what all choices for a settled one read."""
        settled, stack = set(), list(self.roots)
        while stack:
            tensor = stack.pop()
            if tensor in settled:
                continue
            settled.add(tensor)
            numbers = [self.number[id(choice)] for choice in self.by_tensor[tensor]]
            common = set(self.reads[numbers[0]]).intersection(*(self.reads[number] for number in numbers))
            stack.extend(common)
        return settled

    def _components(self) -> dict[int, int]:
        """Return, for each tensor on a cycle of reads, the number of its strongly connected component."""
        edges = {
            tensor: sorted(
                {read for choice in self.by_tensor[tensor] for read in self.reads[self.number[id(choice)]]},
                key=self.order,
            )
            for tensor in self.tensors
        }
        return {
            tensor: number
            for number, component in enumerate(strong_components(edges))
            if len(component) > 1 or component[0] in edges[component[0]]
            for tensor in component
        }

    def _inside(self, number: int) -> list[tuple[int, int]]:
        """Return the (written, read) pairs of a choice that lie on one cycle."""
        return [
            (write, read)
            for write in self.writes[number]
            for read in self.reads[number]
            if write in self.cyclic and self.cyclic[write] == self.cyclic.get(read)
        ]

    def parts(self) -> list[list[int]]:
        """Return the choices by independent part, in the order of their first tensors."""
        leader: dict[object, object] = {}

        def find(x: object) -> object:
            leader.setdefault(x, x)
            while leader[x] != x:
                leader[x] = leader[leader[x]]
                x = leader[x]
            return x

        for number in range(len(self.choices)):
            links: list[object] = list(self.writes[number])
            links += [read for read in self.reads[number] if read not in self.settled]
            links += [("cycle", self.cyclic[write]) for write, _ in self._inside(number)]
            first = find(links[0])
            for other in links[1:]:
                leader[find(other)] = first
        grouped: dict[object, list[int]] = {}
        for number in range(len(self.choices)):
            grouped.setdefault(find(self.writes[number][0]), []).append(number)
        return list(grouped.values())

    def signature(self, part: list[int]) -> tuple:
        """Return what decides a part's solution; tensors are renumbered in order of appearance."""
        names: dict[int, int] = {}

        def name(tensor: int) -> int:
            return names.setdefault(tensor, len(names))

        rows = []
        for number in part:
            writes = tuple((name(write), write in self.settled) for write in self.writes[number])
            reads = tuple(name(read) for read in self.reads[number] if self._matters(read))
            cycle = tuple((name(write), name(read)) for write, read in self._inside(number))
            rows.append((round(self.choices[number].cost * 1e12), writes, reads, cycle))
        return tuple(rows)

    def _matters(self, read: int) -> bool:
        return read not in self.settled

    def solve_part(self, part: list[int], seconds: float) -> list[int] | None:
        """Return the positions in `part` of a cheapest choice; None if the solver did not finish in time."""
        if len(part) == 1:
            return [0]
        from .integer_program import IntegerProgram

        program = IntegerProgram()
        picks = {number: program.binary(self.choices[number].cost) for number in part}
        writers: dict[int, list[int]] = {}
        for number in part:
            for write in self.writes[number]:
                writers.setdefault(write, []).append(picks[number])
        for tensor, variables in writers.items():
            if tensor in self.settled:
                program.at_least(1, {variable: 1.0 for variable in variables})
            program.at_least(-1, {variable: -1.0 for variable in variables})  # no two kernels write one tensor
        for (_, read), readers in self._readers(part).items():
            # At most one of these is taken, and only with someone who writes what they read.
            program.at_least(
                0, {**{picks[number]: -1.0 for number in readers}, **{variable: 1.0 for variable in writers[read]}}
            )
        members = {tensor for number in part for pair in self._inside(number) for tensor in pair}
        levels = {tensor: program.level(len(members)) for tensor in sorted(members, key=self.order)}
        for number in part:
            for write, read in self._inside(number):
                # Where the choice is taken, the written tensor stands above the read one.
                bound = len(members) + 1
                program.at_least(1 - bound, {levels[write]: 1.0, levels[read]: -1.0, picks[number]: -float(bound)})
        values = program.minimise(seconds)
        if values is None:
            return None
        return [position for position, number in enumerate(part) if values[picks[number]] > 0.5]

    def _readers(self, part: list[int]) -> dict[tuple[int, int], list[int]]:
        """Return, for each (written, read) pair of tensors where the read one is open, the choices that do so."""
        found: dict[tuple[int, int], list[int]] = {}
        for number in part:
            for read in self.reads[number]:
                if read not in self.settled:
                    for write in self.writes[number]:
                        found.setdefault((write, read), []).append(number)
        return found

    def greedy(self) -> list[Choice]:
        """Return an acyclic set, each tensor by the choice that is cheapest with all that it needs, sharing ignored.

        Only choices that write one tensor take part: of others, two could write the same.
        """
        best: dict[int, tuple[float, Choice]] = {}
        changed = True
        while changed:
            changed = False
            for tensor in self.tensors:
                for choice in self.by_tensor[tensor]:
                    reads = self.reads[self.number[id(choice)]]
                    if len(choice.writes) == 1 and all(read in best for read in reads):
                        total = choice.cost + sum(best[read][0] for read in reads)
                        if tensor not in best or total < best[tensor][0] * (1 - 1e-9):
                            best[tensor] = (total, choice)
                            changed = True
        return [choice for _, choice in best.values()]

    def needed(self, chosen: list[Choice]) -> list[Choice]:
        """Return the choices that the roots need, in an order in which everything is written before it is read."""
        writer: dict[int, Choice] = {}
        for choice in sorted(chosen, key=lambda choice: choice.cost):
            for write in choice.writes:
                writer.setdefault(write, choice)
        return launch_order(writer, self.roots, self.free)


def _dominated(choices: Iterable[Choice]) -> set[int]:
    """Return the ids of choices to which another is never worse: it writes the same, reads no more, costs no more."""
    groups: dict[frozenset[int], dict[int, Choice]] = {}
    for choice in choices:
        groups.setdefault(frozenset(choice.writes), {})[id(choice)] = choice
    dropped: set[int] = set()
    for group in groups.values():
        kept: list[frozenset[int]] = []
        for choice in sorted(group.values(), key=lambda choice: (choice.cost, len(set(choice.reads)))):
            reads = frozenset(choice.reads)
            if any(other <= reads for other in kept):
                dropped.add(id(choice))
            else:
                kept.append(reads)
    return dropped


def launch_order(
    writer: Mapping[int, Choice], roots: Iterable[int], free: Callable[[int], bool]
) -> list[Choice]:
    """Return the choices that the roots need, each after those that write what it reads. ValueError names a cycle."""
    ordered: list[Choice] = []
    state: dict[int, int] = {}  # by id of a choice: 1 while its reads are being ordered, 2 when done
    for root in roots:
        stack = [] if free(root) else [(writer[root], 0)]
        while stack:
            choice, position = stack.pop()
            if state.get(id(choice)) == 2:
                continue
            state[id(choice)] = 1
            reads = [read for read in choice.reads if not free(read)]
            if position == len(reads):
                state[id(choice)] = 2
                ordered.append(choice)
                continue
            stack.append((choice, position + 1))
            below = writer[reads[position]]
            if state.get(id(below)) == 1:
                raise ValueError(f"tensor {reads[position]} is read on the way to being written")
            if id(below) not in state:
                stack.append((below, 0))
    return ordered


def strong_components(edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return the strongly connected components (Tarjan, iterative)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[int] = []
    is_open: set[int] = set()
    found: list[list[int]] = []
    for start in edges:
        if start in index:
            continue
        work = [(start, iter(edges[start]))]
        index[start] = low[start] = len(index)
        open_.append(start)
        is_open.add(start)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    open_.append(other)
                    is_open.add(other)
                    work.append((other, iter(edges.get(other, ()))))
                    break
                if other in is_open:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        other = open_.pop()
                        is_open.discard(other)
                        component.append(other)
                        if other == node:
                            break
                    found.append(component)
    return found
