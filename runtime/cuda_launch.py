"""Launches of kernels on a stream; each may be allowed to start while the kernel in front of it is still running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .cuda_driver import Driver
from .launches import KernelLaunch


def launch_kernel(
    driver: Driver, function: Any, launch: KernelLaunch, addresses: Mapping[int, int], stream: Any, early: bool
) -> None:
    """Put a kernel on a stream. With `early` its blocks may start as soon as the kernel in front of it lets them.

    Only a kernel that waits for its inputs by itself may be launched early (`docs/kernels.md`, "Starting early").
    While a stream is captured, an early launch becomes a programmatic edge of the graph, any other a full one.
    """
    record = launch.kernel
    values = [addresses[slot] for slot in (*launch.writes, *launch.reads)]
    values += [scalar & 0xFFFF_FFFF_FFFF_FFFF for scalar in launch.scalars]
    # Each argument has eight bytes; the kernel reads the low four of a 32-bit one, which come first.
    arguments = np.array(values, np.uint64)
    pointers = arguments.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)
    if early:
        config = _early_config(driver.api, launch, stream)
        driver.call("cuLaunchKernelEx", config, function, pointers.ctypes.data, 0)
    else:
        driver.call(
            "cuLaunchKernel",
            function,
            *launch.grid,
            *record.block,
            record.shared_bytes,
            stream,
            pointers.ctypes.data,
            0,
        )


def _early_config(api: Any, launch: KernelLaunch, stream: Any) -> Any:
    allowed = api.CUlaunchAttribute()
    allowed.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    allowed.value.programmaticStreamSerializationAllowed = 1
    config = api.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.kernel.block
    config.sharedMemBytes = launch.kernel.shared_bytes
    config.hStream = stream
    config.attrs = [allowed]
    config.numAttrs = 1
    return config
