"""Training steps that `python -m bench.train` times: networks of usual kinds, at random weights.

network, inputs, loss = STEPS["MLP"]()      # loss(network, *inputs) is what a step minimises
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

Step = tuple[nn.Module, tuple[Tensor, ...], Callable[..., Tensor]]


def classified(network: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(network(x), labels)


def mlp() -> Step:
    net = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    return net, (torch.randn(256, 784), torch.randint(10, (256,))), classified


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm beside a shortcut."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.beside = nn.Conv2d(width, out, 1, stride) if width != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.one(x)))
        return F.relu(self.norms[1](self.two(y)) + self.beside(x))


def resnet() -> Step:
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1), Residual(32, 32, 1), Residual(32, 64, 2), Residual(64, 128, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    return net, (torch.randn(16, 3, 32, 32), torch.randint(10, (16,))), classified


def convolutions() -> Step:
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(128, 10),
    )  # fmt: skip
    return net, (torch.randn(32, 1, 28, 28), torch.randint(10, (32,))), classified


class UNet(nn.Module):
    """Two levels down and up again."""

    def __init__(self, w: int = 16) -> None:
        super().__init__()

        def twice(a: int, b: int) -> nn.Module:
            convolutions = nn.Conv2d(a, b, 3, 1, 1), nn.Conv2d(b, b, 3, 1, 1)
            return nn.Sequential(convolutions[0], nn.SiLU(), convolutions[1], nn.SiLU())

        self.down = nn.ModuleList([twice(3, w), twice(w, 2 * w), twice(2 * w, 4 * w)])
        ups = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.raise_, self.up = (
            nn.ModuleList(ups),
            nn.ModuleList([twice(4 * w, 2 * w), twice(2 * w, w)]),
        )
        self.last = nn.Conv2d(w, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for block in self.down:
            x = block(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for raise_, up, beside in zip(self.raise_, self.up, kept[-2::-1], strict=True):
            x = up(torch.cat([raise_(x), beside], 1))
        return self.last(x)


def unet() -> Step:
    x = torch.randn(2, 3, 64, 64)
    return UNet(), (x, torch.randn_like(x)), lambda net, x, y: F.mse_loss(net(x), y)


def transformer(kind: str, tokens: int, batch: int, **sizes: Any) -> Step:
    """A language model of transformers, on its own loss."""
    config = transformers.AutoConfig.for_model(kind, **sizes)
    config._attn_implementation = "sdpa" if kind != "t5" else "eager"
    net = {
        "t5": transformers.AutoModelForSeq2SeqLM,
        "bert": transformers.AutoModelForMaskedLM,
    }.get(kind, transformers.AutoModelForCausalLM).from_config(config)
    ids = torch.randint(1, sizes["vocab_size"], (batch, tokens))
    return net, (ids,), lambda net, ids: net(input_ids=ids, labels=ids).loss


HEADS = {"num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 1024}
LLAMA = {**HEADS, "hidden_size": 256, "intermediate_size": 512, "num_key_value_heads": 2}
GPT2 = {"n_embd": 256, "n_layer": 2, "n_head": 4, "vocab_size": 1024, "n_positions": 256}
BERT = {**HEADS, "hidden_size": 256, "intermediate_size": 1024}
T5 = {
    "d_model": 256, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "d_kv": 64,
    "d_ff": 1024, "vocab_size": 1024, "decoder_start_token_id": 0,
}  # fmt: skip


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def lstm() -> Step:
    return Recurrent(), (torch.randn(32, 24, 64), torch.randint(10, (32,))), classified


class Experts(nn.Module):
    """Each token by the two experts of eight that a gate names, all computed densely."""

    def __init__(self, width: int = 128, experts: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.into = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.out = nn.Parameter(torch.randn(experts, 2 * width, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        best, which = self.gate(x).softmax(-1).topk(2)
        share = torch.zeros(len(x), len(self.into)).scatter(1, which, best)
        hidden = F.silu(torch.einsum("nd,edh->enh", x, self.into))
        return torch.einsum("enh,ehd,ne->nd", hidden, self.out, share)


def experts() -> Step:
    x = torch.randn(256, 128)
    return Experts(), (x, torch.randn_like(x)), lambda net, x, y: F.mse_loss(net(x), y)


class Bags(nn.Module):
    """Sums of rows for a bag of words, then two layers."""

    def __init__(self, words: int = 8000, width: int = 128) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(words, width, mode="mean")
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.bag(x))


def bags() -> Step:
    return Bags(), (torch.randint(8000, (512, 32)), torch.randint(10, (512,))), classified


class NNUE(nn.Module):
    """Two views of a position, each the sum of up to 32 columns of 768, squared and clipped."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.EmbeddingBag(769, width, mode="sum", padding_idx=768)
        self.bias, self.out = nn.Parameter(torch.zeros(width)), nn.Linear(2 * width, 1)

    def forward(self, own: Tensor, other: Tensor) -> Tensor:
        both = [self.features(x) + self.bias for x in (own, other)]
        return self.out(torch.cat(both, 1).clamp(0, 1).square())


def nnue(width: int) -> Step:
    def loss(net: nn.Module, own: Tensor, other: Tensor, score: Tensor) -> Tensor:
        return F.mse_loss(net(own, other).sigmoid(), score)

    pieces = torch.arange(32) < torch.randint(4, 33, (4096, 1))
    sides = (torch.where(pieces, torch.randint(768, (4096, 32)), 768) for _ in range(2))
    return NNUE(width), (*sides, torch.rand(4096, 1)), loss


STEPS: dict[str, Callable[[], Step]] = {
    "MLP": mlp,
    "ResNet": resnet,
    "conv net": convolutions,
    "U-Net": unet,
    "Llama": partial(transformer, "llama", 128, 4, **LLAMA),
    "GPT-2, dropout": partial(transformer, "gpt2", 128, 4, **GPT2),
    "BERT, dropout": partial(transformer, "bert", 128, 4, **BERT),
    "T5, dropout": partial(transformer, "t5", 64, 4, **T5),
    "LSTM": lstm,
    "experts": experts,
    "bags of words": bags,
    "NNUE 256": partial(nnue, 256),
    "NNUE 768": partial(nnue, 768),
}
