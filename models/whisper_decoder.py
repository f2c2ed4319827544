"""Whisper's decoder with caches for self- and cross-attention, as Optimum exports Hugging Face's ``WhisperForConditionalGeneration``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .config import BaseConfig, flag, require
from .graph import GraphWriter, Size
from .inputs import sample_inputs
from .layers import layer_norm, tied_logits
from .whisper_attention import WhisperLayers

__all__ = ["FULL", "Config", "build", "sample_inputs"]

# whisper-base
FULL = {
    "layers": 6, "hidden": 512, "heads": 8, "vocab": 51865, "seq": 1, "past": 63, "encoder_seq": 1500, "max_positions": 448,
}  # fmt: skip

_PARTS = ("key", "value")


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the decoder."""

    layers: int = flag(2, "decoder layers")
    hidden: int = flag(32, "width of the residual stream")
    heads: int = flag(4, "attention heads")
    intermediate: int | None = flag(None, "width of the feed-forward layer (default: 4 x hidden)")
    vocab: int = flag(100, "vocabulary size")
    seq: int = flag(3, "new tokens (a default for sample inputs when --dynamic)")
    past: int = flag(4, "cached tokens, may be 0 (a default for sample inputs when --dynamic)")
    encoder_seq: int = flag(12, "tokens of the encoder (a default for sample inputs when --dynamic)")
    max_positions: int = flag(64, "rows of the position embedding")
    cached: bool = flag(True, "read both caches (a later step); otherwise read the encoder's output and write them")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hidden % self.heads == 0, f"hidden {self.hidden} does not divide by {self.heads} heads")
        if not self.cached:
            object.__setattr__(self, "past", 0)
        require(
            self.past + self.seq <= self.max_positions,
            f"past + seq is {self.past + self.seq}: exceeds max_positions {self.max_positions}",
        )
        if self.intermediate is None:
            object.__setattr__(self, "intermediate", 4 * self.hidden)


def build(**flags: object) -> onnx.ModelProto:
    """The decoder with ``Config(**flags)``.

    A later step (``cached``) reads ``input_ids`` (int64 [batch, sequence]) and per layer ``past_key_values.N.decoder.key``, ``.value``
    [batch, heads, past, width] and ``past_key_values.N.encoder.key``, ``.value`` [batch, heads, encoder_sequence, width]. It writes
    ``logits`` [batch, sequence, vocab] and per layer ``present.N.decoder.key``, ``.value`` [batch, heads, past + sequence, width].
    The first step reads ``input_ids`` and ``encoder_hidden_states`` [batch, encoder_sequence, hidden], and writes
    ``present.N.encoder.key``, ``.value`` too. With ``dynamic`` all these dims are named. Equal seeds give both steps equal weights.
    """
    return _Decoder(Config(**flags)).build()


