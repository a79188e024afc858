"""What the tests export."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from weft.cli.program import Source


class Net(nn.Module):
    """Embedding, attention, a norm and logits: packed weights, and an index that may be wrong."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.norm = nn.Embedding(50, 64), nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        heads = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = self.norm(x + mixed.transpose(1, 2).flatten(2))
        return self.out(F.silu(x)).log_softmax(-1)


def ids(rows: int = 2, length: int = 9) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randint(0, 50, (rows, length))


class Counts(nn.Module):
    """A buffer that a call writes, and a parameter that it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.count = nn.Buffer(torch.zeros(3))
        self.weight = nn.Parameter(torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> Any:
        self.count.add_(x)
        return self.count * 2, self.weight


def views(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Outputs in memory of inputs, of other outputs and of nothing that is returned; a write."""
    y.mul_(2)
    whole = x @ x.t()
    return {"whole": whole, "part": [whole[1:, ::2], x[2:], y], "alone": (x + 1).t()[1:], "n": 3}


def sized(x: torch.Tensor, y: torch.Tensor) -> Any:
    if x.shape[0] > y.shape[1]:
        x = x * 2
    h = (x + y).softmax(-1)
    return h, x.sum(0), h.t() @ x, torch.cat([x, y])


def source(fn: Any, *args: Any, **kwargs: Any) -> Source:
    return Source(fn, args, kwargs, "program")
