"""Llama-style decoder with a KV cache, as PyTorch and Optimum export Hugging Face's ``LlamaForCausalLM``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from .config import BaseConfig, flag, require
from .graph import GraphWriter, Size
from .inputs import sample_inputs

__all__ = ["FULL", "Config", "build", "sample_inputs"]

# TinyLlama-1.1B
FULL = {
    "layers": 22, "hidden": 2048, "heads": 32, "kv_heads": 4, "intermediate": 5632, "vocab": 32000,
    "seq": 1, "past": 127, "max_positions": 2048,
}  # fmt: skip

_EPSILON = 1e-5
_TO_END = np.iinfo(np.int64).max  # the exporter's "until the end" in Slice


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the decoder."""

    layers: int = flag(2, "decoder layers")
    hidden: int = flag(64, "width of the residual stream")
    heads: int = flag(4, "query heads")
    kv_heads: int = flag(2, "key and value heads; each serves heads / kv_heads query heads")
    intermediate: int | None = flag(None, "width of the SwiGLU layer (default: 2 x hidden)")
    vocab: int = flag(128, "vocabulary size")
    seq: int = flag(4, "new tokens (a default for sample inputs when --dynamic)")
    past: int = flag(5, "cached tokens, may be 0 (a default for sample inputs when --dynamic)")
    max_positions: int = flag(512, "rows of the rotary tables")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hidden % self.heads == 0, f"hidden {self.hidden} does not divide by {self.heads} heads")
        require(self.heads % self.kv_heads == 0, f"heads {self.heads} do not divide by {self.kv_heads} kv_heads")
        require(
            (self.hidden // self.heads) % 2 == 0, f"head width {self.hidden // self.heads} is odd: RoPE needs pairs"
        )
        require(
            self.past + self.seq <= self.max_positions,
            f"past + seq is {self.past + self.seq}: exceeds max_positions {self.max_positions}",
        )
        if self.intermediate is None:
            object.__setattr__(self, "intermediate", 2 * self.hidden)


def build(**flags: object) -> onnx.ModelProto:
    """The decoder with ``Config(**flags)``.

    Inputs: ``input_ids``, ``position_ids`` (int64 [batch, sequence]), ``attention_mask`` (int64 [batch, past + sequence], 1 = visible)
    and per layer ``past_key_values.N.key`` and ``.value`` [batch, kv_heads, past, width]. Outputs: ``logits`` [batch, sequence, vocab]
    and per layer ``present.N.key`` and ``.value`` [batch, kv_heads, past + sequence, width]. With ``dynamic`` the dims are named
    ``batch``, ``sequence``, ``past_sequence`` and ``past_sequence + sequence``.
    """
    config = Config(**flags)
    return Decoder("llama", config, width=config.hidden // config.heads, epsilon=_EPSILON).build()


class Decoder:
    """Writes the decoder; its relatives override the parts that differ. ``width`` is that of a head."""

    def __init__(self, name: str, config: Any, *, width: int, epsilon: float) -> None:
        self.config = config
        self.g = GraphWriter(name, dtype=config.dtype, opset=config.opset, seed=config.seed)
        self.width = width
        self.epsilon = epsilon
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
                g.input(f"past_key_values.{layer}.{part}", g.dtype, [batch, c.kv_heads, past, self.width])
                for part in ("key", "value")
            )
            for layer in range(c.layers)
        ]
        presents = []
        with g.scope("model"):
            bias = self.causal_bias(ids, mask, cache[0][0])
            with g.scope("rotary_emb"):
                rotary = self.rotary_tables(positions)
            with g.scope("embed_tokens"):
                x = g.op("Gather", g.weight("weight", g.normal(c.vocab, c.hidden)), ids)
            for layer, past_pair in enumerate(cache):
                with g.scope(f"layers.{layer}"):
                    x, present = self.layer(x, bias, rotary, past_pair)
                presents.append(present)
            with g.scope("norm"):
                x = self.rms_norm(x, c.hidden)
        logits = self.dense("lm_head", x, c.hidden, c.vocab)
        g.output("logits", logits, g.dtype, [batch, sequence, c.vocab])
        for layer, pair in enumerate(presents):
            for part, tensor in zip(("key", "value"), pair, strict=True):
                g.output(f"present.{layer}.{part}", tensor, g.dtype, [batch, c.kv_heads, total, self.width])
        return g.model(
            vocab_size=c.vocab, batch=c.batch, sequence=c.seq, past_sequence=c.past
        )

    def causal_bias(self, ids: str, mask: str, past_key: str) -> str:
        """[batch, 1, sequence, past + sequence]: the most negative finite number where a key is later or masked, else 0."""
        g = self.g
        _, sequence, past, _ = self.dims
        past_size = g.size(past_key, 2, past)
        new_size = g.size(ids, 1, sequence)
        total_size = self.sum(past_size, new_size)
        start, end = self.scalar(past_size), self.scalar(total_size)
        one = g.constant(1)
        keys = g.unsqueeze(g.op("Range", g.constant(0), end, one), 0)
        queries = g.unsqueeze(g.op("Range", start, end, one), 1)
        later = g.unsqueeze(g.unsqueeze(g.op("Less", queries, keys), 0), 0)
        padded = g.op("Equal", g.unsqueeze(g.unsqueeze(mask, 1), 2), g.constant(0))
        lowest = g.constant(float(np.finfo(g.dtype).min))
        return g.op("Where", g.op("Or", later, padded), lowest, g.constant(0.0))

    def rotary_tables(self, positions: str) -> tuple[str, str]:
        """Cosine and sine of each token's angles, [batch, 1, sequence, width]."""
        g, c = self.g, self.config
        frequencies = 10000.0 ** (-np.arange(0, self.width, 2, dtype=np.float64) / self.width)
        angles = np.arange(c.max_positions)[:, None] * frequencies
        angles = np.concatenate([angles, angles], axis=1)
        cos = g.op("Gather", g.weight("cos_cached", np.cos(angles)), positions)
        sin = g.op("Gather", g.weight("sin_cached", np.sin(angles)), positions)
        return g.unsqueeze(cos, 1), g.unsqueeze(sin, 1)

    def layer(self, x: str, bias: str, rotary: tuple[str, str], past: tuple[str, str]) -> tuple[str, tuple[str, str]]:
        g = self.g
        with g.scope("input_layernorm"):
            normed = self.rms_norm(x, self.config.hidden)
        with g.scope("self_attn"):
            context, present = self.attention(normed, bias, rotary, past)
        x = g.op("Add", x, context)
        with g.scope("post_attention_layernorm"):
            normed = self.rms_norm(x, self.config.hidden)
        with g.scope("mlp"):
            return g.op("Add", x, self.feed_forward(normed)), present

    def attention(
        self, x: str, bias: str, rotary: tuple[str, str], past: tuple[str, str]
    ) -> tuple[str, tuple[str, str]]:
        g, c = self.g, self.config
        kv_width = c.kv_heads * self.width
        hidden = c.heads * self.width
        query = self.split_heads("q", self.dense("q_proj", x, c.hidden, hidden, gain=1.5), c.heads)
        key = self.split_heads("k", self.dense("k_proj", x, c.hidden, kv_width), c.kv_heads)
        value = self.split_heads("v", self.dense("v_proj", x, c.hidden, kv_width), c.kv_heads)
        query, key = self.rotate(query, rotary), self.rotate(key, rotary)
        key = g.op("Concat", past[0], key, axis=2)
        value = g.op("Concat", past[1], value, axis=2)
        every_key, every_value = self.repeat_heads(key), self.repeat_heads(value)
        scores = g.op("MatMul", query, g.op("Transpose", every_key, perm=[0, 1, 3, 2]))
        scores = g.op("Add", g.op("Mul", scores, g.constant(self.width**-0.5)), bias)
        weights = self.softmax(scores)
        context = g.op("Transpose", g.op("MatMul", weights, every_value), perm=[0, 2, 1, 3])
        context = g.reshape(context, *self.sizes(context), hidden)
        return self.dense("o_proj", context, hidden, c.hidden), (key, value)

    def split_heads(self, name: str, x: str, heads: int) -> str:
        """[batch, sequence, heads * width] to [batch, heads, sequence, width]; ``name`` is q, k or v."""
        parted = self.g.reshape(x, *self.sizes(x), heads, self.width)
        return self.g.op("Transpose", self.prepare_heads(name, parted), perm=[0, 2, 1, 3])

    def prepare_heads(self, name: str, x: str) -> str:
        """What is done with [batch, sequence, heads, width] before positions are rotated in: nothing here."""
        return x

    def rotate(self, x: str, rotary: tuple[str, str]) -> str:
        """x * cos + rotate_half(x) * sin, where rotate_half swaps the halves of a head and negates the second."""
        g = self.g
        cos, sin = rotary
        half = self.width // 2
        first = g.slice(x, g.constant([0]), g.constant([half]), 3)
        second = g.slice(x, g.constant([half]), g.constant([_TO_END]), 3)
        turned = g.op("Concat", g.op("Neg", second), first, axis=-1)
        return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))

    def repeat_heads(self, x: str) -> str:
        """[batch, kv_heads, total, width] to [batch, heads, total, width], each head repeated in place."""
        g, c = self.g, self.config
        repeats = c.heads // c.kv_heads
        if repeats == 1:
            return x
        batch, total = g.size(x, 0, self.dims[0]), g.size(x, 2, self.dims[3])
        wide = g.op("Expand", g.unsqueeze(x, 2), g.shape(batch, c.kv_heads, repeats, total, self.width))
        return g.reshape(wide, batch, c.heads, total, self.width)

    def softmax(self, scores: str) -> str:
        """Softmax in float32, as the reference model does; the casts exist only in a float16 graph."""
        g = self.g
        if g.dtype == np.float32:
            return g.op("Softmax", scores, axis=-1)
        return g.cast(g.op("Softmax", g.cast(scores, np.float32), axis=-1), g.dtype)

    def feed_forward(self, x: str) -> str:
        g, c = self.g, self.config
        gate = self.dense("gate_proj", x, c.hidden, c.intermediate)
        up = self.dense("up_proj", x, c.hidden, c.intermediate)
        with g.scope("act_fn"):
            gate = g.op("Mul", gate, g.op("Sigmoid", gate))
        return self.dense("down_proj", g.op("Mul", gate, up), c.intermediate, c.hidden, gain=1.5)

    def rms_norm(self, x: str, width: int) -> str:
        """x / sqrt(mean(x^2) + epsilon) * weight, in float32 up to the weight."""
        g = self.g
        wide = x if g.dtype == np.float32 else g.cast(x, np.float32)
        square = g.op("Pow", wide, g.constant(2.0, np.float32))
        mean = g.reduce_mean(square)
        root = g.op("Sqrt", g.op("Add", mean, g.constant(self.epsilon, np.float32)))
        normed = g.op("Mul", wide, g.op("Div", g.constant(1.0, np.float32), root))
        if g.dtype != np.float32:
            normed = g.cast(normed, g.dtype)
        return g.op("Mul", g.weight("weight", g.normal(width, std=0.1, mean=1.0)), normed)

    def dense(self, name: str, x: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        g = self.g
        with g.scope(name):
            return g.op("MatMul", x, g.weight("weight", g.normal(inputs, outputs, std=gain * inputs**-0.5)))

    def sizes(self, x: str) -> tuple[Size, Size]:
        batch, sequence, _, _ = self.dims
        return self.g.size(x, 0, batch), self.g.size(x, 1, sequence)

    def sum(self, left: Size, right: Size) -> Size:
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        return self.g.op("Add", self.scalar(left), self.scalar(right))

    def scalar(self, size: Size) -> str:
        return self.g.constant(size) if isinstance(size, int) else size