class _Decoder:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.g = GraphWriter("whisper_decoder", dtype=config.dtype, opset=config.opset, seed=config.seed)
        self.parts = WhisperLayers(self.g, config.hidden, config.heads)
        if config.dynamic:
            self.batch, self.sequence, self.encoder = "batch", "sequence", "encoder_sequence"
            self.past = "past_sequence" if config.cached else 0
            self.total = "past_sequence + sequence" if config.cached else "sequence"
        else:
            self.batch, self.sequence, self.encoder = config.batch, config.seq, config.encoder_seq
            self.past, self.total = config.past, config.past + config.seq
        self.presents: list[tuple[str, str, tuple]] = []

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        ids = g.input("input_ids", np.int64, [self.batch, self.sequence])
        states, caches = "", [{} for _ in range(c.layers)]
        if c.cached:
            for layer, cache in enumerate(caches):
                for kind, length in (("decoder", self.past), ("encoder", self.encoder)):
                    cache[kind] = tuple(
                        g.input(f"past_key_values.{layer}.{kind}.{part}", g.dtype, self.cache_shape(length))
                        for part in _PARTS
                    )
        else:
            states = g.input("encoder_hidden_states", g.dtype, [self.batch, self.encoder, c.hidden])
        with g.scope("model/decoder"):
            # The embedding is also the last layer, whose logits are to be near one.
            words = g.weight("embed_tokens.weight", g.normal(c.vocab, c.hidden, std=c.hidden**-0.5))
            places = g.weight("embed_positions.weight", g.normal(c.max_positions, c.hidden, std=c.hidden**-0.5))
            past = g.size(caches[0]["decoder"][0], 2, self.past) if c.cached else 0
            total = self.sum(past, g.size(ids, 1, self.sequence))
            start, end = (g.unsqueeze(self.scalar(size), 0) for size in (past, total))
            x = g.op("Add", g.op("Gather", words, ids), g.slice(places, start, end, 0))
            bias = self.causal_bias(past, total)
            for layer, cache in enumerate(caches):
                with g.scope(f"layers.{layer}"):
                    x = self.layer(layer, x, states, bias, cache)
            x = layer_norm(g, "layer_norm", x, c.hidden)
        logits = tied_logits(g, "proj_out", x, words)
        g.output("logits", logits, g.dtype, [self.batch, self.sequence, c.vocab])
        for name, tensor, shape in self.presents:
            g.output(name, tensor, g.dtype, shape)
        return g.model(
            vocab_size=c.vocab, batch=c.batch, sequence=c.seq, past_sequence=c.past, encoder_sequence=c.encoder_seq,
            max_positions=c.max_positions,
        )  # fmt: skip

    def causal_bias(self, past: Size, total: Size) -> str:
        """[1, 1, sequence, past + sequence]: the most negative finite number where a key is later than the query, else 0."""
        g = self.g
        one = g.constant(1)
        keys = g.unsqueeze(g.op("Range", g.constant(0), self.scalar(total), one), 0)
        queries = g.unsqueeze(g.op("Range", self.scalar(past), self.scalar(total), one), 1)
        later = g.unsqueeze(g.unsqueeze(g.op("Greater", keys, queries), 0), 0)
        return g.op("Where", later, g.constant(float(np.finfo(g.dtype).min)), g.constant(0.0))

    def layer(self, number: int, x: str, states: str, bias: str, cache: dict[str, tuple[str, str]]) -> str:
        g, c = self.g, self.config
        normed = layer_norm(g, "self_attn_layer_norm", x, c.hidden)
        with g.scope("self_attn"):
            query = self.parts.query(normed, self.sizes(normed))
            pair = self.parts.key_value(normed, self.sizes(normed))
            if "decoder" in cache:
                pair = tuple(g.op("Concat", old, new, axis=2) for old, new in zip(cache["decoder"], pair, strict=True))
            x = g.op("Add", x, self.parts.attend(query, *pair, self.sizes(normed), bias))
        self.keep(number, "decoder", pair, self.total)
        normed = layer_norm(g, "encoder_attn_layer_norm", x, c.hidden)
        with g.scope("encoder_attn"):
            query = self.parts.query(normed, self.sizes(normed))
            if "encoder" in cache:
                self.parts.skip_key_value()
                pair = cache["encoder"]
            else:
                lengths = g.size(states, 0, self.batch), g.size(states, 1, self.encoder)
                pair = self.parts.key_value(states, lengths)
                self.keep(number, "encoder", pair, self.encoder)
            x = g.op("Add", x, self.parts.attend(query, *pair, self.sizes(normed)))
        return self.parts.feed_forward(x, c.intermediate)

    def keep(self, layer: int, kind: str, pair: tuple[str, str], length: object) -> None:
        for part, tensor in zip(_PARTS, pair, strict=True):
            self.presents.append((f"present.{layer}.{kind}.{part}", tensor, self.cache_shape(length)))

    def cache_shape(self, length: object) -> tuple:
        return self.batch, self.config.heads, length, self.parts.width

    def sizes(self, x: str) -> tuple[Size, Size]:
        return self.g.size(x, 0, self.batch), self.g.size(x, 1, self.sequence)

    def sum(self, left: Size, right: Size) -> Size:
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        return self.g.op("Add", self.scalar(left), self.scalar(right))

    def scalar(self, size: Size) -> str:
        return self.g.constant(size) if isinstance(size, int) else size
