"""Attention as Whisper's encoder and decoder have it: scaled queries, keys without a bias."""

from __future__ import annotations

from dataclasses import dataclass

from .graph import GraphWriter, Size
from .layers import gelu, layer_norm, linear, merge_heads, split_heads


@dataclass(frozen=True)
class WhisperLayers:
    """The parts of a layer, for one width and number of heads; ``Size`` pairs are batch and length."""

    g: GraphWriter
    hidden: int
    heads: int

    @property
    def width(self) -> int:
        return self.hidden // self.heads

    def query(self, x: str, sizes: tuple[Size, Size]) -> str:
        """[batch, heads, length, width], divided by the root of the width before heads are split."""
        # A gain above one spreads the scores, so that attention is neither uniform nor one-hot.
        scaled = linear(self.g, "q_proj", x, self.hidden, self.hidden, gain=1.5)
        scaled = self.g.op("Mul", scaled, self.g.constant(self.width**-0.5))
        return split_heads(self.g, scaled, sizes, self.heads, self.width)

    def key_value(self, x: str, sizes: tuple[Size, Size]) -> tuple[str, str]:
        """Keys and values, each [batch, heads, length, width]."""
        key = linear(self.g, "k_proj", x, self.hidden, self.hidden, bias=False)
        value = linear(self.g, "v_proj", x, self.hidden, self.hidden)
        return (
            split_heads(self.g, key, sizes, self.heads, self.width),
            split_heads(self.g, value, sizes, self.heads, self.width),
        )

    def skip_key_value(self) -> None:
        """Draw the weights of ``key_value`` without writing it, so that what is drawn later is the same."""
        for shape in ((self.hidden, self.hidden), (self.hidden, self.hidden), (self.hidden,)):
            self.g.normal(*shape)

    def attend(self, query: str, key: str, value: str, sizes: tuple[Size, Size], bias: str = "") -> str:
        """The values mixed and projected, [batch, length, hidden]; ``bias`` is added to the scores."""
        g = self.g
        scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        if bias:
            scores = g.op("Add", scores, bias)
        mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
        return linear(g, "out_proj", merge_heads(g, mixed, sizes, self.hidden), self.hidden, self.hidden)

    def feed_forward(self, x: str, intermediate: int) -> str:
        """x plus its feed-forward layer."""
        wide = layer_norm(self.g, "final_layer_norm", x, self.hidden)
        wide = linear(self.g, "fc1", wide, self.hidden, intermediate)
        with self.g.scope("activation_fn"):
            wide = gelu(self.g, wide)
        return self.g.op("Add", x, linear(self.g, "fc2", wide, intermediate, self.hidden, gain=1.5))
