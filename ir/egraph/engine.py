"""A thin wrapper over egglog's bindings: declare, insert rows, run, read.

Only the extension module is loaded: the `egglog` package around it imports hundreds of modules that nobody needs here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from types import ModuleType

from ...plan.errors import LuminalError, MissingDependency

_CONFLICT = re.compile(r"Illegal merge attempted for function (\S+)")


class FactConflict(Exception):
    """Two different facts were stated of one e-class; `function` names the fact."""

    def __init__(self, function: str) -> None:
        super().__init__(f"two different values of {function} in one class")
        self.function = function


@lru_cache(maxsize=1)
def bindings() -> ModuleType:
    """Load egglog's extension module; MissingDependency if egglog is not installed."""
    # Row order, and with it every tie-break, depends on the number of threads.
    os.environ["RAYON_NUM_THREADS"] = "1"
    for folder in sys.path:
        for suffix in EXTENSION_SUFFIXES:
            path = Path(folder or ".") / "egglog" / f"bindings{suffix}"
            if path.is_file():
                loader = ExtensionFileLoader("egglog.bindings", str(path))
                module = importlib.util.module_from_spec(
                    importlib.util.spec_from_file_location("egglog.bindings", path, loader=loader)
                )
                loader.exec_module(module)
                return module
    raise MissingDependency("compiling needs egglog: pip install 'luminal-onnx[compile]'")


@dataclass
class RunCounts:
    """What one or more runs of a schedule did. `updated` says whether the last of them changed anything."""

    updated: bool = False
    iterations: int = 0
    matches: dict[str, int] = field(default_factory=dict)

    def add(self, other: RunCounts) -> None:
        self.updated = other.updated
        self.iterations += other.iterations
        for rule, count in other.matches.items():
            self.matches[rule] = self.matches.get(rule, 0) + count


Row = tuple[object, ...]


class Engine:
    """One e-graph. After any error it is corrupt and must be dropped. Use it from the thread that made it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="luminal-egraph-")
        self._egraph = bindings().EGraph(fact_directory=self._folder.name)
        self._values: dict[object, int] = {}
        self._texts: dict[object, str] = {}
        self._numbers: dict[object, int] = {}

    def close(self) -> None:
        self._folder.cleanup()

    def declare(self, commands: Iterable[str]) -> None:
        """Run commands given as text, one a string."""
        for command in commands:
            self._run(command)

    def insert(self, relation: str, rows: Iterable[Sequence[object]]) -> int:
        """Add rows of integers and words to a relation; return how many."""
        lines = ["\t".join(map(str, row)) for row in rows]
        if lines:
            path = Path(self._folder.name) / f"{relation}.tsv"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            self._run(f'(input {relation} "{path.name}")')
        return len(lines)

    def run(self, schedule: str) -> RunCounts:
        """Run a schedule such as `(saturate (run fuse))`."""
        total = RunCounts()
        for output in self._run(f"(run-schedule {schedule})"):
            report = getattr(output, "report", None)
            if report is not None:
                total.add(RunCounts(report.updated, len(report.iterations), dict(report.num_matches_per_rule)))
        return total

    def size(self) -> int:
        """Return the number of rows in all functions together."""
        (output,) = self._run("(print-size)")
        return sum(count for _, count in output.sizes)

    def read(self, names: Iterable[str] | None = None) -> dict[str, list[Row]]:
        """Return the rows of each function: its arguments, then its value.

        Integers and strings come as themselves, classes as small integers that are the same within one Engine until it
        is run again; the value of a relation's row means nothing.
        """
        functions = self._egraph.freeze().functions
        wanted = functions if names is None else {name: functions[name] for name in names if name in functions}
        return {name: list(self._rows(function)) for name, function in wanted.items()}

    def _rows(self, function: object) -> Iterator[Row]:
        decoders = [self._decoder(sort) for sort in (*function.input_sorts, function.output_sort)]
        for row in function.rows:
            if not row.subsumed:
                yield tuple(decode(value) for decode, value in zip(decoders, (*row.inputs, row.output)))

    def _decoder(self, sort: str):
        if sort == "i64":
            return self._memo(self._numbers, self._egraph.value_to_i64)
        if sort == "String":
            return self._memo(self._texts, self._egraph.value_to_string)
        return lambda value: self._values.setdefault((sort, value), len(self._values))

    @staticmethod
    def _memo(known: dict, convert):
        def decode(value):
            if value not in known:
                known[value] = convert(value)
            return known[value]

        return decode

    def _run(self, text: str) -> list:
        try:
            return self._egraph.run_program(*self._egraph.parse_program(text))
        except Exception as error:
            conflict = _CONFLICT.search(str(error))
            if conflict:
                raise FactConflict(conflict[1]) from None
            raise LuminalError(f"egglog refused {text[:200]!r}: {error}") from error


def split_commands(text: str) -> list[str]:
    """Cut the text of an .egg file into its top-level commands; comments are dropped."""
    commands, depth, start, position = [], 0, 0, 0
    while position < len(text):
        char = text[position]
        if char == '"':
            position = text.index('"', position + 1)
        elif char == ";":
            position = text.find("\n", position)
            if position < 0:
                break
        elif char == "(":
            start = position if depth == 0 else start
            depth += 1
        elif char == ")":
            depth -= 1
            if depth == 0:
                commands.append(text[start : position + 1])
        position += 1
    return commands
