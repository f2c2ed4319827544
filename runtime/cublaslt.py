"""cuBLASLt: run `LtMatmul` records on the GPU. Descriptors and algorithms are chosen once per record and kept."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..plan.dtypes import DType, bfloat16, float16, float32, float64
from ..plan.errors import LuminalError, MissingDependency
from ..plan.lt import EPILOGUES, LtMatmul

WORKSPACE_BYTES = 32 << 20
PLANS_KEPT = 1024
_ADDED = frozenset(("offset_a", "offset_b", "offset_c"))  # to the addresses, so that the library does not see them
_INSTALL = "pip install 'luminal-onnx[gpu]'"
_DATA_TYPES = {float32: 0, float64: 1, float16: 2, bfloat16: 14}  # cudaDataType
# Ours begin with the activation, the library's end with the bias too; its GELU is the approximation by tanh.
_EPILOGUES = {name: name.upper() for name in EPILOGUES if name != "default"}
_MOST_ALIGNMENT = 256
_HEURISTIC_RESULT_WORDS = 12  # cublasLtMatmulHeuristicResult_t: 8 of algorithm, then workspace, state, waves, reserved


@dataclass
class _LtPlan:
    """What the library wants to know of one product. The arrays keep host memory alive that it reads when called."""

    description: int
    layouts: dict[str, int]
    algorithm: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray


class LtLibrary:
    """A handle of the library and the plans made with it; make it with the GPU's context current.

    Several threads may use it, one at a time.
    """

    def __init__(self) -> None:
        self._lt, self._compute = _import_bindings()
        try:
            self._handle = self._lt.create()
        except Exception as error:  # nvmath's loader raises types of its own
            raise MissingDependency(f"the plan calls cuBLASLt, which cannot be loaded ({error}): {_INSTALL}") from error
        self._plans: dict[tuple[Any, ...], _LtPlan] = {}
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        """The library's own version number, such as 130100."""
        return int(self._lt.get_version())

    def run(
        self,
        record: LtMatmul,
        out: int,
        operands: Sequence[int],
        stream: int,
        workspace: int,
        workspace_bytes: int = WORKSPACE_BYTES,
    ) -> None:
        """Enqueue `record`, whose sizes are all numbers, on `stream`.

        `out` and `operands` (A, B, then C if beta ≠ 0, then the bias if the epilogue has one) are the addresses where
        the buffers begin; the record's offsets are added here. k = 0 is not the library's: see the caller.
        """
        a = operands[0] + record.offset_a * record.type_a.size
        b = operands[1] + record.offset_b * record.type_b.size
        c = operands[2] + record.offset_c * record.type_d.size if record.has_c else out
        bias = operands[-1] if record.has_bias else 0
        alignments = tuple(alignment(address) for address in (a, b, c, out, bias or _MOST_ALIGNMENT))
        with self._lock:
            key = (*(value for name, value in vars(record).items() if name not in _ADDED), alignments)
            plan = self._plans.get(key)
            if plan is None:
                if len(self._plans) >= PLANS_KEPT:
                    self._forget()
                plan = self._plans[key] = self._make_plan(record, alignments, bias, workspace_bytes)
            if bias:
                self._describe(plan.description, "BIAS_POINTER", bias, np.uint64)
            self._lt.matmul(
                self._handle,
                plan.description,
                plan.alpha.ctypes.data,
                a,
                plan.layouts["A"],
                b,
                plan.layouts["B"],
                plan.beta.ctypes.data,
                c,
                plan.layouts["C"],
                out,
                plan.layouts["D"],
                plan.algorithm.ctypes.data,
                workspace,
                workspace_bytes,
                stream,
            )

    def _make_plan(self, record: LtMatmul, alignments: Sequence[int], bias: int, workspace_bytes: int) -> _LtPlan:
        record.validate()
        lt = self._lt
        double = record.compute is float64 or record.compute == float64
        compute = self._compute.COMPUTE_64F if double else self._compute.COMPUTE_32F
        scale = np.float64 if double else np.float32
        description = lt.matmul_desc_create(int(compute), _DATA_TYPES[float64 if double else float32])
        layouts: dict[str, int] = {}
        try:
            self._describe(description, "TRANSA", int(record.transpose_a), np.int32)
            self._describe(description, "TRANSB", int(record.transpose_b), np.int32)
            if record.epilogue != "default":
                epilogue = lt.Epilogue[_EPILOGUES[record.epilogue]]
                self._describe(description, "EPILOGUE", int(epilogue), np.uint32)
            if bias:
                self._describe(description, "BIAS_DATA_TYPE", _DATA_TYPES[record.type_d], np.int32)
                self._describe(description, "BIAS_POINTER", bias, np.uint64)
            matrices = record.matrices()
            matrices.setdefault("C", matrices["D"])
            strides = {"A": record.stride_a, "B": record.stride_b, "D": record.stride_d}
            strides["C"] = record.stride_c if record.has_c else record.stride_d
            types = {"A": record.type_a, "B": record.type_b, "C": record.type_d, "D": record.type_d}
            for label, matrix in matrices.items():
                layouts[label] = self._layout(types[label], matrix, record.batch, strides[label])
            algorithm = self._choose(description, layouts, alignments, workspace_bytes)
            if algorithm is None:
                raise LuminalError(f"cuBLASLt has no algorithm for this product: {record}")
        except BaseException:
            self._destroy(description, layouts)
            raise
        return _LtPlan(description, layouts, algorithm, np.array([record.alpha], scale), np.array([record.beta], scale))

    def _layout(self, dtype: DType, matrix: tuple[int, int, int, str], batch: int, stride: int) -> int:
        rows, columns, ld, order = matrix
        layout = self._lt.matrix_layout_create(_DATA_TYPES[dtype], rows, columns, ld)
        attributes = self._lt.MatrixLayoutAttribute
        settings = [(attributes.ORDER, int(self._lt.Order.COL if order == "col" else self._lt.Order.ROW), np.int32)]
        if batch > 1:
            settings.append((attributes.BATCH_COUNT, batch, np.int32))
            settings.append((attributes.STRIDED_BATCH_OFFSET, stride, np.int64))
        for attribute, value, kind in settings:
            held = np.array([value], kind)
            self._lt.matrix_layout_set_attribute(layout, int(attribute), held.ctypes.data, held.nbytes)
        return layout

    def _describe(self, description: int, attribute: str, value: int, kind: type) -> None:
        held = np.array([value], kind)
        number = int(self._lt.MatmulDescAttribute[attribute])
        self._lt.matmul_desc_set_attribute(description, number, held.ctypes.data, held.nbytes)

    def _choose(
        self, description: int, layouts: dict[str, int], alignments: Sequence[int], workspace_bytes: int
    ) -> np.ndarray | None:
        """Return the library's first choice, which begins with the algorithm, or None if it has none."""
        lt = self._lt
        preference = lt.matmul_preference_create()
        try:
            names = lt.MatmulPreferenceAttribute
            settings = [(names.MAX_WORKSPACE_BYTES, workspace_bytes, np.uint64)]
            for label, least in zip("ABCD", alignments):
                settings.append((names[f"MIN_ALIGNMENT_{label}_BYTES"], least, np.uint32))
            for attribute, value, kind in settings:
                held = np.array([value], kind)
                lt.matmul_preference_set_attribute(preference, int(attribute), held.ctypes.data, held.nbytes)
            result = np.zeros(_HEURISTIC_RESULT_WORDS, np.uint64)
            found = np.zeros(1, np.int32)
            ordered = [layouts[label] for label in "ABCD"]
            try:
                lt.matmul_algo_get_heuristic(
                    self._handle, description, *ordered, preference, 1, result.ctypes.data, found.ctypes.data
                )
            except Exception as error:
                if "NOT_SUPPORTED" in str(error):
                    return None
                raise
            return result if found[0] else None
        finally:
            lt.matmul_preference_destroy(preference)

    def _destroy(self, description: int, layouts: dict[str, int]) -> None:
        for layout in layouts.values():
            self._lt.matrix_layout_destroy(layout)
        self._lt.matmul_desc_destroy(description)

    def _forget(self) -> None:
        for plan in self._plans.values():
            self._destroy(plan.description, plan.layouts)
        self._plans.clear()

    def close(self) -> None:
        """Free the plans and the handle."""
        with self._lock:
            self._forget()
            self._lt.destroy(self._handle)


def alignment(address: int) -> int:
    """Return the largest power of two, at most 256, that divides an address."""
    return min(address & -address, _MOST_ALIGNMENT) if address else _MOST_ALIGNMENT


def _import_bindings() -> tuple[Any, Any]:
    """Import nvmath's bindings, which takes a moment and much memory: only plans with library calls need them."""
    try:
        from nvmath.bindings import cublas, cublasLt
    except ImportError as error:
        raise MissingDependency(f"the plan calls cuBLASLt, which needs nvmath-python ({error}): {_INSTALL}") from error
    return cublasLt, cublas.ComputeType
