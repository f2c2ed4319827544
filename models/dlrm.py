"""DLRMv1: bags of embeddings and pairwise products between a bottom and a top MLP, as PyTorch exports it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import onnx

from .config import BaseConfig, flag, require
from .graph import GraphWriter
from .inputs import sample_inputs
from .layers import gemm

__all__ = ["FULL", "Config", "build", "sample_inputs"]

FULL = {
    "tables": 32, "rows": 100_000, "dim": 16, "bag": 4, "bottom": (512, 256, 64), "top": (512, 256), "batch": 2048,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the network."""

    batch: int = flag(3, "batch size (a default for sample inputs when --dynamic)")
    tables: int = flag(3, "embedding tables")
    rows: int = flag(50, "rows of each table")
    dim: int = flag(4, "width of an embedding")
    bag: int = flag(2, "rows that are summed for each sample and table")
    dense: int = flag(13, "dense features")
    bottom: tuple[int, ...] = flag((16,), "widths of the bottom MLP before the last layer, which has `dim`")
    top: tuple[int, ...] = flag((16,), "widths of the top MLP before the last layer, which has 1")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("bottom", "top"):
            sizes = getattr(self, name)
            require(all(size >= 1 for size in sizes), f"{name} is {sizes}: expected positive numbers")


def build(**flags: object) -> onnx.ModelProto:
    """The network with ``Config(**flags)``: ``dense`` [batch, features] and ``indices`` (int64 [tables, batch, bag]) to ``probability`` [batch, 1].

    A bag is a Gather of its rows and their sum, which is what an ``EmbeddingBag`` with bags of one size exports to.
    """
    c = Config(**flags)
    g = GraphWriter("dlrm", dtype=c.dtype, opset=c.opset, seed=c.seed)
    batch = "batch" if c.dynamic else c.batch
    dense = g.input("dense", g.dtype, [batch, c.dense])
    indices = g.input("indices", np.int64, [c.tables, batch, c.bag])
    bottom = _mlp(g, "bot", dense, (c.dense, *c.bottom, c.dim), "Relu")
    features = [bottom, *(_bag(g, c, indices, table) for table in range(c.tables))]
    products = _interaction(g, features)
    count = len(features)
    joined = g.op("Concat", bottom, products, axis=1)
    top = _mlp(g, "top", joined, (c.dim + count * (count - 1) // 2, *c.top, 1), "Sigmoid")
    g.output("probability", top, g.dtype, [batch, 1])
    return g.model(batch=c.batch, table_rows=c.rows)


def _mlp(g: GraphWriter, name: str, x: str, sizes: tuple[int, ...], last: str) -> str:
    """Linear layers of these sizes with ReLU between them and ``last`` after them."""
    layers = list(pairwise(sizes))
    with g.scope(name):
        for number, (inputs, outputs) in enumerate(layers):
            activation = "Relu" if number < len(layers) - 1 else last
            x = gemm(g, f"{name}.{2 * number}", x, inputs, outputs, gain=2**0.5)
            x = g.op(activation, x)
    return x


def _bag(g: GraphWriter, c: Config, indices: str, table: int) -> str:
    """Sums of rows, [batch, dim], of such a scale that products of two of them are near one."""
    with g.scope(f"emb.{table}"):
        weight = g.weight("weight", g.normal(c.rows, c.dim, std=c.bag**-0.5 * c.dim**-0.25))
        bag = g.op("Gather", indices, g.constant(table), axis=0)
        return g.op("ReduceSum", g.op("Gather", weight, bag), g.constant([1]), keepdims=0)


def _interaction(g: GraphWriter, features: list[str]) -> str:
    """The product of every two features, those below the diagonal of [batch, features, features], row by row."""
    count = len(features)
    stacked = g.op("Concat", *(g.unsqueeze(feature, 1) for feature in features), axis=1)
    products = g.op("MatMul", stacked, g.op("Transpose", stacked, perm=[0, 2, 1]))
    rows, columns = np.tril_indices(count, -1)
    flat = g.reshape(products, -1, count * count)
    return g.op("Gather", flat, g.constant(rows * count + columns), axis=1)
