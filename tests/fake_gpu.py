"""A CUDA driver and a cuBLASLt that live in host memory, so that the GPU road's bookkeeping is tested without a GPU.

Addresses are real host addresses, kernels are Python functions, streams run at once, and a capture records what would
run. Every allocation and handle is counted, so that a test can say that nothing leaked.
"""

from __future__ import annotations

import ctypes
import enum
from types import SimpleNamespace

import numpy as np
from luminal_onnx.plan.dtypes import bfloat16, float16, float32, float64
from luminal_onnx.plan.lt import LtMatmul
from luminal_onnx.runtime.lt_reference import run_matmul


class Status(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209


OK = Status.CUDA_SUCCESS


def array_at(address: int, count: int, dtype) -> np.ndarray:
    """Return the `count` elements that lie at an address."""
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8).view(dtype)


class FakeDriver:
    """The functions of `cuda.bindings.driver` that the runtime calls. `kernels` maps an entry to f(argument addresses)."""

    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR="major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR="minor"
    )
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="programmatic")
    CUlaunchConfig = SimpleNamespace

    def __init__(self, kernels, capability=(9, 0), version=13000, gpus=1, init=OK, memory=1 << 30):
        self.kernels = kernels
        self.capability = capability
        self.version = version
        self.gpus = gpus
        self.init = init
        self.memory = memory
        self.live: dict[int, object] = {}
        self.contexts: list[object] = []
        self.capturing: dict[int, list] = {}
        self.loaded: list[bytes] = []
        self.calls: dict[str, int] = {}
        self.launches: list[tuple[str, bool]] = []  # kernels and whether each might start early, in order of launching

    @staticmethod
    def CUlaunchAttribute():
        return SimpleNamespace(id=None, value=SimpleNamespace())

    def __getattribute__(self, name):
        if name.startswith("cu"):
            calls = object.__getattribute__(self, "calls")
            calls[name] = calls.get(name, 0) + 1
        return object.__getattribute__(self, name)

    def keep(self, thing, handle=None) -> int:
        handle = handle or id(thing)
        assert handle not in self.live
        self.live[handle] = thing
        return handle

    def drop(self, handle):
        del self.live[int(handle)]
        return (OK,)

    def enqueue(self, stream, action):
        if int(stream) in self.capturing:
            self.capturing[int(stream)].append(action)
        else:
            action()
        return (OK,)

    def cuInit(self, flags):
        if self.init == "missing":
            raise RuntimeError("libcuda.so.1: cannot open shared object file")
        return (self.init,)

    def cuDriverGetVersion(self):
        return OK, self.version

    def cuDeviceGetCount(self):
        return OK, self.gpus

    def cuDeviceGet(self, number):
        return OK, number

    def cuDeviceGetAttribute(self, attribute, device):
        return OK, self.capability[attribute == "minor"]

    def cuDeviceGetName(self, length, device):
        return OK, b"Fake GPU\0\0"

    def cuDeviceTotalMem(self, device):
        return OK, self.memory

    def cuDevicePrimaryCtxRetain(self, device):
        return OK, self.keep(SimpleNamespace(device=device))

    def cuDevicePrimaryCtxRelease(self, device):
        (handle,) = [h for h, thing in self.live.items() if getattr(thing, "device", None) == device]
        return self.drop(handle)

    def cuCtxPushCurrent(self, context):
        self.contexts.append(context)
        return (OK,)

    def cuCtxPopCurrent(self):
        return OK, self.contexts.pop()

    def cuMemAlloc(self, size):
        held = sum(thing.nbytes for thing in list(self.live.values()) if isinstance(thing, np.ndarray))
        if held + size > self.memory:
            return (Status.CUDA_ERROR_OUT_OF_MEMORY, 0)
        return self.cuMemHostAlloc(size, 0)

    def cuMemHostAlloc(self, size, flags):
        assert size > 0 and self.contexts
        raw = np.full(size + 512, 0xAB, np.uint8)
        raw_address = raw.ctypes.data
        return OK, self.keep(raw, raw_address + -raw_address % 256)

    def cuMemFree(self, address):
        return self.drop(address)

    cuMemFreeHost = cuMemFree

    def cuMemGetInfo(self):
        return OK, 12345, self.memory

    def cuStreamCreate(self, flags):
        return OK, self.keep(SimpleNamespace(stream=True))

    def cuStreamDestroy(self, stream):
        return self.drop(stream)

    def cuStreamSynchronize(self, stream):
        assert int(stream) not in self.capturing
        return (OK,)

    def cuEventCreate(self, flags):
        return OK, self.keep(SimpleNamespace(event=True))

    def cuEventDestroy(self, event):
        return self.drop(event)

    def cuEventRecord(self, event, stream):
        return (OK,)

    def cuEventSynchronize(self, event):
        return (OK,)

    def cuEventElapsedTime(self, begin, end):
        return OK, 5.0

    def cuMemcpyHtoDAsync(self, target, source, size, stream):
        assert size > 0
        return self.enqueue(stream, lambda: ctypes.memmove(int(target), int(source), size))

    cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = cuMemcpyHtoDAsync

    def cuMemsetD2D8Async(self, target, pitch, value, width, height, stream):
        def run():
            for row in range(height):
                ctypes.memset(int(target) + row * pitch, value, width)

        return self.enqueue(stream, run)

    def cuModuleLoadData(self, address):
        image = ctypes.string_at(int(address))
        if not image.startswith((b"cubin ", b"ptx ")):
            return Status.CUDA_ERROR_NO_BINARY_FOR_GPU, 0
        self.loaded.append(image)
        return OK, self.keep(SimpleNamespace(image=image))

    def cuModuleUnload(self, module):
        return self.drop(module)

    def cuModuleGetFunction(self, module, name):
        assert int(module) in self.live
        return OK, name.decode()

    def cuFuncSetAttribute(self, function, attribute, value):
        return (OK,)

    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra):
        self.launches.append((function, False))
        return self._launch(function, (gx, gy, gz, bx, by, bz), stream, arguments, extra)

    def cuLaunchKernelEx(self, config, function, arguments, extra):
        (attribute,) = config.attrs
        assert config.numAttrs == 1 and attribute.id == "programmatic"
        assert attribute.value.programmaticStreamSerializationAllowed == 1 and config.sharedMemBytes >= 0
        self.launches.append((function, True))
        sizes = (config.gridDimX, config.gridDimY, config.gridDimZ, config.blockDimX, config.blockDimY, config.blockDimZ)
        return self._launch(function, sizes, config.hStream, arguments, extra)

    def _launch(self, function, sizes, stream, arguments, extra):
        assert min(sizes) > 0 and extra == 0
        kernel, count = self.kernels[function]
        places = array_at(int(arguments), count, np.uint64).tolist()
        values = [int(array_at(place, 1, np.int64)[0]) for place in places]
        return self.enqueue(stream, lambda: kernel(*values))

    def cuStreamBeginCapture(self, stream, mode):
        self.capturing[int(stream)] = []
        return (OK,)

    def cuStreamEndCapture(self, stream):
        graph = SimpleNamespace(actions=self.capturing.pop(int(stream)))
        return OK, self.keep(graph)

    def cuGraphGetNodes(self, graph, count=0):
        return OK, None, len(self.live[int(graph)].actions)

    def cuGraphInstantiate(self, graph, flags):
        return OK, self.keep(SimpleNamespace(actions=list(self.live[int(graph)].actions)))

    def cuGraphDestroy(self, graph):
        return self.drop(graph)

    cuGraphExecDestroy = cuGraphDestroy

    def cuGraphLaunch(self, graph, stream):
        for action in self.live[int(graph)].actions:
            action()
        return (OK,)


