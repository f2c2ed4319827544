"""GPT-2 with a KV cache, as PyTorch and Optimum export Hugging Face's ``GPT2LMHeadModel``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from .config import BaseConfig, flag, require
from .graph import GraphWriter, Size
from .inputs import sample_inputs
from .layers import gelu_tanh, layer_norm, merge_heads, split_heads, tied_logits

__all__ = ["FULL", "Config", "build", "sample_inputs"]

FULL = {"layers": 12, "hidden": 768, "heads": 12, "vocab": 50257, "seq": 1, "past": 127, "max_positions": 1024}


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the decoder."""

    layers: int = flag(2, "decoder layers")
    hidden: int = flag(32, "width of the residual stream")
    heads: int = flag(4, "attention heads")
    vocab: int = flag(100, "vocabulary size")
    seq: int = flag(4, "new tokens (a default for sample inputs when --dynamic)")
    past: int = flag(5, "cached tokens, may be 0 (a default for sample inputs when --dynamic)")
    max_positions: int = flag(128, "rows of the position embedding")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hidden % self.heads == 0, f"hidden {self.hidden} does not divide by {self.heads} heads")
        require(
            self.past + self.seq <= self.max_positions,
            f"past + seq is {self.past + self.seq}: exceeds max_positions {self.max_positions}",
        )


def build(**flags: object) -> onnx.ModelProto:
    """The decoder with ``Config(**flags)``.

    Inputs: ``input_ids``, ``position_ids`` (int64 [batch, sequence]), ``attention_mask`` (int64 [batch, past + sequence], 1 = visible)
    and per layer ``past_key_values.N.key`` and ``.value`` [batch, heads, past, width]. Outputs: ``logits`` [batch, sequence, vocab] and
    per layer ``present.N.key`` and ``.value`` [batch, heads, past + sequence, width]. With ``dynamic`` the dims are named ``batch``,
    ``sequence`` and ``past_sequence``.
    """
    return _Decoder(Config(**flags)).build()


class _Decoder:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.g = GraphWriter("gpt2", dtype=config.dtype, opset=config.opset, seed=config.seed)
        self.width = config.hidden // config.heads
        if config.dynamic:
            self.dims = ("batch", "sequence", "past_sequence", "past_sequence + sequence")
        else:
            self.dims = (config.batch, config.seq, config.past, config.past + config.seq)

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        batch, sequence, past, total = self.dims
        ids = g.input("input_ids", np.int64, [batch, sequence])
        mask = g.input("attention_mask", np.int64, [batch, total])
        positions = g.input("position_ids", np.int64, [batch, sequence])
        cache = [
            tuple(
                g.input(f"past_key_values.{layer}.{part}", g.dtype, [batch, c.heads, past, self.width])
                for part in ("key", "value")
            )
            for layer in range(c.layers)
        ]
        presents = []
        with g.scope("transformer"):
            # The embedding is also the last layer, whose logits are to be near one.
            words = g.weight("wte.weight", g.normal(c.vocab, c.hidden, std=c.hidden**-0.5))
            places = g.weight("wpe.weight", g.normal(c.max_positions, c.hidden, std=c.hidden**-0.5))
            x = g.op("Add", g.op("Gather", words, ids), g.op("Gather", places, positions))
            bias = self.mask_bias(mask)
            for layer, past_pair in enumerate(cache):
                with g.scope(f"h.{layer}"):
                    x, present = self.layer(x, bias, past_pair)
                presents.append(present)
            x = layer_norm(g, "ln_f", x, c.hidden)
        g.output("logits", tied_logits(g, "lm_head", x, words), g.dtype, [batch, sequence, c.vocab])
        for layer, pair in enumerate(presents):
            for part, tensor in zip(("key", "value"), pair, strict=True):
                g.output(f"present.{layer}.{part}", tensor, g.dtype, [batch, c.heads, total, self.width])
        return g.model(
            vocab_size=c.vocab, batch=c.batch, sequence=c.seq, past_sequence=c.past, max_positions=c.max_positions
        )

    def mask_bias(self, mask: str) -> str:
        """0 where a token may be seen and the most negative finite number where not, shaped [batch, 1, 1, past + sequence]."""
        g = self.g
        wide = g.cast(g.unsqueeze(g.unsqueeze(mask, 1), 2), g.dtype)
        return g.op("Mul", g.op("Sub", g.constant(1.0), wide), g.constant(float(np.finfo(g.dtype).min)))

    def layer(self, x: str, bias: str, past: tuple[str, str]) -> tuple[str, tuple[str, str]]:
        g, c = self.g, self.config
        normed = layer_norm(g, "ln_1", x, c.hidden)
        with g.scope("attn"):
            attended, present = self.attention(normed, bias, past)
        x = g.op("Add", attended, x)
        wide = layer_norm(g, "ln_2", x, c.hidden)
        with g.scope("mlp"):
            wide = gelu_tanh(g, self.conv1d("c_fc", wide, c.hidden, 4 * c.hidden))
            return g.op("Add", x, self.conv1d("c_proj", wide, 4 * c.hidden, c.hidden)), present

    def attention(self, x: str, bias: str, past: tuple[str, str]) -> tuple[str, tuple[str, str]]:
        g, c = self.g, self.config
        projected = self.conv1d("c_attn", x, c.hidden, 3 * c.hidden, gain=1.2)
        query, key, value = (
            split_heads(g, part, self.sizes(part), c.heads, self.width)
            for part in g.split(projected, [c.hidden] * 3, axis=2)
        )
        key = g.op("Concat", past[0], key, axis=2)
        value = g.op("Concat", past[1], value, axis=2)
        scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = g.op("Div", scores, g.constant(math.sqrt(self.width)))
        lowest = g.constant(float(np.finfo(g.dtype).min))
        scores = g.op("Add", g.op("Where", self.causal(query, key), scores, lowest), bias)
        mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
        merged = merge_heads(g, mixed, self.sizes(x), c.hidden)
        return self.conv1d("c_proj", merged, c.hidden, c.hidden), (key, value)

    def causal(self, query: str, key: str) -> str:
        """[1, 1, sequence, past + sequence], true where a key is not later than the query: cut out of a triangle of booleans."""
        g, c = self.g, self.config
        triangle = np.tril(np.ones((1, 1, c.max_positions, c.max_positions), np.bool_))
        _, sequence, past, total = self.dims
        if not c.dynamic:
            return g.constant(triangle[:, :, past:total, :total], np.bool_)
        new, every = g.size(query, 2, sequence), g.size(key, 2, total)
        start, end = (g.unsqueeze(size, 0) for size in (g.op("Sub", every, new), every))
        rows = g.slice(g.weight("bias", triangle), start, end, 2)
        return g.slice(rows, g.constant([0]), end, 3)

    def conv1d(self, name: str, x: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        """Hugging Face's ``Conv1D``, a linear layer whose weight is stored transposed: Gemm on the flattened tokens."""
        g = self.g
        with g.scope(name):
            weight = g.weight("weight", g.normal(inputs, outputs, std=gain * inputs**-0.5))
            bias = g.weight("bias", g.normal(outputs, std=0.1))
            flat = g.op("Gemm", g.reshape(x, -1, inputs), weight, bias, alpha=1.0, beta=1.0)
            return g.reshape(flat, *self.sizes(x), outputs)

    def sizes(self, x: str) -> tuple[Size, Size]:
        batch, sequence, _, _ = self.dims
        return self.g.size(x, 0, batch), self.g.size(x, 1, sequence)
