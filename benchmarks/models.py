"""The models as torch modules with seeded weights and inputs; building a row twice gives the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from benchmarks.rows import Row

SEED = 0


@dataclass
class Workload:
    """A module on the CPU, in evaluation mode, and what it is fed.

    `inputs` are in order of the module's arguments, by name; `images` says that memory layout is free to choose.
    Of each of `tables` a run reads only `lookups` rows.
    """

    module: nn.Module
    inputs: dict[str, Tensor]
    images: bool = False
    tables: tuple[nn.Module, ...] = ()
    lookups: int = 0


class Bert(nn.Module):
    """BERT-base without the pooler, its mask all ones."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.bert = BertModel(BertConfig(), add_pooling_layer=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.bert(ids).last_hidden_state


class LlamaLayer(nn.Module):
    """One layer of Llama-3-8B for a single new token; the caches grow by concatenation and are returned."""

    WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN = 4096, 32, 8, 128, 14336

    def __init__(self) -> None:
        super().__init__()

        def linear(inner: int, outer: int) -> nn.Linear:
            return nn.Linear(inner, outer, bias=False)

        self.q = linear(self.WIDTH, self.HEADS * self.HEAD)
        self.k = linear(self.WIDTH, self.KV_HEADS * self.HEAD)
        self.v = linear(self.WIDTH, self.KV_HEADS * self.HEAD)
        self.o = linear(self.HEADS * self.HEAD, self.WIDTH)
        self.gate, self.up = linear(self.WIDTH, self.HIDDEN), linear(self.WIDTH, self.HIDDEN)
        self.down = linear(self.HIDDEN, self.WIDTH)
        self.norm1 = nn.Parameter(torch.ones(self.WIDTH))
        self.norm2 = nn.Parameter(torch.ones(self.WIDTH))

    @staticmethod
    def rms(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = self.HEAD // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch = x.shape[0]
        h = self.rms(x, self.norm1)
        q = self.q(h).view(batch, 1, self.HEADS, self.HEAD).transpose(1, 2)
        k = self.k(h).view(batch, 1, self.KV_HEADS, self.HEAD).transpose(1, 2)
        v = self.v(h).view(batch, 1, self.KV_HEADS, self.HEAD).transpose(1, 2)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        a = nn.functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(batch, 1, -1))
        h = self.rms(x, self.norm2)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h)), keys, values


class Llama(nn.Module):
    """Four bare layers: hidden state in, hidden state and eight caches out."""

    LAYERS = 4

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LlamaLayer() for _ in range(self.LAYERS))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        grown: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            x, keys, values = layer(x, caches[2 * number], caches[2 * number + 1], cos, sin)
            grown += [keys, values]
        return (x, *grown)


class Bag(nn.EmbeddingBag):
    """A table whose rows are summed by bags. ONNX has no such operator: `exporting` writes it as gather and sum."""

    exporting = False

    def forward(self, index: Tensor) -> Tensor:
        if Bag.exporting:
            return nn.functional.embedding(index, self.weight).sum(1)
        return super().forward(index)


class Dlrm(nn.Module):
    """DLRMv1: bottom MLP, one bag a table, pairwise products of all features, top MLP."""

    DIM, BAG, TABLE_ROWS = 16, 4, 100_000

    def __init__(self, tables: int) -> None:
        super().__init__()
        features = tables + 1
        self.bottom = mlp((13, 512, 256, 64, self.DIM), nn.ReLU())
        self.top = mlp((self.DIM + features * (features - 1) // 2, 512, 256, 1), nn.Sigmoid())
        self.tables = nn.ModuleList(Bag(self.TABLE_ROWS, self.DIM, mode="sum") for _ in range(tables))
        first, second = torch.tril_indices(features, features, -1)
        self.register_buffer("first", first)
        self.register_buffer("second", second)

    def forward(self, dense: Tensor, index: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        features = torch.stack([bottom, *(table(index[k]) for k, table in enumerate(self.tables))], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        return self.top(torch.cat([bottom, products[:, self.first, self.second]], 1))


def mlp(sizes: tuple[int, ...], last: nn.Module) -> nn.Sequential:
    """Return linear layers of these sizes with ReLU between them and `last` after them."""
    layers: list[nn.Module] = []
    for inner, outer in pairwise(sizes):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers[:-1], last)


def bert(batch: int, length: int) -> Workload:
    module = Bert()
    words = module.bert.embeddings.word_embeddings
    inputs = {"ids": torch.randint(0, 30000, (batch, length))}
    return Workload(module, inputs, tables=(words,), lookups=batch * length)


def vit(batch: int) -> Workload:
    import torchvision

    module = torchvision.models.vit_b_16(weights=None)
    return Workload(module, {"image": torch.randn(batch, 3, 224, 224)}, images=True)


def resnet50(batch: int) -> Workload:
    import torchvision

    return Workload(torchvision.models.resnet50(weights=None), {"image": torch.randn(batch, 3, 224, 224)}, images=True)


def llama(batch: int, cached: int) -> Workload:
    module = Llama()
    inputs = {"x": torch.randn(batch, 1, LlamaLayer.WIDTH)}
    angle = torch.randn(1, LlamaLayer.HEAD)
    inputs |= {"cos": angle.cos(), "sin": angle.sin()}
    shape = (batch, LlamaLayer.KV_HEADS, cached, LlamaLayer.HEAD)
    for number in range(Llama.LAYERS):
        inputs |= {f"keys{number}": torch.randn(shape), f"values{number}": torch.randn(shape)}
    return Workload(module, inputs)


def dlrm(tables: int, batch: int) -> Workload:
    inputs = {
        "dense": torch.randn(batch, 13),
        "index": torch.randint(0, Dlrm.TABLE_ROWS, (tables, batch, Dlrm.BAG)),
    }
    module = Dlrm(tables)
    return Workload(module, inputs, tables=tuple(module.tables), lookups=batch * Dlrm.BAG)


BUILDERS: dict[str, Callable[..., Workload]] = {
    "bert": bert,
    "vit": vit,
    "resnet50": resnet50,
    "llama": llama,
    "dlrm": dlrm,
}


def build(row: Row) -> Workload:
    """Return the row's workload on the CPU, weights and floating inputs in the row's dtype."""
    torch.manual_seed(SEED)
    workload = BUILDERS[row.model](*row.sizes)
    for parameter in workload.module.parameters():
        # Untrained biases are zeros. Torch's exporter then merges those of unequal dtypes, and a lost bias would not show.
        if not parameter.any():
            nn.init.normal_(parameter, std=0.02)
    dtype = getattr(torch, row.dtype)
    workload.module = workload.module.eval().to(dtype).requires_grad_(False)
    workload.inputs = {
        name: value.to(dtype) if value.is_floating_point() else value for name, value in workload.inputs.items()
    }
    return workload
