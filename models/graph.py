"""A writer of ONNX graphs that names things as PyTorch's exporter does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# ``Dim`` is what a graph input's shape holds: a number, or the name of a dim that is known only when the model runs.
Dim = int | str

# ``Size`` is a dim as the graph computes with it: a number, or the tensor (a scalar int64) that holds it.
Size = int | str

_IR_VERSION = 8  # goes with opset 17 and is read by every runtime in use


class GraphWriter:
    """Collects nodes, weights, inputs and outputs of one graph; ``model()`` closes it.

    Tensors are known by name. Node names carry the scope path, and outputs are called ``<node>_output_0``:
    ``/encoder/layer.0/attention/query/MatMul_output_0``. Weights are named without the leading slash, by dots.
    """

    def __init__(self, name: str, *, dtype: str, opset: int, seed: int) -> None:
        self.name = name
        self.dtype = np.dtype(dtype)
        self.opset = opset
        self.rng = np.random.default_rng(seed)
        # The graph is written in place: protobuf copies what is handed over, and weights may fill the memory.
        self._model = onnx.ModelProto()
        self._graph = self._model.graph
        self._graph.name = name
        self._scope: list[str] = []
        self._used: Counter[str] = Counter()

    @contextmanager
    def scope(self, path: str) -> Iterator[None]:
        """Put what is written inside under ``path`` (one name, or several joined by slashes)."""
        self._scope.append(path)
        yield
        self._scope.pop()

    def input(self, name: str, dtype: np.dtype | type | str, shape: Sequence[Dim]) -> str:
        """Declare a graph input."""
        self._graph.input.append(helper.make_tensor_value_info(name, _onnx_type(dtype), list(shape)))
        return name

    def output(self, name: str, tensor: str, dtype: np.dtype | type | str, shape: Sequence[Dim]) -> None:
        """Declare ``tensor`` to be the graph output ``name``."""
        self._rename(tensor, name)
        self._graph.output.append(helper.make_tensor_value_info(name, _onnx_type(dtype), list(shape)))

    def weight(self, name: str, value: np.ndarray) -> str:
        """Store a trained parameter; floats take the graph's dtype."""
        if np.issubdtype(value.dtype, np.floating):
            value = value.astype(self.dtype, copy=False)
        full = ".".join([part.replace("/", ".") for part in self._scope] + [name])
        tensor = self._graph.initializer.add(name=full, data_type=_onnx_type(value.dtype), dims=value.shape)
        tensor.raw_data = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
        return full

    def constant(self, value: Any, dtype: np.dtype | type | str | None = None) -> str:
        """Write a ``Constant`` node: scalars and short vectors that the exporter inlines. Floats take the graph's dtype."""
        array = np.asarray(value)
        if dtype is None:
            dtype = self.dtype if np.issubdtype(array.dtype, np.floating) else np.int64
        return self.op("Constant", value=numpy_helper.from_array(array.astype(dtype)))

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Write one node with one output and return the output's name."""
        return self.ops(op_type, 1, *inputs, **attributes)[0]

    def ops(self, op_type: str, outputs: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """Write one node with several outputs and return their names."""
        node_name = "/" + "/".join([*self._scope, op_type])
        count = self._used[node_name]
        self._used[node_name] += 1
        if count:
            node_name += f"_{count}"
        results = tuple(f"{node_name}_output_{number}" for number in range(outputs))
        self._graph.node.append(helper.make_node(op_type, list(inputs), results, name=node_name, **attributes))
        return results

    # Spellings shared by the architectures

    def size(self, tensor: str, axis: int, dim: Dim) -> Size:
        """The size of one axis: ``dim`` itself when it is a number, else ``Shape`` and ``Gather`` on the tensor."""
        if isinstance(dim, int):
            return dim
        return self.op("Gather", self.op("Shape", tensor), self.constant(axis), axis=0)

    def shape(self, *sizes: Size) -> str:
        """An int64 vector of sizes: one constant when all are numbers, else ``Unsqueeze`` and ``Concat``."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(list(sizes))
        parts = [
            self.constant([size]) if isinstance(size, int) else self.op("Unsqueeze", size, self.constant([0]))
            for size in sizes
        ]
        return self.op("Concat", *parts, axis=0)

    def reshape(self, tensor: str, *sizes: Size) -> str:
        """``Reshape`` to the given sizes."""
        return self.op("Reshape", tensor, self.shape(*sizes))

    def unsqueeze(self, tensor: str, axis: int) -> str:
        """``Unsqueeze`` along one axis."""
        return self.op("Unsqueeze", tensor, self.constant([axis]))

    def slice(self, tensor: str, start: str, end: str, axis: int) -> str:
        """``Slice`` along one axis; start and end are int64 vectors of one element."""
        return self.op("Slice", tensor, start, end, self.constant([axis]), self.constant([1]))

    def split(self, tensor: str, sizes: Sequence[int], axis: int) -> tuple[str, ...]:
        """``Split`` along one axis into parts of the given sizes."""
        return self.ops("Split", len(sizes), tensor, self.constant(list(sizes)), axis=axis)

    def reduce_mean(self, tensor: str) -> str:
        """Mean over the last axis, which stays: the axes were an attribute before opset 18 and are an input since."""
        if self.opset < 18:
            return self.op("ReduceMean", tensor, axes=[-1], keepdims=1)
        return self.op("ReduceMean", tensor, self.constant([-1]), keepdims=1)

    def cast(self, tensor: str, dtype: np.dtype | type | str) -> str:
        """``Cast``."""
        return self.op("Cast", tensor, to=_onnx_type(dtype))

    def normal(self, *shape: int, std: float = 1.0, mean: float = 0.0) -> np.ndarray:
        """Seeded normal numbers in float32."""
        numbers = self.rng.standard_normal(shape, dtype=np.float32)
        numbers *= np.float32(std)
        numbers += np.float32(mean)
        return numbers

    def model(self, **metadata: object) -> onnx.ModelProto:
        """Close the graph. ``metadata`` goes to ``metadata_props``, which ``sample_inputs`` reads."""
        opset = helper.make_opsetid("", self.opset)
        self._model.ir_version = max(_IR_VERSION, helper.find_min_ir_version_for([opset]))
        self._model.producer_name = "luminal-onnx models"
        self._model.opset_import.append(opset)
        helper.set_model_props(
            self._model, {"builder": self.name, **{key: str(value) for key, value in metadata.items()}}
        )
        return self._model

    def _rename(self, old: str, new: str) -> None:
        for node in self._graph.node:
            for names in (node.input, node.output):
                for position, name in enumerate(names):
                    if name == old:
                        names[position] = new


def _onnx_type(dtype: np.dtype | type | str) -> TensorProto.DataType:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
