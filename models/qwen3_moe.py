"""Qwen3-style mixture-of-experts decoder with a KV cache, as PyTorch and Optimum export Hugging Face's ``Qwen3MoeForCausalLM``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .config import BaseConfig, flag, require
from .inputs import sample_inputs
from .layers import silu
from .llama import Decoder

__all__ = ["FULL", "Config", "build", "sample_inputs"]

# One layer of Qwen3-30B-A3B, which has 48.
FULL = {
    "layers": 1, "hidden": 2048, "heads": 32, "kv_heads": 4, "head_width": 128, "experts": 128, "chosen": 8,
    "intermediate": 768, "vocab": 151936, "seq": 1, "past": 127,
}  # fmt: skip

_EPSILON = 1e-6
_THETA = 1e6


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the decoder."""

    layers: int = flag(1, "decoder layers")
    hidden: int = flag(32, "width of the residual stream")
    heads: int = flag(4, "query heads")
    kv_heads: int = flag(2, "key and value heads; each serves heads / kv_heads query heads")
    head_width: int = flag(16, "width of a head")
    experts: int = flag(6, "experts of a layer")
    chosen: int = flag(2, "experts that serve one token")
    intermediate: int = flag(24, "width of an expert")
    vocab: int = flag(100, "vocabulary size")
    seq: int = flag(3, "new tokens (a default for sample inputs when --dynamic)")
    past: int = flag(4, "cached tokens, may be 0 (a default for sample inputs when --dynamic)")
    routing: str = flag(
        "gather", "gather the weights of the chosen experts, or run all and mask (dense)", ("gather", "dense")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.heads % self.kv_heads == 0, f"heads {self.heads} do not divide by {self.kv_heads} kv_heads")
        require(self.head_width % 2 == 0, f"head_width {self.head_width} is odd: RoPE needs pairs")
        require(self.chosen <= self.experts, f"chosen is {self.chosen}: there are {self.experts} experts")
        require(self.routing in ("gather", "dense"), f"routing is {self.routing!r}: expected gather or dense")


def build(**flags: object) -> onnx.ModelProto:
    """The decoder with ``Config(**flags)``. Inputs and outputs are those of ``llama``."""
    return _MoeDecoder(Config(**flags)).build()


class _MoeDecoder(Decoder):
    """A Llama decoder but for normalised heads, angles that are computed as it runs, and experts."""

    def __init__(self, config: Config) -> None:
        super().__init__("qwen3_moe", config, width=config.head_width, epsilon=_EPSILON)

    def rotary_tables(self, positions: str) -> tuple[str, str]:
        """Cosine and sine of each token's angles, [batch, 1, sequence, width], in float32 whatever the graph's dtype."""
        g = self.g
        frequencies = _THETA ** (-np.arange(0, self.width, 2, dtype=np.float64) / self.width)
        column = g.constant(frequencies.reshape(1, -1, 1), np.float32)
        places = g.cast(g.unsqueeze(positions, 1), np.float32)
        angles = g.op("Transpose", g.op("MatMul", column, places), perm=[0, 2, 1])
        angles = g.op("Concat", angles, angles, axis=-1)
        tables = (g.op("Cos", angles), g.op("Sin", angles))
        if g.dtype != np.float32:
            tables = tuple(g.cast(table, g.dtype) for table in tables)
        return tuple(g.unsqueeze(table, 1) for table in tables)

    def prepare_heads(self, name: str, x: str) -> str:
        """RMSNorm of each query and key head."""
        if name == "v":
            return x
        with self.g.scope(f"{name}_norm"):
            return self.rms_norm(x, self.width)

    def feed_forward(self, x: str) -> str:
        """The weighted outputs of the experts that a token's router logits choose, [batch, sequence, hidden]."""
        g, c = self.g, self.config
        tokens = g.reshape(x, -1, c.hidden)
        shares, chosen = self.route(tokens)
        # Both kinds of expert in one weight: gate and up side by side.
        both = g.weight("experts.gate_up_proj", g.normal(c.experts, c.hidden, 2 * c.intermediate, std=c.hidden**-0.5))
        std = 2 * c.intermediate**-0.5  # products of two activations are small
        down = g.weight("experts.down_proj", g.normal(c.experts, c.intermediate, c.hidden, std=std))
        with g.scope("experts"):
            if c.routing == "gather":
                mixed = self.gathered_experts(tokens, shares, chosen, both, down)
            else:
                mixed = self.masked_experts(tokens, shares, chosen, both, down)
        return g.reshape(mixed, *self.sizes(x), c.hidden)

    def route(self, tokens: str) -> tuple[str, str]:
        """The shares of the chosen experts, which sum to one, and their numbers: both [tokens, chosen]."""
        g, c = self.g, self.config
        # A gain above one makes experts differ in their shares.
        logits = self.dense("gate", tokens, c.hidden, c.experts, gain=1.5)
        probabilities = g.op("Softmax", logits if g.dtype == np.float32 else g.cast(logits, np.float32), axis=1)
        largest, chosen = g.ops("TopK", 2, probabilities, g.constant([c.chosen]), axis=-1, largest=1, sorted=1)
        total = g.op("ReduceSum", largest, g.constant([-1]), keepdims=1)
        shares = g.op("Div", largest, total)
        return (shares if g.dtype == np.float32 else g.cast(shares, g.dtype)), chosen

    def gathered_experts(self, tokens: str, shares: str, chosen: str, both: str, down: str) -> str:
        """Each token times its own experts' weights: [tokens, chosen, 1, width] at a time."""
        g = self.g
        rows = g.unsqueeze(g.unsqueeze(tokens, 1), 1)
        inner = self.gated(g.op("MatMul", rows, g.op("Gather", both, chosen, axis=0)))
        outputs = g.op("Squeeze", g.op("MatMul", inner, g.op("Gather", down, chosen, axis=0)), g.constant([2]))
        return g.op("ReduceSum", g.op("Mul", outputs, g.unsqueeze(shares, 2)), g.constant([1]), keepdims=0)

    def masked_experts(self, tokens: str, shares: str, chosen: str, both: str, down: str) -> str:
        """All tokens through all experts, [experts, tokens, width]; the shares of those not chosen are zero."""
        g, c = self.g, self.config
        inner = self.gated(g.op("MatMul", g.unsqueeze(tokens, 0), both))
        outputs = g.op("MatMul", inner, down)
        count = g.size(tokens, 0, self.dims[0] * self.dims[1] if not c.dynamic else "tokens")
        nothing = g.op("Expand", g.constant([0.0]), g.shape(count, c.experts))
        every = g.op("ScatterElements", nothing, chosen, shares, axis=1)
        column = g.unsqueeze(g.op("Transpose", every, perm=[1, 0]), 2)
        return g.op("ReduceSum", g.op("Mul", outputs, column), g.constant([0]), keepdims=0)

    def gated(self, wide: str) -> str:
        gate, up = self.g.split(wide, [self.config.intermediate] * 2, axis=-1)
        return self.g.op("Mul", silu(self.g, gate), up)
