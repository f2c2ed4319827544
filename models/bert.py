"""BERT encoder, as PyTorch exports Hugging Face's ``BertModel``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from .config import BaseConfig, flag, require
from .graph import GraphWriter, Size
from .inputs import sample_inputs

__all__ = ["FULL", "Config", "build", "sample_inputs"]

FULL = {"layers": 12, "hidden": 768, "heads": 12, "seq": 128, "vocab": 30522}

_EPSILON = 1e-12
_EPSILON_F16 = 1e-5  # 1e-12 is zero in float16


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the encoder."""

    layers: int = flag(2, "encoder layers")
    hidden: int = flag(32, "width of the residual stream")
    heads: int = flag(4, "attention heads")
    intermediate: int | None = flag(None, "width of the feed-forward layer (default: 4 x hidden)")
    seq: int = flag(16, "sequence length (a default for sample inputs when --dynamic)")
    vocab: int | None = flag(None, "vocabulary size (default: 100, or BERT's 30522 from hidden 256 on)")
    max_positions: int = flag(512, "rows of the position embedding")
    decompose_layernorm: bool = flag(False, "spell LayerNormalization by ReduceMean, Sub, Pow, ... as before opset 17")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hidden % self.heads == 0, f"hidden {self.hidden} does not divide by {self.heads} heads")
        require(self.seq <= self.max_positions, f"seq {self.seq} exceeds max_positions {self.max_positions}")
        if self.intermediate is None:
            object.__setattr__(self, "intermediate", 4 * self.hidden)
        if self.vocab is None:
            object.__setattr__(self, "vocab", 100 if self.hidden < 256 else 30522)


def build(**flags: object) -> onnx.ModelProto:
    """The encoder with ``Config(**flags)``.

    Inputs ``input_ids``, ``attention_mask``, ``token_type_ids`` (int64 [batch, sequence]); outputs ``last_hidden_state``
    [batch, sequence, hidden] and ``pooler_output`` [batch, hidden].
    """
    config = Config(**flags)
    return _Encoder(config).build()


