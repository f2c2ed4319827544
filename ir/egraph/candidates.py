"""Every kernel that may be chosen: generated ones from cuts, cuBLASLt calls, scatters, each with its cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from ...plan.dims import Range
from ...plan.errors import LuminalError
from ...plan.lt import LtMatmul
from ..cost import CostModel
from ..region import Region
from ..schedule import schedules
from .attention_regions import AttentionFinder
from .classes import Classes
from .cuts import CutFinder, CutLimits, Key
from .lift import dtype_of
from .regions import RegionBuilder, Sketch
from .waits import Waits

MOST_EXTRA_STORES = 3


@dataclass(frozen=True, eq=False)
class Candidate:
    """One kernel: it writes tensor classes `writes` from tensor classes `reads`, in the order its kind wants.

    `kind` is "region", "lt" or "scatter"; the fields of the other kinds are None. `registers` are the classes that a
    region computes, from which its origin follows. `plain` marks the kernel that does one primitive and nothing more.
    `waits` are the sizes (`classes.sizes`) that must be known before it is launched; where they are no operands, they
    stand at the end of `reads`.
    """

    kind: str
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    cost: float
    region: Region | None = None
    schedule: str = ""
    matmul: LtMatmul | None = None
    fn: str = ""
    registers: tuple[int, ...] = ()
    plain: bool = False
    waits: tuple[int, ...] = ()
    operand_count: int | None = None

    @property
    def operands(self) -> tuple[int, ...]:
        """The tensors that the kernel itself takes, in the order its kind wants: `reads` without what it waits for."""
        return self.reads[: self.operand_count]

    def waiting_for(self, sizes: Collection[int]) -> Candidate:
        """Return the candidate that waits for these tensor classes to be written too."""
        waits = tuple(sorted(sizes))
        reads = (*self.reads, *(size for size in waits if size not in self.reads))
        return replace(self, reads=reads, waits=waits, operand_count=len(self.reads))

    def __str__(self) -> str:
        what = {"region": self.schedule, "lt": "cublaslt", "scatter": f"scatter {self.fn}"}[self.kind]
        return f"{what} {self.reads} -> {self.writes} ({self.cost * 1e6:.2f} us)"


@dataclass
class CandidateSet:
    """All candidates; `by_tensor[t]` lists those that write t, cheapest first. Tensors of inputs have none."""

    classes: Classes
    costs: CostModel
    all: list[Candidate] = field(default_factory=list)
    by_tensor: dict[int, list[Candidate]] = field(default_factory=dict)

    def add(self, candidate: Candidate) -> None:
        self.all.append(candidate)
        for tensor in candidate.writes:
            self.by_tensor.setdefault(tensor, []).append(candidate)


def find_candidates(classes: Classes, costs: CostModel, limits: CutLimits, memory_cap: float) -> CandidateSet:
    """Return the candidates for everything that the outputs may need."""
    return _Finder(classes, costs, limits, memory_cap).run()


class _Finder:
    def __init__(self, classes: Classes, costs: CostModel, limits: CutLimits, memory_cap: float) -> None:
        self.classes = classes
        self.costs = costs
        self.memory_cap = memory_cap
        self.handles = classes.saturated.handles
        self.cuts = CutFinder(classes, costs, limits)
        self.builder = RegionBuilder(classes)
        self.attention = AttentionFinder(classes, self.cuts, self.builder)
        self.waits = Waits(classes)
        self.consumers = classes.consumers
        self.timed: dict[int, list[tuple[str, float]]] = {}
        self.taken_in: dict[tuple[int, int], bool] = {}
        self.found: dict[int, list[Candidate]] = {}
        self.stored_at = self.cuts.stored_at

    def run(self) -> CandidateSet:
        wanted = [tensor for tensor in self.classes.outputs if tensor not in self.classes.inputs]
        while wanted:
            tensor = wanted.pop()
            if tensor in self.found:
                continue
            self.found[tensor] = self._of_tensor(tensor)
            for candidate in self.found[tensor]:
                wanted.extend(read for read in candidate.reads if read not in self.classes.inputs)
        result = CandidateSet(self.classes, self.costs)
        for tensor in sorted(self.found, key=self.classes.order):
            for candidate in self.found[tensor]:
                if all(write in self.found for write in candidate.writes):  # else it stores what nobody reads
                    result.add(candidate)
        for candidates in result.by_tensor.values():
            candidates.sort(key=lambda candidate: candidate.cost)
        return result

    def _of_tensor(self, tensor: int) -> list[Candidate]:
        found = list(self._library(tensor))
        for node in self.classes.scatters.get(tensor, ()):
            bytes_moved = 2 * self._bytes(tensor) + sum(map(self._bytes, node.operands[1:]))
            found.append(
                Candidate("scatter", (tensor,), node.operands, self.costs.copy(bytes_moved), fn=node.fn, plain=True)
            )
        for register, shape in self.classes.stores.get(tensor, ()):
            found.extend(self._regions(tensor, (register, shape)))
        found.extend(self._attention(tensor))
        found = [candidate for candidate in map(self.waits.add, found) if candidate is not None]
        found = self._without_oversized(tensor, self._without_dominated(found))
        if not found:
            node = self.classes.saturated.lifted.nodes[int(self.classes.order(tensor))]
            raise LuminalError(
                f"no kernel can compute {node.op} {dict(node.attrs)} of type {node.types[0]} (from {node.origin}); "
                "a plain one should always exist: please report this"
            )
        return found

    def _library(self, tensor: int) -> Iterable[Candidate]:
        for node in self.classes.library.get(tensor, ()):
            matmul: LtMatmul = self.handles.thing(node.record)
            if tensor not in node.operands:
                registers = tuple(register for register, _ in self.classes.stores[tensor])
                yield Candidate(
                    "lt", (tensor,), node.operands, self.costs.lt(matmul), matmul=matmul, registers=registers
                )

    def _regions(self, tensor: int, key: Key) -> Iterable[Candidate]:
        cuts = [cut for cut in self.cuts.cuts(*key) if tensor not in cut.tensors]
        fewest = min((len(cut.nodes) for cut in cuts), default=0)
        for cut in cuts:
            sketch = self.builder.sketch(cut)
            plain = len(cut.nodes) == fewest
            yield from self._scheduled(sketch, (tensor,), (key,), plain)
            for tensors, keys in self._extra_stores(tensor, sketch):
                yield from self._scheduled(sketch, (tensor, *tensors), (key, *keys), False)

    def _scheduled(
        self, sketch: Sketch, writes: tuple[int, ...], keys: tuple[Key, ...], plain: bool
    ) -> Iterable[Candidate]:
        region = self.builder.region(sketch, keys)
        registers = (*[step.key[0] for step in sketch.steps if step.node.kind != "load"], *[key[0] for key in keys])
        for schedule, seconds in self._timed(region):
            yield Candidate(
                "region", writes, sketch.reads, seconds, region, schedule, registers=registers, plain=plain
            )

    def _attention(self, tensor: int) -> Iterable[Candidate]:
        for region, reads, registers in self.attention.of_tensor(tensor):
            for schedule, seconds in self._timed(region):
                yield Candidate("region", (tensor,), reads, seconds, region, schedule, registers=registers)

    def _timed(self, region: Region) -> list[tuple[str, float]]:
        if id(region) not in self.timed:
            ways = self._schedules(region)
            self.timed[id(region)] = [(schedule, self.costs.region(region, schedule)) for schedule in ways]
        return self.timed[id(region)]

    def _schedules(self, region: Region) -> list[str]:
        """Return the schedules that fit the region over its whole range and are worth it at the sizes that count.

        A model with named sizes so gets the kernels of the same model at its usual sizes.
        """
        possible = schedules(region, self.handles.ranges)
        usual = {name: Range(range_.opt, range_.opt, range_.opt) for name, range_ in self.handles.ranges.items()}
        worth = schedules(region, usual) if usual else possible
        return [schedule for schedule in possible if schedule in worth] or list(possible)

    def _extra_stores(self, tensor: int, sketch: Sketch) -> Iterable[tuple[tuple[int, ...], tuple[Key, ...]]]:
        """Yield sets of values computed on the way that others want too: each, then all together.

        Only kernels for values that no other kernel could take in whole are worth it, and only for readers that cannot
        take in such a kernel either: else one kernel for all of them is the better way, and there already.
        """
        if not self._is_final(tensor):
            return
        # What is read must come before what is stored on the way, or a kernel would wait for its own result.
        latest = max((self.classes.order(read) for read in sketch.reads if read not in self.classes.inputs), default=-1)
        extra: dict[int, Key] = {}
        for step in sketch.steps:
            key = step.key
            if not step.is_computed or key[0] in self.classes.products:
                continue
            for other in self.stored_at.get(key, ()):
                if other == tensor or other in sketch.reads or self.classes.order(other) <= latest:
                    continue
                readers = self.consumers.get(other, frozenset()) - {tensor}
                if other in self.classes.outputs or any(not self._takes_in(user, tensor) for user in readers):
                    extra.setdefault(other, key)
        computed = {other for key in sketch.places for other in self.stored_at.get(key, ())}
        chosen = [
            other for other in sorted(extra, key=self.classes.order)
            if other in self.classes.outputs or self.consumers.get(other, frozenset()) - computed
        ][:MOST_EXTRA_STORES]
        for other in chosen:
            yield (other,), (extra[other],)
        if len(chosen) > 1:
            yield tuple(chosen), tuple(extra[other] for other in chosen)

    def _is_final(self, tensor: int) -> bool:
        """Say whether somebody needs the tensor in memory: an output, or a reader whose kernels cannot compute it."""
        if tensor in self.classes.outputs:
            return True
        return any(not self._takes_in(user, tensor) for user in self.consumers.get(tensor, ()))

    def _takes_in(self, user: int, tensor: int) -> bool:
        """Say whether some kernel for `user` computes `tensor` inside."""
        if (user, tensor) not in self.taken_in:
            keys = set(self.classes.stores.get(tensor, ()))
            self.taken_in[user, tensor] = any(
                any(computed in keys for computed, _ in cut.nodes)
                for key in self.classes.stores.get(user, ())
                for cut in self.cuts.cuts(*key)
            )
        return self.taken_in[user, tensor]

    def _bytes(self, tensor: int) -> float:
        return self.costs.volume(self.classes.shape_of(tensor)) * dtype_of(self.classes.tensor_dtypes[tensor]).size

    def _is_oversized(self, tensor: int) -> bool:
        """Say whether a tensor should not be stored: a product that gets summed, or one beyond the memory cap."""
        if any(register in self.classes.products for register, _ in self.classes.stores.get(tensor, ())):
            return True
        return self._bytes(tensor) > self.memory_cap

    def _without_oversized(self, tensor: int, found: list[Candidate]) -> list[Candidate]:
        """Drop the candidates that read what should not be stored, if others are left."""
        fit = [
            candidate for candidate in found
            if not any(read not in self.classes.inputs and self._is_oversized(read) for read in candidate.reads)
        ]
        return fit or found

    @staticmethod
    def _without_dominated(found: list[Candidate]) -> list[Candidate]:
        """Keep, of those that write and read the same tensors, the cheapest schedule of each region."""
        best: dict[tuple, Candidate] = {}
        for candidate in sorted(found, key=lambda candidate: candidate.cost):
            key = (candidate.kind, candidate.writes, frozenset(candidate.reads), candidate.schedule, candidate.matmul)
            kept = best.setdefault(key, candidate)
            if candidate.plain and not kept.plain:
                best[(*key, "plain")] = candidate
        return list(best.values())
