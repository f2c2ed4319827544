"""The text of a kernel, in the two parts that are compiled apart: what all kernels share, and what is its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

MAX_THREADS = 1024
_END_OF_PRELUDE = "#endif  // LUMINAL_PRELUDE\n"
_LAUNCH_BOUND = re.compile(r"__launch_bounds__\(\s*(\d+)")
_DEFINED_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class KernelSource:
    """One emitted text, the name of its kernel, and whether its memory accesses are to be checked."""

    text: str
    entry: str
    check: bool = False

    @cached_property
    def prelude(self) -> str:
        """The text up to the end of the prelude, which is compiled ahead; empty if there is no prelude."""
        head, end, _ = self.text.partition(_END_OF_PRELUDE)
        return head + end if end else ""

    @property
    def body(self) -> str:
        """The text after the prelude."""
        return self.text[len(self.prelude) :]

    @property
    def body_line(self) -> int:
        """The number of the first line after the prelude."""
        return self.prelude.count("\n") + 1

    @cached_property
    def largest_block(self) -> int:
        """The most threads that a block may have: what `__launch_bounds__` says, else what a device can take."""
        bound = _LAUNCH_BOUND.search(self.body)
        return int(bound.group(1)) if bound else MAX_THREADS

    def in_namespace(self, name: str) -> str:
        """The body as one of several in a compilation: in a namespace, its entry renamed, its macros undone."""
        macros = dict.fromkeys((self.entry, *_DEFINED_MACRO.findall(self.body)))
        return "\n".join(
            (
                f"namespace {name} {{",
                f"#define {self.entry} {self.entry_in(name)}",
                f'#line {self.body_line} "{self.entry}.cu"',
                self.body,
                *(f"#undef {macro}" for macro in macros),
                "}",
                "",
            )
        )

    def entry_in(self, namespace: str) -> str:
        """What the kernel is called in the shared object when `in_namespace` was compiled."""
        return f"{self.entry}_{namespace}"
