"""Compiles kernels into shared objects in the cache, several in one compilation where that is faster."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ...plan.errors import KernelFault
from ..cache import cache_dir, is_sealed, private_folder, publish, sealed_content, temporary_name
from .source import KernelSource
from .support import kernel_flags, key, precompiled_header, run_tool, runtime_library
from .toolchain import toolchain

# A compilation costs some 50 ms before it sees the first kernel, a small kernel 10 ms.
_LARGEST_BATCH = 16
_BATCHES_PER_PROCESSOR = 3


@dataclass(frozen=True)
class BuiltKernel:
    """Where a kernel was compiled to: the shared object, its name there, and whether it is the only one in it."""

    path: Path
    symbol: str
    alone: bool


def host_folder(cache_folder: Path | None) -> Path:
    """Where compiled kernels are kept: `cache_folder`, or `host` in the cache."""
    return private_folder(cache_folder or cache_dir() / "host").resolve()


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def build_kernel(source: KernelSource, folder: Path) -> BuiltKernel:
    """Compile one kernel into a shared object of its own, unless a valid one is in `folder`."""
    target = folder / f"{_key(source)}.so"
    if not is_sealed(target):
        _compile(f"kernel {source.entry}", source.entry, source.text, source, target, folder)
    return BuiltKernel(target, source.entry, alone=True)


def build_kernels(sources: Sequence[KernelSource], folder: Path) -> list[BuiltKernel]:
    """Compile kernels on all processors, those that the cache lacks in batches; results are in order."""
    distinct = list(dict.fromkeys(sources))
    built = {source: found for source in distinct if (found := _find(source, folder))}
    missing = [source for source in distinct if source not in built]
    with ThreadPoolExecutor(max_workers=processors()) as pool:
        for batch, results in zip(batches := _batches(missing), pool.map(lambda b: _build_batch(b, folder), batches)):
            built.update(zip(batch, results))
    return [built[source] for source in sources]


def _key(source: KernelSource) -> str:
    return key(source.text, source.entry, *kernel_flags(source.check))


def _find(source: KernelSource, folder: Path) -> BuiltKernel | None:
    """Look a kernel up: alone, or as a link to a place in a batch's shared object."""
    name = _key(source)
    if is_sealed(folder / f"{name}.so"):
        return BuiltKernel(folder / f"{name}.so", source.entry, alone=True)
    link = sealed_content(folder / f"{name}.link")
    if link is None:
        return None
    place = json.loads(link)
    if not is_sealed(folder / place["object"]):
        return None
    return BuiltKernel(folder / place["object"], place["symbol"], alone=False)


def _batches(sources: list[KernelSource]) -> list[list[KernelSource]]:
    """Groups of one prelude, of equal sizes, enough to keep all processors busy. Checked kernels stay alone."""
    batches = []
    for checked, group in groupby(sorted(sources, key=_group), key=_group):
        members = list(group)
        wanted = -(-len(members) // (processors() * _BATCHES_PER_PROCESSOR))
        size = 1 if checked[0] or not checked[1] else min(wanted, _LARGEST_BATCH)
        batches += [members[i : i + size] for i in range(0, len(members), size)]
    return batches


def _group(source: KernelSource) -> tuple[bool, str]:
    return source.check, source.prelude


def _build_batch(batch: list[KernelSource], folder: Path) -> list[BuiltKernel]:
    if len(batch) == 1:
        return [build_kernel(batch[0], folder)]
    target = folder / f"batch_{key(*map(_key, batch))}.so"
    names = [f"in_batch_{position}" for position in range(len(batch))]
    text = "".join(source.in_namespace(name) for source, name in zip(batch, names))
    try:
        if not is_sealed(target):
            _compile("a batch of kernels", "batch", text, batch[0], target, folder)
    except KernelFault:  # alone, the one at fault is named, and the others may be right
        return [build_kernel(source, folder) for source in batch]
    built = []
    for source, name in zip(batch, names):
        symbol = source.entry_in(name)
        link = temporary_name(folder / f"{_key(source)}.link")
        link.write_text(json.dumps({"object": target.name, "symbol": symbol}))
        publish(link, folder / f"{_key(source)}.link")
        built.append(BuiltKernel(target, symbol, alone=False))
    return built


def _compile(what: str, name: str, text: str, like: KernelSource, target: Path, folder: Path) -> None:
    """Compile and link `text`, which has the prelude and flags of `like`, to `target`."""
    tools = toolchain()
    library = runtime_library(folder)
    header = precompiled_header(like.prelude, like.check, folder)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        unit, code, linked = (Path(scratch) / f"{name}.{ending}" for ending in ("cu", "o", "so"))
        unit.write_text(text)
        ahead = ("-include", str(header), "-x", "c++", "-c", str(unit), "-o", str(code))
        run_tool(what, tools.compiler, *kernel_flags(like.check), *ahead)
        parts = (str(code), str(library), *tools.libraries)
        run_tool(what, tools.linker, "-shared", "--no-undefined", "-o", str(linked), *parts)
        publish(linked, target)
