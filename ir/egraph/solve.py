"""Choosing the cheapest set of kernels for the whole DAG, exactly.

What only one reader wants is folded away first (`condense.py`). Then the problem is cut where it falls apart by itself:
a tensor that every choice needs is *settled*, and what remains open links kernels into independent parts. Equal parts,
such as the layers of a deep model, are solved once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .condense import Bundle, Choice, condense, members


@dataclass
class Solution:
    """Chosen kernels, and how sure their choice is.

    "optimal"; "feasible" where the time ran out before that was proven; "greedy" where it ran out before anything was.
    """

    chosen: list[Choice]
    cost: float
    status: str = "optimal"
    parts: int = 0
    distinct_parts: int = 0
    largest_part: int = 0
    seconds: float = 0.0


def solve(
    by_tensor: Mapping[int, Sequence[Choice]],
    roots: Iterable[int],
    free: Callable[[int], bool],
    order: Callable[[int], float],
    seconds: float = 20.0,
) -> Solution:
    """Return a cheapest acyclic set of choices in which every root is written, and everything read is written or free.

    `order` numbers tensors so that equal parts of a model count alike; it only breaks ties and finds equal parts.
    """
    started = time.perf_counter()
    wanted = sorted({root for root in roots if not free(root)}, key=order)
    reachable = _reachable(by_tensor, wanted, free)
    problem = _Problem(condense(reachable, wanted, free, order), wanted, order)
    parts = problem.parts()
    known: dict[tuple, tuple[list[int] | None, bool]] = {}
    bundles: list[Bundle] = []
    status = "optimal"
    for part in parts:
        key = problem.signature(part)
        if key not in known:
            left = seconds - (time.perf_counter() - started)
            known[key] = problem.solve_part(part, left) if left > 0 else (None, False)
        positions, proven = known[key]
        if positions is None:
            status = "greedy"
            break
        status = status if proven else "feasible"
        bundles.extend(problem.bundles[part[position]] for position in positions)
    chosen = [] if status == "greedy" else needed(members(bundles), wanted, free)
    if status != "optimal":
        simple = needed(greedy(reachable, free, order), wanted, free)
        if status == "greedy" or _total(simple) < _total(chosen):
            status, chosen = "greedy", simple
    return Solution(
        chosen=chosen,
        cost=_total(chosen),
        status=status,
        parts=len(parts),
        distinct_parts=len(known),
        largest_part=max(map(len, parts), default=0),
        seconds=time.perf_counter() - started,
    )


def _total(chosen: Iterable[Choice]) -> float:
    return sum(choice.cost for choice in chosen)


def _reachable(
    by_tensor: Mapping[int, Sequence[Choice]], roots: Sequence[int], free: Callable[[int], bool]
) -> list[Choice]:
    """Return every choice that a solution may contain."""
    found: dict[int, Choice] = {}
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        tensor = stack.pop()
        if tensor not in seen:
            seen.add(tensor)
            for choice in by_tensor[tensor]:
                found[id(choice)] = choice
                stack.extend(read for read in choice.reads if not free(read))
                stack.extend(choice.writes)
    return list(found.values())


class _Problem:
    """The condensed problem: bundles by number, the tensors that they write and read."""

    def __init__(self, bundles: list[Bundle], roots: Sequence[int], order: Callable[[int], float]) -> None:
        self.roots, self.order = roots, order
        bundles.sort(key=lambda bundle: (min(map(order, bundle.writes)), bundle.cost, len(bundle.reads)))
        self.bundles = bundles
        self.writes = [sorted(bundle.writes, key=order) for bundle in bundles]
        self.reads = [sorted(bundle.reads, key=order) for bundle in bundles]
        self.hidden = [sorted(bundle.hidden, key=order) for bundle in bundles]
        self.by_tensor: dict[int, list[int]] = {}
        for number, writes in enumerate(self.writes):
            for tensor in writes:
                self.by_tensor.setdefault(tensor, []).append(number)
        self.tensors = sorted(self.by_tensor, key=order)
        self.settled = self._settled()
        self.cyclic = self._components()

    def _settled(self) -> set[int]:
        """Return the tensors that every solution writes: the roots, and what all choices for a settled one read."""
        settled, stack = set(), list(self.roots)
        while stack:
            tensor = stack.pop()
            if tensor in settled:
                continue
            settled.add(tensor)
            numbers = self.by_tensor[tensor]
            common = set(self.reads[numbers[0]]).intersection(*(self.reads[number] for number in numbers))
            stack.extend(common)
        return settled

    def _components(self) -> dict[int, int]:
        """Return, for each tensor on a cycle of reads, the number of its strongly connected component."""
        edges = {
            tensor: sorted(
                {read for number in self.by_tensor[tensor] for read in self.reads[number]}, key=self.order
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

        for number in range(len(self.bundles)):
            links: list[object] = [*self.writes[number], *self.hidden[number]]
            links += [read for read in self.reads[number] if read not in self.settled]
            links += [("cycle", self.cyclic[write]) for write, _ in self._inside(number)]
            first = find(links[0])
            for other in links[1:]:
                leader[find(other)] = first
        grouped: dict[object, list[int]] = {}
        for number in range(len(self.bundles)):
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
            reads = tuple(name(read) for read in self.reads[number] if read not in self.settled)
            cycle = tuple((name(write), name(read)) for write, read in self._inside(number))
            hidden = tuple(map(name, self.hidden[number]))
            rows.append((round(self.bundles[number].cost * 1e12), writes, reads, cycle, hidden))
        return tuple(rows)

    def solve_part(self, part: list[int], seconds: float) -> tuple[list[int] | None, bool]:
        """Return the positions in `part` of the best choice found in time, or None, and whether it is proven best."""
        if len(part) == 1:
            return [0], True
        from .integer_program import IntegerProgram

        program = IntegerProgram()
        picks = {number: program.binary(self.bundles[number].cost) for number in part}
        writers: dict[int, list[int]] = {}
        for number in part:
            for write in self.writes[number]:
                writers.setdefault(write, []).append(picks[number])
        for tensor, variables in writers.items():
            if tensor in self.settled:
                program.at_least(1, {variable: 1.0 for variable in variables})
        for variables in self._writers_of_one(part, picks):
            program.at_least(-1, {variable: -1.0 for variable in variables})
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
        values, proven = program.minimise(seconds)
        if values is None:
            return None, False
        return [position for position, number in enumerate(part) if values[picks[number]] > 0.5], proven

    def _writers_of_one(self, part: list[int], picks: dict[int, int]) -> list[list[int]]:
        """Return, for each tensor, the variables of the bundles that write it, inside or for others."""
        found: dict[int, list[int]] = {}
        for number in part:
            for tensor in (*self.writes[number], *self.hidden[number]):
                found.setdefault(tensor, []).append(picks[number])
        return list(found.values())

    def _readers(self, part: list[int]) -> dict[tuple[int, int], list[int]]:
        """Return, for each (written, read) pair of tensors where the read one is open, the choices that do so."""
        found: dict[tuple[int, int], list[int]] = {}
        for number in part:
            for read in self.reads[number]:
                if read not in self.settled:
                    for write in self.writes[number]:
                        found.setdefault((write, read), []).append(number)
        return found


def greedy(choices: Sequence[Choice], free: Callable[[int], bool], order: Callable[[int], float]) -> list[Choice]:
    """Return an acyclic set, each tensor by the choice that is cheapest with all that it needs, sharing ignored.

    Only choices that write one tensor take part: of others, two could write the same.
    """
    single = [choice for choice in choices if len(choice.writes) == 1]
    single.sort(key=lambda choice: order(choice.writes[0]))
    best: dict[int, tuple[float, Choice]] = {}
    changed = True
    while changed:
        changed = False
        for choice in single:
            (tensor,) = choice.writes
            reads = [read for read in choice.reads if not free(read)]
            if all(read in best for read in reads):
                total = choice.cost + sum(best[read][0] for read in reads)
                if tensor not in best or total < best[tensor][0] * (1 - 1e-9):
                    best[tensor] = (total, choice)
                    changed = True
    return [choice for _, choice in best.values()]


def needed(chosen: Sequence[Choice], roots: Iterable[int], free: Callable[[int], bool]) -> list[Choice]:
    """Return the choices that the roots need, in an order in which everything is written before it is read."""
    writer: dict[int, Choice] = {}
    for choice in sorted(chosen, key=lambda choice: choice.cost):
        for write in choice.writes:
            writer.setdefault(write, choice)
    return launch_order(writer, roots, free)


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
