"""Every kernel that may be chosen: generated ones from cuts, cuBLASLt calls, scatters, each with its cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...plan.errors import LuminalError
from ...plan.lt import LtMatmul
from ..cost import CostModel
from ..region import Load, Region
from ..schedule import schedules
from .classes import Classes
from .cuts import Cut, CutFinder, CutLimits, Key
from .lift import dtype_of
from .regions import BuiltRegion, RegionBuilder

MOST_EXTRA_STORES = 3


@dataclass(frozen=True, eq=False)
class Candidate:
    """One kernel: it writes tensor classes `writes` from tensor classes `reads`, in the order its kind wants.

    `kind` is "region", "lt" or "scatter"; the fields of the other kinds are None. `registers` are the classes that a
    region computes, from which its origin follows. `plain` marks the kernel that does one primitive and nothing more.
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
        self.consumers = self._consumers()
        self.found: dict[int, list[Candidate]] = {}
        self.stored_at: dict[Key, list[int]] = {}
        for tensor, stores in classes.stores.items():
            for register, shape in stores:
                self.stored_at.setdefault((register, shape), []).append(tensor)

    def run(self) -> CandidateSet:
        wanted = [tensor for tensor in self.classes.outputs if tensor not in self.classes.inputs]
        while wanted:
            tensor = wanted.pop()
            if tensor in self.found:
                continue
            self.found[tensor] = self._of_tensor(tensor)
            for candidate in self.found[tensor]:
                wanted.extend(read for read in candidate.reads if read not in self.classes.inputs)
                wanted.extend(write for write in candidate.writes if write != tensor)
        result = CandidateSet(self.classes, self.costs)
        for tensor in sorted(self.found, key=self.classes.first_value.__getitem__):
            for candidate in self.found[tensor]:
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
        found = self._without_oversized(tensor, self._without_dominated(found))
        if not found:
            node = self.classes.saturated.lifted.nodes[self.classes.first_value[tensor]]
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
            built = self.builder.build(cut)
            plain = len(cut.nodes) == fewest
            yield from self._scheduled(built, (tensor,), (key,), plain)
            for tensors, keys in self._extra_stores(tensor, built):
                yield from self._scheduled(built, (tensor, *tensors), (key, *keys), False)

    def _scheduled(
        self, built: BuiltRegion, writes: tuple[int, ...], keys: tuple[Key, ...], plain: bool
    ) -> Iterable[Candidate]:
        region = built.storing(keys)
        registers = tuple(
            key[0] for key, place in built.places.items() if not isinstance(built.nodes[place], Load)
        ) + tuple(key[0] for key in keys)
        for schedule in schedules(region, self.handles.ranges):
            yield Candidate(
                "region", writes, built.reads, self.costs.region(region, schedule), region, schedule,
                registers=registers, plain=plain,
            )

    def _extra_stores(self, tensor: int, built: BuiltRegion) -> Iterable[tuple[tuple[int, ...], tuple[Key, ...]]]:
        """Yield sets of values computed on the way that others want too: each, then all together."""
        computed = {key for key, place in built.places.items() if not isinstance(built.nodes[place], Load)}
        inside = {other for key in computed for other in self.stored_at.get(key, ())} | {tensor}
        extra: dict[int, Key] = {}
        for key in computed:
            for other in self.stored_at.get(key, ()):
                outside = self.consumers.get(other, frozenset()) - inside
                wanted = outside or other in self.classes.outputs
                if other != tensor and wanted and key[0] not in self.classes.products:
                    extra.setdefault(other, key)
        chosen = sorted(extra, key=self.classes.first_value.__getitem__)[:MOST_EXTRA_STORES]
        # What is read must come before what is stored on the way, or a kernel would wait for its own result.
        latest = max((self.classes.first_value[read] for read in built.reads if read not in self.classes.inputs), default=-1)
        chosen = [other for other in chosen if self.classes.first_value[other] > latest]
        for other in chosen:
            yield (other,), (extra[other],)
        if len(chosen) > 1:
            yield tuple(chosen), tuple(extra[other] for other in chosen)

    def _consumers(self) -> dict[int, frozenset[int]]:
        """Return, for each tensor class, those whose graph values use it directly; a reshape is the same class."""
        found: dict[int, set[int]] = {}
        lifted = self.classes.saturated.lifted
        for number, node in enumerate(lifted.nodes):
            if number not in self.classes.value_class:
                continue
            user = self.classes.value_class[number]
            for value in node.inputs:
                used = self.classes.value_class[lifted.value_number(value)]
                if used != user:
                    found.setdefault(used, set()).add(user)
        return {tensor: frozenset(users) for tensor, users in found.items()}

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
