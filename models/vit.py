"""Vision transformer, as PyTorch exports Hugging Face's ``ViTForImageClassification``."""

from __future__ import annotations

from dataclasses import dataclass

import math

import onnx

from .config import BaseConfig, flag, require
from .graph import GraphWriter, Size
from .inputs import sample_inputs
from .layers import (
    conv,
    expand_batch,
    gelu,
    gemm,
    layer_norm,
    linear,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)

__all__ = ["FULL", "Config", "build", "sample_inputs"]

# ViT-B/16
FULL = {"layers": 12, "hidden": 768, "heads": 12, "image": 224, "patch": 16, "classes": 1000}

_EPSILON = 1e-12
_EPSILON_F16 = 1e-5  # 1e-12 is zero in float16


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Sizes of the transformer."""

    layers: int = flag(2, "encoder layers")
    hidden: int = flag(32, "width of the residual stream")
    heads: int = flag(4, "attention heads")
    intermediate: int | None = flag(None, "width of the feed-forward layer (default: 4 x hidden)")
    image: int = flag(16, "height and width of the images")
    patch: int = flag(4, "height and width of a patch")
    channels: int = flag(3, "colour channels")
    classes: int = flag(10, "classes")
    attention: str = flag("sdpa", "attention as F.scaled_dot_product_attention or as eager products", ("sdpa", "eager"))

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hidden % self.heads == 0, f"hidden {self.hidden} does not divide by {self.heads} heads")
        require(self.image % self.patch == 0, f"image {self.image} does not divide by patches of {self.patch}")
        require(self.attention in ("sdpa", "eager"), f"attention is {self.attention!r}: expected sdpa or eager")
        if self.intermediate is None:
            object.__setattr__(self, "intermediate", 4 * self.hidden)


def build(**flags: object) -> onnx.ModelProto:
    """The classifier with ``Config(**flags)``: ``pixel_values`` [batch, channels, image, image] to ``logits`` [batch, classes]."""
    return _Vit(Config(**flags)).build()


class _Vit:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.g = GraphWriter("vit", dtype=config.dtype, opset=config.opset, seed=config.seed)
        self.batch = "batch" if config.dynamic else config.batch
        self.patches = (config.image // config.patch) ** 2
        self.width = config.hidden // config.heads
        self.epsilon = _EPSILON if config.dtype == "float32" else _EPSILON_F16

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        pixels = g.input("pixel_values", g.dtype, [self.batch, c.channels, c.image, c.image])
        with g.scope("vit"):
            with g.scope("embeddings"):
                x = self.embeddings(pixels)
            for layer in range(c.layers):
                with g.scope(f"encoder/layer.{layer}"):
                    x = self.layer(x)
            x = layer_norm(g, "layernorm", x, c.hidden, self.epsilon)
        first = g.op("Gather", x, g.constant(0), axis=1)
        g.output("logits", gemm(g, "classifier", first, c.hidden, c.classes), g.dtype, [self.batch, c.classes])
        return g.model(batch=c.batch)

    def embeddings(self, pixels: str) -> str:
        """Patches as tokens after a class token, with a position for each: [batch, 1 + patches, hidden]."""
        g, c = self.g, self.config
        with g.scope("patch_embeddings"):
            kernel = (c.patch, c.patch)
            x = conv(g, "projection", pixels, c.channels, c.hidden, kernel=kernel, stride=c.patch)
            x = g.op("Transpose", self.flatten(x), perm=[0, 2, 1])
        token = g.weight("cls_token", g.normal(1, 1, c.hidden))
        token = expand_batch(g, token, g.size(pixels, 0, self.batch), (1, c.hidden))
        x = g.op("Concat", token, x, axis=1)
        return g.op("Add", x, g.weight("position_embeddings", g.normal(1, 1 + self.patches, c.hidden, std=0.5)))

    def flatten(self, x: str) -> str:
        """``x.flatten(2)``: the exporter takes the leading sizes off the shape."""
        g, c = self.g, self.config
        if not c.dynamic:
            return g.reshape(x, c.batch, c.hidden, self.patches)
        lead = g.slice(g.op("Shape", x), g.constant([0]), g.constant([2]), 0)
        return g.op("Reshape", x, g.op("Concat", lead, g.constant([-1]), axis=0))

    def layer(self, x: str) -> str:
        g, c = self.g, self.config
        with g.scope("attention"):
            attended = self.attention(layer_norm(g, "layernorm_before", x, c.hidden, self.epsilon))
        x = g.op("Add", attended, x)
        wide = layer_norm(g, "layernorm_after", x, c.hidden, self.epsilon)
        with g.scope("intermediate"):
            wide = gelu(g, linear(g, "dense", wide, c.hidden, c.intermediate))
        with g.scope("output"):
            return g.op("Add", linear(g, "dense", wide, c.intermediate, c.hidden, gain=1.5), x)

    def attention(self, x: str) -> str:
        g, c = self.g, self.config
        # A gain above one on the queries spreads the scores, so that attention is neither uniform nor one-hot.
        query, key, value = (
            split_heads(g, linear(g, name, x, c.hidden, c.hidden, gain=gain), self.sizes(x), c.heads, self.width)
            for name, gain in (("query", 1.5), ("key", 1.0), ("value", 1.0))
        )
        if c.attention == "sdpa":
            mixed = scaled_dot_product_attention(g, query, key, value, self.width, static=not c.dynamic)
        else:
            scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
            scores = g.op("Div", scores, g.constant(math.sqrt(self.width)))
            mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
        return linear(g, "output/dense", merge_heads(g, mixed, self.sizes(x), c.hidden), c.hidden, c.hidden)

    def sizes(self, x: str) -> tuple[Size, Size]:
        return self.g.size(x, 0, self.batch), self.g.size(x, 1, "tokens" if self.config.dynamic else 1 + self.patches)
