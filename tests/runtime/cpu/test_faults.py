"""Planted bugs: each is caught, named, and placed; none hangs."""

from __future__ import annotations

import numpy as np
import pytest

from luminal_onnx.plan.errors import KernelFault
from luminal_onnx.runtime.cpu import CheckedBuffer

# Found in every launch: what would hang or be undefined on a GPU.
ALWAYS = {
    "exit_before_barrier": (
        r"28 thread\(s\) have ended \(first: thread 100\), 100 wait at __syncthreads .*line \d+"
        r" \(`__syncthreads\(\);`\)"
    ),
    "barrier_in_branches": (
        r"barrier divergence: 128 wait at __syncthreads .*thread 100 at another one, line \d+"
        r" \(`__syncthreads\(\);`\)"
    ),
    "missing_lanes": (r"barrier divergence: 64 thread\(s\) have ended .*wait at a warp collective .*__shfl_xor_sync"),
    "mask_without_caller": r"lane 16 calls a warp collective whose mask 0000ffff leaves it out",
    "barrier_against_syncwarp": (
        r"1 wait at __syncthreads \(first: thread 0.*wait at a warp collective \(first: thread 1,"
    ),
    "different_collectives": (
        r"divergent warp collectives: lane 1 is at line .*1\.0f.*others of its warp at line .*2\.0f"
    ),
}

# Found by the checker.
CHECKED = {
    "out_of_bounds": (
        r"thread \(127, 0, 0\): out of bounds write of 4 bytes at byte 512 of o, which has 512 bytes, line"
        r" \d+ \(`o\[i \+ 1\] = 1;`\)"
    ),
    "far_out_of_bounds": r"thread \(0, 0, 0\): out of bounds read of 4 bytes at byte 4398046511104 of o",
    "uninitialised_shared": (
        r"thread \(0, 0, 0\): read of uninitialised byte \d+ of static shared memory, line \d+ \(`o\[i\] ="
        r" s\[127 - i\];`\)"
    ),
    "uninitialised_output": r"read of uninitialised byte 0 of o",
    "partly_written": r"4 of the 512 bytes of o were never written \(first: byte 308\)",
    "missing_barrier": (
        r"data race at byte \d+ of static shared memory: read by thread 64 of block 0, line .*after a write"
        r" by thread 0 of|read of uninitialised byte"
    ),
    "missing_second_barrier": r"data race at byte 0 of static shared memory: (read|write) by thread",
    "missing_syncwarp": (
        r"data race at byte \d+ of static shared memory: read by thread 0 .*after a write by thread 1 of"
        r" block 0"
    ),
    "shared_overflow": (
        r"(data race at byte \d+ of|out of bounds write of 4 bytes at byte 1024 of) static shared memory"
    ),
    "too_little_dynamic_shared": (
        r"thread \(64, 0, 0\): out of bounds write of 4 bytes at byte 256 of dynamic shared memory, which has"
        r" 256 bytes"
    ),
    "blocks_write_one_place": (
        r"data race at byte 0 of o: write by thread 0 of block 1, .*after a write by thread 0 of block 0"
    ),
    "misaligned": r"thread \(3, 0, 0\): misaligned write of 16 bytes at byte 4 of o",
    "missing_copy_wait": r"read of byte 0 of dynamic shared memory, which an asynchronous copy still writes",
    "copy_into_tile_in_use": (
        r"data race at byte \d+ of dynamic shared memory: asynchronous copy by thread \d+ .*after a read by"
        r" thread"
    ),
    "read_only_written": r"write at byte 0 of the read-only buffer o",
    "stray_shuffle": r"lane 0 shuffles from lane 20, which is not in the mask 0000ffff",
    "atomic_and_plain": r"data race at byte 0 of static shared memory",
}

_INITIALISED = {"far_out_of_bounds", "missing_copy_wait", "copy_into_tile_in_use", "read_only_written"}


def _launch(kernel, name: str, reverse: bool) -> None:
    out = np.zeros(256 if name == "copy_into_tile_in_use" else 128, np.float32)
    blocks = 2 if name == "blocks_write_one_place" else 1
    shared = 256 if name == "too_little_dynamic_shared" else 512
    options = {}
    if kernel.source.check:
        read_only, fully_written = name == "read_only_written", name == "partly_written"
        options["buffers"] = [CheckedBuffer("o", out, name in _INITIALISED, read_only, fully_written)]
    kernel.launch((blocks, 1, 1), (128, 1, 1), shared, [out, np.int32(100)], reverse=reverse, **options)


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("name", ALWAYS)
def test_divergence_is_always_found(name, check, compile_file):
    kernel = compile_file(f"faults/{name}", check=check)
    with pytest.raises(KernelFault, match=rf"kernel {name}: block \(0, 0, 0\), thread .*{ALWAYS[name]}"):
        _launch(kernel, name, reverse=False)
    with pytest.raises(KernelFault, match=f"kernel {name}"):
        _launch(kernel, name, reverse=True)


@pytest.mark.parametrize("name", CHECKED)
def test_checker_finds(name, compile_file):
    kernel = compile_file(f"faults/{name}", check=True)
    with pytest.raises(KernelFault, match=rf"kernel {name}: block .*{CHECKED[name]}"):
        _launch(kernel, name, reverse=False)
    with pytest.raises(KernelFault, match=f"kernel {name}"):
        _launch(kernel, name, reverse=True)


def test_every_planted_fault_is_listed():
    from pathlib import Path

    files = {path.stem for path in (Path(__file__).parent / "kernels" / "faults").glob("*.cu")}
    assert files == {*ALWAYS, *CHECKED}


def test_poison_shows_without_the_checker(compile_file):
    out = np.zeros(128, np.float32)
    compile_file("faults/uninitialised_shared").launch((1, 1, 1), (128, 1, 1), 0, [out, np.int32(100)])
    np.testing.assert_array_equal(np.isnan(out), np.arange(128) < 28)


def test_a_fault_leaves_checked_arrays_alone_and_the_kernel_usable(compile_file):
    kernel = compile_file("faults/out_of_bounds", check=True)
    out = np.full(128, 7, np.float32)
    with pytest.raises(KernelFault):
        kernel.launch((1, 1, 1), (128, 1, 1), 0, [out, np.int32(0)])
    assert (out == 7).all()
    longer = np.full(129, 7, np.float32)
    kernel.launch((1, 1, 1), (128, 1, 1), 0, [longer, np.int32(0)])
    assert longer[0] == 7 and (longer[1:] == 1).all()
