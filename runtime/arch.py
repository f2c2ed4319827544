"""Which of an artifact's plans a GPU can run, and whether it runs machine code or PTX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..plan.errors import InvalidArtifact

_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)\Z")


def parse_arch(arch: str) -> tuple[int, int, str]:
    """Split "sm_100a" into (10, 0, "a")."""
    match = _ARCH.match(arch)
    if match is None:
        raise InvalidArtifact(f"arch {arch!r} is not of the form sm_90")
    return int(match[1]), int(match[2]), match[3]


def runs_machine_code(arch: str, capability: tuple[int, int]) -> bool:
    """Say whether a GPU of this compute capability runs cubins made for `arch`.

    It does for its own, and for a lower minor number of the same major one; "a" code runs on exactly its own only.
    """
    major, minor, suffix = parse_arch(arch)
    if suffix == "a":
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]


def can_wait(arch: str) -> bool:
    """Say whether machine code for `arch` has the instruction that waits for the kernels in front."""
    return parse_arch(arch)[0] >= 9


def choose_arch(arches: Sequence[str], capability: tuple[int, int], has_ptx: bool) -> str:
    """Return the arch whose plan a GPU should run: the nearest whose cubins it runs, else the nearest older one by PTX.

    Raises InvalidArtifact if there is neither.
    """
    own = [arch for arch in arches if runs_machine_code(arch, capability)]
    if own:
        return max(own, key=parse_arch)
    older = [arch for arch in arches if parse_arch(arch)[:2] <= capability and not parse_arch(arch)[2]]
    if older and has_ptx:
        return max(older, key=parse_arch)
    name = f"sm_{capability[0]}{capability[1]}"
    raise InvalidArtifact(
        f"the artifact holds {', '.join(arches)}{' and PTX' if has_ptx else ''}, which a GPU of {name} cannot run; "
        f"compile with --arch={name}"
    )