class _Names(enum.IntEnum):
    """Attributes of every kind of descriptor, numbered once for all kinds."""

    TRANSA = 3
    TRANSB = 4
    EPILOGUE = 7
    BIAS_POINTER = 8
    BIAS_DATA_TYPE = 26
    ORDER = 1
    BATCH_COUNT = 5
    STRIDED_BATCH_OFFSET = 6
    MAX_WORKSPACE_BYTES = 101
    MIN_ALIGNMENT_A_BYTES = 105
    MIN_ALIGNMENT_B_BYTES = 106
    MIN_ALIGNMENT_C_BYTES = 107
    MIN_ALIGNMENT_D_BYTES = 108


_TYPES = {0: float32, 1: float64, 2: float16, 14: bfloat16}


class FakeCublasLt:
    """The bindings of cuBLASLt that the runtime calls; a product is computed from the descriptors that were set."""

    MatmulDescAttribute = MatrixLayoutAttribute = MatmulPreferenceAttribute = _Names
    Epilogue = enum.IntEnum("Epilogue", {"RELU": 2, "BIAS": 4, "RELU_BIAS": 6, "GELU": 32, "GELU_BIAS": 36})
    Order = SimpleNamespace(COL=0, ROW=1)
    ComputeType = SimpleNamespace(COMPUTE_32F=68, COMPUTE_64F=70)

    def __init__(self, driver: FakeDriver):
        self.driver = driver
        self.things: dict[int, dict] = {}
        self.heuristics = 0
        self.buffer_sizes: dict[int, int] = {}

    def _new(self, **values) -> int:
        handle = 1000 + len(self.things) * 8
        while handle in self.things:
            handle += 8
        self.things[handle] = values
        return handle

    def get_version(self):
        return 130100

    def create(self):
        return self._new(handle=True)

    def destroy(self, handle):
        del self.things[handle]

    def matmul_desc_create(self, compute, scale):
        assert (compute, scale) in [(68, 0), (70, 1)]
        return self._new(compute=compute)

    def matrix_layout_create(self, type, rows, cols, ld):
        return self._new(type=type, rows=rows, cols=cols, ld=ld)

    def matmul_preference_create(self):
        return self._new()

    matmul_desc_destroy = matrix_layout_destroy = matmul_preference_destroy = destroy

    def _set(self, handle, attribute, address, size):
        dtype = {4: np.int32, 8: np.int64}[size]
        self.things[handle][_Names(attribute).name] = int(array_at(address, 1, dtype)[0])

    matmul_desc_set_attribute = matrix_layout_set_attribute = matmul_preference_set_attribute = _set

    def matmul_algo_get_heuristic(self, handle, desc, a, b, c, d, preference, count, result, found):
        assert {"MAX_WORKSPACE_BYTES", "MIN_ALIGNMENT_A_BYTES"} <= set(self.things[preference])
        self.heuristics += 1
        array_at(result, 1, np.uint64)[0] = 77
        array_at(found, 1, np.int32)[0] = 1

    def matmul(
        self, handle, desc, alpha, a, la, b, lb, beta, c, lc, d, ld, algorithm, workspace, workspace_bytes, stream
    ):
        assert self.things[handle] == {"handle": True} and array_at(algorithm, 1, np.uint64)[0] == 77
        assert workspace % 256 == 0 and workspace in self.driver.live
        description = dict(self.things[desc])
        layouts = {name: dict(self.things[layout]) for name, layout in zip("abcd", (la, lb, lc, ld))}
        scalar = np.float64 if description["compute"] == 70 else np.float32
        alpha, beta = float(array_at(alpha, 1, scalar)[0]), float(array_at(beta, 1, scalar)[0])
        values = {"transpose_a": bool(description["TRANSA"]), "transpose_b": bool(description["TRANSB"])}
        for name, layout in layouts.items():
            values[f"order_{name}"] = ("col", "row")[layout["ORDER"]]
            values[f"ld{name}"] = layout["ld"]
            values[f"stride_{name}"] = layout.get("STRIDED_BATCH_OFFSET", 0)
            if name != "c":
                values[f"type_{name}"] = _TYPES[layout["type"]]
        assert layouts["c"]["type"] == layouts["d"]["type"]
        epilogue = self.Epilogue(description["EPILOGUE"]).name.lower() if "EPILOGUE" in description else "default"
        a_shape = layouts["a"]["rows"], layouts["a"]["cols"]
        record = LtMatmul(
            m=layouts["d"]["rows"], n=layouts["d"]["cols"], k=a_shape[0] if values["transpose_a"] else a_shape[1],
            batch=layouts["d"].get("BATCH_COUNT", 1), compute=float64 if description["compute"] == 70 else float32,
            alpha=alpha, beta=beta, epilogue=epilogue, **values,
        )  # fmt: skip
        record.validate()
        bias = [description["BIAS_POINTER"]] if record.has_bias else []
        pointers = [a, b] + ([c] if beta else []) + bias
        types = [record.type_a, record.type_b] + [record.type_d] * (len(pointers) - 2)

        def run():
            reach = 1 << 20
            operands = [self._bytes(p, reach, t) for p, t in zip(pointers, types)]
            run_matmul(record, self._bytes(d, reach, record.type_d), operands)

        self.driver.enqueue(stream, run)

    def _bytes(self, address, reach, dtype):
        """Return what lies at an address, up to the end of its allocation."""
        for begin, thing in self.driver.live.items():
            if isinstance(thing, np.ndarray) and begin <= address < begin + thing.nbytes - 512:
                count = (begin + thing.nbytes - 512 - address) // dtype.size
                return array_at(address, min(count, reach), dtype.numpy)
        raise AssertionError(f"address {address:#x} is in no allocation")


def install(monkeypatch, driver: FakeDriver) -> FakeCublasLt:
    """Put both fakes in the place of the real bindings."""
    library = FakeCublasLt(driver)
    monkeypatch.setattr("luminal_onnx.runtime.cuda_driver.bindings", lambda: driver)
    monkeypatch.setattr("luminal_onnx.runtime.cublaslt._import_bindings", lambda: (library, library.ComputeType))
    return library
