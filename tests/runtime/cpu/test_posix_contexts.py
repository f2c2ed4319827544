"""The portable way to switch stacks, which processors other than x86-64 use, gives the same results."""

from __future__ import annotations

import numpy as np
import pytest

from luminal_onnx.plan.errors import KernelFault
from luminal_onnx.runtime.cpu import compile_host, support


@pytest.mark.slow
def test_posix_contexts_give_the_same_bits(compile_file, kernel_text, monkeypatch, tmp_path):
    fast = compile_file("attention")
    monkeypatch.setattr(support, "_LIBRARY_FLAGS", (*support._LIBRARY_FLAGS, "-DLUMINAL_POSIX_CONTEXTS"))
    slow = compile_host(kernel_text("attention"), "attention", cache_dir=tmp_path / "host")
    broken = compile_host(kernel_text("faults/missing_lanes"), "missing_lanes", cache_dir=tmp_path / "host")
    (library,) = (tmp_path / "host").glob("libluminal_host_*.so")
    assert b"swapcontext" in library.read_bytes()

    q, k, v = np.random.default_rng(1).standard_normal((3, 128, 64)).astype(np.float16)
    outs = []
    for kernel in (fast, slow, slow):
        outs.append(np.zeros((128, 64), np.float32))
        args = [q, k, v, outs[-1], np.int32(128), np.float32(0.125)]
        kernel.launch((2, 1, 1), (128, 1, 1), 3 * 64 * 72 * 2, args)
    assert np.abs(outs[0]).max() > 0.1
    assert outs[0].tobytes() == outs[1].tobytes() == outs[2].tobytes()
    with pytest.raises(KernelFault, match="barrier divergence"):
        broken.launch((1, 1, 1), (128, 1, 1), 0, [np.zeros(128, np.float32), np.int32(100)])
