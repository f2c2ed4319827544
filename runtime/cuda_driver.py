"""The CUDA driver, called through `cuda.bindings`: every status is checked, and every failure says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..plan.errors import InvalidArtifact, KernelFault, LuminalError, NoDevice

_CPU = 'or name device="cpu" to run the same kernels on the host'
_NO_DEVICE = 100
_OUT_OF_MEMORY = 2
_NO_BINARY = (200, 209, 218, 222)  # invalid image, no binary for this GPU, invalid PTX, unsupported PTX version
_KERNEL_FAULTS = (700, 702, 710, 714, 715, 716, 717, 718, 719)


def bindings() -> Any:
    """Return the module of driver functions; importing it needs no driver."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NoDevice(
            f"the package cuda-bindings is missing ({error}): pip install 'cuda-bindings>=13', {_CPU}"
        ) from error
    return driver


class Driver:
    """One GPU through its primary context, which other libraries in the process share.

    Functions of the driver are called as `driver.call("cuStreamSynchronize", stream)`: the status is checked, and what
    else the function returned is returned (nothing, one value, or a tuple).
    """

    def __init__(self, device_id: int = 0, minimum_cuda: str = "13.0") -> None:
        self.api = bindings()
        try:
            (status,) = self.api.cuInit(0)
        except Exception as error:  # the loader's own errors differ from release to release
            raise NoDevice(
                f"no NVIDIA driver was found (libcuda.so.1: {error}); install driver 580 or newer, {_CPU}"
            ) from error
        if int(status) == _NO_DEVICE:
            raise NoDevice(f"the NVIDIA driver sees no GPU (check nvidia-smi and CUDA_VISIBLE_DEVICES), {_CPU}")
        self._check("cuInit", status)
        version = self.call("cuDriverGetVersion")
        major, minor = (int(part) for part in minimum_cuda.split("."))
        if version < major * 1000 + minor * 10:
            raise NoDevice(
                f"the NVIDIA driver is for CUDA {version // 1000}.{version % 1000 // 10}, the artifact needs CUDA "
                f"{minimum_cuda}; install driver 580 or newer, {_CPU}"
            )
        self.version = version
        count = self.call("cuDeviceGetCount")
        if not 0 <= device_id < count:
            raise NoDevice(f"device_id is {device_id}, but the driver sees {count} GPU(s); name one of them, {_CPU}")
        self.device_id = device_id
        self._device = self.call("cuDeviceGet", device_id)
        attribute = self.api.CUdevice_attribute
        self.capability = (
            self.call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self._device),
            self.call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self._device),
        )
        name = self.call("cuDeviceGetName", 256, self._device)
        self.name = name.split(b"\0")[0].decode() if isinstance(name, bytes) else str(name)
        self._context = self.call("cuDevicePrimaryCtxRetain", self._device)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a driver function and return what it returns besides the status."""
        status, *values = getattr(self.api, name)(*arguments)
        if int(status) != 0:
            self._check(name, status)
        if not values:
            return None
        return values[0] if len(values) == 1 else tuple(values)

    def _check(self, name: str, status: Any) -> None:
        code = int(status)
        if code == 0:
            return
        label = getattr(status, "name", str(code))
        if code in _NO_BINARY:
            raise InvalidArtifact(f"{name}: {label}: this GPU and driver cannot load the kernel; compile for its arch")
        if code in _KERNEL_FAULTS:
            raise KernelFault(f"{name}: {label}: a kernel failed on the GPU; the process must be started again")
        if code == _OUT_OF_MEMORY:
            raise NoDevice(f"{name}: {label}: the GPU has too little free memory; run smaller shapes, {_CPU}")
        raise LuminalError(f"{name} failed: {label} ({code})")

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current for this thread until the block ends."""
        self.call("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")

    def allocate(self, size: int, purpose: str) -> int:
        """Return the address of `size` new bytes of device memory (at least one)."""
        try:
            return int(self.call("cuMemAlloc", max(size, 1)))
        except NoDevice as error:
            free, total = self.call("cuMemGetInfo")
            raise NoDevice(
                f"GPU {self.device_id} ({self.name}) has {free:,} of {total:,} bytes free, {purpose} need {size:,}; "
                "free memory, run smaller shapes or use another GPU"
            ) from error

    def free(self, address: int) -> None:
        self.call("cuMemFree", address)

    def release(self) -> None:
        """Give the primary context back."""
        self.call("cuDevicePrimaryCtxRelease", self._device)


def destroy_quietly(action: Callable[[], Any]) -> None:
    """Run a clean-up step, whose failure changes nothing that anybody could act on."""
    with suppress(Exception):  # after a kernel fault every later call fails too
        action()
