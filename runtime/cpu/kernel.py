"""A kernel that runs on the CPU: compile, load, launch."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...plan.errors import InvalidInput, KernelFault
from .build import BuiltKernel, build_kernel, build_kernels, host_folder, processors
from .checked import CheckedBuffer, GuardedCopies, Region
from .locate import explain
from .source import KernelSource
from .support import runtime_library

Argument = np.ndarray | np.generic | int | float | ctypes.c_void_p

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_MESSAGE_BYTES = 2048
_SLOT = 16


class _Buffer(ctypes.Structure):
    """`LuminalBuffer` in launch.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("granule", ctypes.c_uint32),
        ("initialised", ctypes.c_uint8),
        ("read_only", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 2),
        ("must_begin", ctypes.c_uint64),
        ("must_end", ctypes.c_uint64),
    ]


class _Request(ctypes.Structure):
    """`LuminalLaunchRequest` in launch.h."""

    _fields_ = [
        ("run", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("argument_bytes", ctypes.c_uint64),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("max_workers", ctypes.c_uint32),
        ("reverse", ctypes.c_uint8),
        ("check", ctypes.c_uint8),
        ("poison_static_shared", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8),
        ("buffers", ctypes.POINTER(_Buffer)),
        ("buffer_count", ctypes.c_uint64),
    ]


class _ParameterEntry(ctypes.Structure):
    """`LuminalParameter` in host_export.h."""

    _fields_ = [("kind", ctypes.c_char), ("size", ctypes.c_uint8)]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: kind p(ointer), i(nt), u(nsigned), f(loat) or o(ther), and its size in bytes."""

    kind: str
    size: int

    def __str__(self) -> str:
        return "pointer" if self.kind == "p" else f"{self.size}-byte {_KINDS[self.kind]}"


_KINDS = {"i": "int", "u": "unsigned int", "f": "float", "o": "struct"}


class HostKernel:
    """One compiled kernel. `launch` may be called from several threads at once; it releases the interpreter lock."""

    def __init__(self, source: KernelSource, built: BuiltKernel, folder: Path) -> None:
        self.source = source
        self.entry = source.entry
        self._built = built
        self._library = _load_library(runtime_library(folder))
        self._object = ctypes.CDLL(str(built.path))
        try:
            run = getattr(self._object, f"{built.symbol}__run")
            list_parameters = getattr(self._object, f"{built.symbol}__parameters")
        except AttributeError:
            raise KernelFault(f"kernel {self.entry}: the source lacks LUMINAL_EXPORT({self.entry})") from None
        self._run = ctypes.cast(run, ctypes.c_void_p).value
        list_parameters.restype = ctypes.POINTER(_ParameterEntry)
        self.parameters = _read_parameters(list_parameters())

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        args: Sequence[Argument],
        *,
        buffers: Sequence[CheckedBuffer] | None = None,
        reverse: bool = False,
    ) -> None:
        """Run the kernel to its end; a grid with a 0 in it does nothing.

        Arrays are passed as pointers and must be C-contiguous, `ctypes.c_void_p` is passed as it is, NumPy scalars go
        by value and must have the parameter's type. `reverse` runs blocks and threads in the opposite order: a right
        kernel gives the same bits. `buffers` belongs to kernels compiled with check=True: all memory that the kernel
        may use; without it the arrays among `args` count, as initialised.

        InvalidInput if the arguments do not fit the kernel. KernelFault if the kernel breaks a rule: diverging barriers
        always; with check=True also races, bounds, alignment, uninitialised reads. After a fault the arrays are
        undefined (with check=True: unchanged).
        """
        self._validate_shape(grid, block, shared_bytes)
        if 0 in grid:
            return
        copies = None
        if self.source.check:
            given = _argument_buffers(args) if buffers is None else buffers
            copies = GuardedCopies(given)
        elif buffers is not None:
            raise InvalidInput(f"kernel {self.entry}: buffers are for kernels compiled with check=True")
        table, keep_alive = self._argument_table(args, copies)
        request = _Request(
            run=self._run,
            arguments=ctypes.addressof(table),
            argument_bytes=ctypes.sizeof(table),
            grid=grid,
            block=block,
            shared_bytes=shared_bytes,
            max_workers=processors(),
            reverse=reverse,
            check=self.source.check,
            poison_static_shared=self._built.alone,
        )
        if copies:
            entries = (_Buffer * len(copies.regions))(*map(_buffer_entry, copies.regions))
            request.buffers = entries
            request.buffer_count = len(entries)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        failed = self._library.luminal_launch(ctypes.byref(request), message, _MESSAGE_BYTES)
        del keep_alive
        if failed:
            text = explain(message.value.decode(errors="replace"), self.source, self._built.path)
            raise KernelFault(f"kernel {self.entry}: {text}")
        if copies:
            copies.copy_back()

    def _validate_shape(self, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int) -> None:
        if len(grid) != 3 or any(not 0 <= size <= limit for size, limit in zip(grid, _GRID_LIMITS)):
            raise InvalidInput(f"kernel {self.entry}: grid {grid}, expected 3 sizes of 0 up to {_GRID_LIMITS}")
        most = self.source.largest_block
        if len(block) != 3 or any(size < 1 for size in block) or block[0] * block[1] * block[2] > most:
            raise InvalidInput(
                f"kernel {self.entry}: block {block}, expected 3 sizes of at least 1, {most} threads in all"
            )
        if shared_bytes < 0:
            raise InvalidInput(f"kernel {self.entry}: {shared_bytes} bytes of shared memory")

    def _argument_table(self, args: Sequence[Argument], copies: GuardedCopies | None) -> tuple[ctypes.Array, list]:
        """Return the `void**` and its values in one piece of memory, and what must outlive the launch."""
        if len(args) != len(self.parameters):
            raise InvalidInput(f"kernel {self.entry} takes {len(self.parameters)} arguments, got {len(args)}")
        pointer_bytes = ctypes.sizeof(ctypes.c_void_p)
        values_at = -(-len(args) * pointer_bytes // _SLOT) * _SLOT
        table = (ctypes.c_uint8 * (values_at + len(args) * _SLOT + _SLOT))()
        base = ctypes.addressof(table)
        shift = -base % _SLOT  # so that every value is aligned
        for position, (argument, parameter) in enumerate(zip(args, self.parameters)):
            slot = values_at + shift + position * _SLOT
            value = self._value(position, argument, parameter, copies)
            ctypes.memmove(base + slot, value, len(value))
            ctypes.memmove(
                base + position * pointer_bytes, (base + slot).to_bytes(pointer_bytes, "little"), pointer_bytes
            )
        return table, list(args)

    def _value(self, position: int, argument: Argument, parameter: Parameter, copies: GuardedCopies | None) -> bytes:
        """The bytes of one argument as the kernel reads them."""
        where = f"kernel {self.entry}, argument {position}"
        if parameter.kind == "p":
            if isinstance(argument, np.ndarray):
                if not argument.flags.c_contiguous:
                    raise InvalidInput(f"{where}: the array is not C-contiguous; pass a contiguous copy")
                address = argument.ctypes.data
            elif isinstance(argument, ctypes.c_void_p):
                address = argument.value or 0
            else:
                raise InvalidInput(f"{where}: expected an array or ctypes.c_void_p, got {type(argument).__name__}")
            return (copies.translate(address) if copies else address).to_bytes(8, "little")
        if isinstance(argument, (int, float)) and not isinstance(argument, np.generic):
            argument = _as_scalar(where, argument, parameter)
        if not isinstance(argument, np.generic):
            raise InvalidInput(f"{where}: expected a {parameter}, got {type(argument).__name__}")
        kind = {"b": "u", "V": "f"}.get(argument.dtype.kind, argument.dtype.kind)
        narrow_float = parameter == Parameter("o", 2) and argument.dtype.itemsize == 2 and kind == "f"
        if not narrow_float and (kind, argument.dtype.itemsize) != (parameter.kind, parameter.size):
            raise InvalidInput(f"{where}: expected a {parameter}, got numpy.{argument.dtype.name}")
        return argument.tobytes()


def compile_host(source: str, entry: str, *, check: bool = False, cache_dir: Path | None = None) -> HostKernel:
    """Compile one emitted kernel for the CPU, or take it from the cache, and load it.

    `check` adds the memory checker (several times slower). KernelFault if the text does not compile; MissingDependency
    if there is no compiler or CUDA's headers are missing.
    """
    kernel = KernelSource(source, entry, check)
    folder = host_folder(cache_dir)
    return HostKernel(kernel, build_kernel(kernel, folder), folder)


def compile_many(
    kernels: Sequence[tuple[str, str]], *, check: bool = False, cache_dir: Path | None = None
) -> list[HostKernel]:
    """Compile (source, entry) pairs on all processors, several in one compilation; results are in order.

    As `compile_host`, but static shared memory is not filled with NaN before each block.
    """
    sources = [KernelSource(source, entry, check) for source, entry in kernels]
    folder = host_folder(cache_dir)
    return [HostKernel(source, built, folder) for source, built in zip(sources, build_kernels(sources, folder))]


_libraries: dict[str, ctypes.CDLL] = {}
_libraries_lock = threading.Lock()


def _load_library(path: Path) -> ctypes.CDLL:
    """Load the runtime library once a process: kernels find it by its name, whichever cache folder it came from."""
    with _libraries_lock:
        library = _libraries.get(path.name)
        if library is None:
            library = ctypes.CDLL(str(path))
            library.luminal_launch.argtypes = [ctypes.POINTER(_Request), ctypes.c_char_p, ctypes.c_uint64]
            library.luminal_launch.restype = ctypes.c_int
            _libraries[path.name] = library
        return library


def _read_parameters(entries: ctypes._Pointer) -> tuple[Parameter, ...]:
    parameters = []
    while entries[len(parameters)].size:
        entry = entries[len(parameters)]
        parameters.append(Parameter(entry.kind.decode(), entry.size))
    return tuple(parameters)


def _buffer_entry(region: Region) -> _Buffer:
    return _Buffer(
        name=region.name.encode(),
        address=region.address,
        bytes=region.bytes,
        granule=region.granule,
        initialised=region.initialised,
        read_only=region.read_only,
        must_begin=region.must_start - region.start,
        must_end=region.must_end - region.start,
    )


def _argument_buffers(args: Sequence[Argument]) -> list[CheckedBuffer]:
    return [CheckedBuffer(f"argument {i}", arg) for i, arg in enumerate(args) if isinstance(arg, np.ndarray)]


def _as_scalar(where: str, value: int | float, parameter: Parameter) -> np.generic:
    if parameter.kind == "o" or (parameter.kind in "iu" and isinstance(value, float)):
        raise InvalidInput(f"{where}: expected a {parameter}, got {value!r}")
    dtype = np.dtype(f"{parameter.kind}{parameter.size}")
    if parameter.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise InvalidInput(f"{where}: {value} does not fit a {parameter}")
    return dtype.type(value)