class _Encoder:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.g = GraphWriter("bert", dtype=config.dtype, opset=config.opset, seed=config.seed)
        self.dims = ("batch", "sequence") if config.dynamic else (config.batch, config.seq)

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        batch, sequence = self.dims
        ids, mask, types = (
            g.input(name, np.int64, [batch, sequence]) for name in ("input_ids", "attention_mask", "token_type_ids")
        )
        bias = self.mask_bias(mask)
        with g.scope("embeddings"):
            x = self.embeddings(ids, types)
        for layer in range(c.layers):
            with g.scope(f"encoder/layer.{layer}"):
                x = self.layer(x, bias)
        with g.scope("pooler"):
            first = g.op("Gather", x, g.constant(0), axis=1)
            with g.scope("dense"):
                weight = g.weight("weight", g.normal(c.hidden, c.hidden, std=c.hidden**-0.5))
                pooled = g.op("Gemm", first, weight, self.bias(c.hidden), transB=1)
            pooled = g.op("Tanh", pooled)
        g.output("last_hidden_state", x, g.dtype, [batch, sequence, c.hidden])
        g.output("pooler_output", pooled, g.dtype, [batch, c.hidden])
        return g.model(vocab_size=c.vocab, batch=c.batch, sequence=c.seq, max_positions=c.max_positions)

    def mask_bias(self, mask: str) -> str:
        """0 where a token may be seen and the most negative finite number where not, shaped [batch, 1, 1, sequence]."""
        g = self.g
        wide = g.cast(g.unsqueeze(g.unsqueeze(mask, 1), 2), g.dtype)
        hidden = g.op("Sub", g.constant(1.0), wide)
        return g.op("Mul", hidden, g.constant(float(np.finfo(g.dtype).min)))

    def embeddings(self, ids: str, types: str) -> str:
        g, c = self.g, self.config
        positions = np.arange(c.max_positions, dtype=np.int64)[None]
        if c.dynamic:
            length = g.shape(g.size(ids, 1, self.dims[1]))
            position_ids = g.slice(g.weight("position_ids", positions), g.constant([0]), length, 1)
        else:
            position_ids = g.constant(positions[:, : c.seq])
        tables = {}
        for table, rows in (("word", c.vocab), ("token_type", 2), ("position", c.max_positions)):
            tables[table] = g.weight(f"{table}_embeddings.weight", g.normal(rows, c.hidden))
        words = g.op("Gather", tables["word"], ids)
        x = g.op("Add", words, g.op("Gather", tables["token_type"], types))
        x = g.op("Add", x, g.op("Gather", tables["position"], position_ids))
        return self.layer_norm(x)

    def layer(self, x: str, bias: str) -> str:
        g, c = self.g, self.config
        with g.scope("attention"):
            with g.scope("self"):
                context = self.attention(x, bias)
            with g.scope("output"):
                x = self.layer_norm(g.op("Add", self.dense("dense", context, c.hidden, c.hidden), x))
        with g.scope("intermediate"):
            wide = self.gelu(self.dense("dense", x, c.hidden, c.intermediate))
        with g.scope("output"):
            return self.layer_norm(g.op("Add", self.dense("dense", wide, c.intermediate, c.hidden), x))

    def attention(self, x: str, bias: str) -> str:
        g, c = self.g, self.config
        width = c.hidden // c.heads
        # A gain above one on the queries spreads the scores, so that attention is neither uniform nor one-hot.
        query = self.dense("query", x, c.hidden, c.hidden, gain=1.5)
        key = self.dense("key", x, c.hidden, c.hidden)
        value = self.dense("value", x, c.hidden, c.hidden)
        query = g.op("Transpose", self.split_heads(query, width), perm=[0, 2, 1, 3])
        key = g.op("Transpose", self.split_heads(key, width), perm=[0, 2, 3, 1])
        value = g.op("Transpose", self.split_heads(value, width), perm=[0, 2, 1, 3])
        scores = g.op("Div", g.op("MatMul", query, key), g.constant(math.sqrt(width)))
        weights = g.op("Softmax", g.op("Add", scores, bias), axis=-1)
        context = g.op("Transpose", g.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        return g.reshape(context, *self.sizes(context), c.hidden)

    def split_heads(self, x: str, width: int) -> str:
        return self.g.reshape(x, *self.sizes(x), self.config.heads, width)

    def sizes(self, x: str) -> tuple[Size, Size]:
        """Batch and sequence as the graph computes them: the exporter asks each tensor anew."""
        batch, sequence = self.dims
        return self.g.size(x, 0, batch), self.g.size(x, 1, sequence)

    def dense(self, name: str, x: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        """A linear layer on a 3-D tensor, which the exporter writes as MatMul by the transposed weight and Add."""
        g = self.g
        with g.scope(name):
            product = g.op("MatMul", x, g.weight("weight", g.normal(inputs, outputs, std=gain * inputs**-0.5)))
            return g.op("Add", self.bias(outputs), product)

    def bias(self, size: int) -> str:
        return self.g.weight("bias", self.g.normal(size, std=0.1))

    def gelu(self, x: str) -> str:
        g = self.g
        with g.scope("intermediate_act_fn"):
            erf = g.op("Erf", g.op("Div", x, g.constant(math.sqrt(2.0))))
            return g.op("Mul", g.op("Mul", x, g.op("Add", erf, g.constant(1.0))), g.constant(0.5))

    def layer_norm(self, x: str) -> str:
        g, c = self.g, self.config
        epsilon = _EPSILON if c.dtype == "float32" else _EPSILON_F16
        with g.scope("LayerNorm"):
            scale = g.weight("weight", g.normal(c.hidden, std=0.1, mean=1.0))
            shift = g.weight("bias", g.normal(c.hidden, std=0.1))
            if not c.decompose_layernorm:
                return g.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)
            centred = g.op("Sub", x, g.reduce_mean(x))
            variance = g.reduce_mean(g.op("Pow", centred, g.constant(2.0)))
            deviation = g.op("Sqrt", g.op("Add", variance, g.constant(epsilon)))
            return g.op("Add", g.op("Mul", g.op("Div", centred, deviation), scale), shift)
