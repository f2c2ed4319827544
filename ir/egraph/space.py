"""The space of programs that one saturated e-graph holds: the cheapest, the plain one, forced ones and random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..program import Program
from .assemble import Assembler
from .candidates import Candidate, CandidateSet
from .classes import Classes
from .solve import Solution, launch_order, solve


class ProgramSpace:
    """Every program that may be selected for one graph."""

    def __init__(self, found: CandidateSet) -> None:
        self.found = found
        self.classes: Classes = found.classes
        self.assembler = Assembler(self.classes)

    @property
    def candidates(self) -> Sequence[Candidate]:
        """Every kernel that may be selected."""
        return self.found.all

    def is_free(self, tensor: int) -> bool:
        return tensor in self.classes.inputs

    def order(self, tensor: int) -> float:
        return self.classes.order(tensor)

    def cheapest(self, seconds: float) -> Solution:
        """Return the cheapest set of kernels, in launch order."""
        return solve(self.found.by_tensor, self.classes.outputs, self.is_free, self.order, seconds)

    def plain(self) -> Program:
        """Return the program of one kernel for each primitive, as far as primitives are kernels of their own."""
        return self._complete({}, lambda tensor: sorted(self._single(tensor), key=lambda c: (not c.plain, c.cost)))

    def random(self, seed: int) -> Program | None:
        """Return a program drawn at random, the same for the same seed; None if the draw led into a cycle."""
        drawn = self.drawn(seed)
        return None if drawn is None else self.program(drawn)

    def drawn(self, seed: int) -> list[Candidate] | None:
        """Return the kernels of such a program, in launch order."""
        generator = random.Random(seed)

        def shuffled(tensor: int) -> list[Candidate]:
            candidates = list(self.found.by_tensor[tensor])
            generator.shuffle(candidates)
            return candidates

        return self._chosen({}, shuffled)

    def forced(self, candidate: Candidate) -> Program | None:
        """Return a program whose outputs depend on this candidate; None if every such program is cyclic."""
        chain = self._chain(candidate)
        if chain is None:
            return None
        writer: dict[int, Candidate] = {}
        for choice in chain:
            if any(write in writer for write in choice.writes):
                return None
            writer.update(dict.fromkeys(choice.writes, choice))
        return self._complete(writer, self._single)

    def program(self, ordered: Sequence[Candidate]) -> Program:
        return self.assembler.program(ordered)

    def _single(self, tensor: int) -> list[Candidate]:
        return [candidate for candidate in self.found.by_tensor[tensor] if len(candidate.writes) == 1]

    def _chain(self, target: Candidate) -> list[Candidate] | None:
        """Return candidates from one that writes an output down to the target, each reading what the next writes."""
        above: dict[int, tuple[Candidate, int] | None] = {
            tensor: None for tensor in self.classes.outputs if not self.is_free(tensor)
        }
        waiting = list(above)
        while waiting:
            tensor = waiting.pop(0)
            for candidate in self._single(tensor):
                for read in candidate.reads:
                    if not self.is_free(read) and read not in above:
                        above[read] = (candidate, tensor)
                        waiting.append(read)
        reached = [tensor for tensor in target.writes if tensor in above]
        if not reached:
            return None
        chain, tensor = [target], reached[0]
        while above[tensor] is not None:
            candidate, tensor = above[tensor]
            chain.append(candidate)
            if tensor in target.writes:
                return None
        return chain[::-1]

    def _complete(
        self, forced: Mapping[int, Candidate], preferred: Callable[[int], list[Candidate]]
    ) -> Program | None:
        """Return a program with the forced writers, every other tensor by the first preferred one that works."""
        chosen = self._chosen(forced, preferred)
        return None if chosen is None else self.program(chosen)

    def _chosen(
        self, forced: Mapping[int, Candidate], preferred: Callable[[int], list[Candidate]]
    ) -> list[Candidate] | None:
        writer = dict(forced)
        done: set[int] = set()
        for root in self.classes.outputs:
            settled = self.is_free(root) or root in done
            if not settled and not self._resolve(root, writer, done, frozenset(forced), preferred):
                return None
        return launch_order(writer, self.classes.outputs, self.is_free)

    def _resolve(
        self,
        root: int,
        writer: dict[int, Candidate],
        done: set[int],
        fixed: frozenset[int],
        preferred: Callable[[int], list[Candidate]],
    ) -> bool:
        """Choose writers for a tensor and all below it, depth first; a choice that closes a cycle is given up."""
        open_: set[int] = set()  # what is being resolved: reading it would close a cycle
        frames: list[_Frame] = []

        def enter(tensor: int) -> None:
            open_.add(tensor)
            choices = [writer[tensor]] if tensor in fixed else preferred(tensor)
            frames.append(_Frame(tensor, list(reversed(choices))))

        enter(root)
        while frames:
            frame = frames[-1]
            if frame.current is None and not self._take_next(frame, open_, done, fixed):
                frames.pop()
                open_.discard(frame.tensor)
                if not frames:
                    return False
                frames[-1].give_up(open_)  # what it chose cannot be had
            elif not frame.reads:
                for write in frame.current.writes:
                    writer[write] = frame.current
                    done.add(write)
                    open_.discard(write)
                frames.pop()
            elif frame.reads[-1] in done:
                frame.reads.pop()
            elif frame.reads[-1] in open_:
                frame.give_up(open_)
            else:
                enter(frame.reads[-1])
        return True

    def _take_next(self, frame: _Frame, open_: set[int], done: set[int], fixed: frozenset[int]) -> bool:
        """Let the frame try its next possible choice; False if none is left."""
        while frame.choices:
            candidate = frame.choices.pop()
            others = [write for write in candidate.writes if write != frame.tensor]
            taken = any(
                write in done or write in open_ or (write in fixed and frame.tensor not in fixed) for write in others
            )
            reads = [read for read in candidate.reads if not self.is_free(read) and read not in done]
            if not taken and not any(read in open_ for read in reads):
                frame.current, frame.reads = candidate, reads
                open_.update(others)
                return True
        return False


@dataclass
class _Frame:
    """A tensor being resolved: choices still to try, last first, and the reads of the present one still to resolve."""

    tensor: int
    choices: list[Candidate]
    current: Candidate | None = None
    reads: list[int] = field(default_factory=list)

    def give_up(self, open_: set[int]) -> None:
        """Drop the present choice; the next one is tried."""
        open_.difference_update(write for write in self.current.writes if write != self.tensor)
        self.current = None
