"""A decoder layer of TinyLlama with weights of few bits, for `weft bench cpu --quantized`.

row = ROWS["int4"]
layer = row.layer()                                 # x [1, rows, 2048] -> the same shape
layer(*arguments(PHASES["decode"], row.dtype))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft

HIDDEN, INNER, HEADS, KEY_HEADS = 2048, 5632, 32, 4
HEAD = HIDDEN // HEADS
GROUP = 32  # of int4


@dataclass(frozen=True)
class Phase:
    """How many rows a call has, and how many positions are cached before them."""

    rows: int
    cached: int


PHASES = {"decode": Phase(1, 512), "prefill": Phase(128, 0)}


class Layer(nn.Module):
    """Rotary attention of few keys and a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        keys = KEY_HEADS * HEAD
        self.q, self.k, self.v = (linear(HIDDEN, n) for n in (HIDDEN, keys, keys))
        self.o, self.down = linear(HIDDEN, HIDDEN), linear(INNER, HIDDEN)
        self.gate, self.up = linear(HIDDEN, INNER), linear(HIDDEN, INNER)
        self.first, self.second = nn.RMSNorm(HIDDEN, 1e-5), nn.RMSNorm(HIDDEN, 1e-5)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, keys: Tensor | None = None,
        values: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """x [1, rows, HIDDEN], cos and sin [rows, HEAD], the cache [1, KEY_HEADS, cached, HEAD]."""
        h = self.first(x)
        q, k, v = (f(h).unflatten(-1, (-1, HEAD)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if keys is not None and values is not None:
            k, v = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=keys is None, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def linear(k: int, n: int) -> nn.Linear:
    """A Linear whose outputs are as large as its inputs."""
    made = nn.Linear(k, n, bias=False)
    nn.init.normal_(made.weight, std=1 / math.sqrt(k))
    return made


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def arguments(phase: Phase, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The arguments of a Layer, the same for all backends."""
    made = torch.Generator().manual_seed(1)
    x = torch.randn(1, phase.rows, HIDDEN, generator=made)
    places = torch.arange(phase.cached, phase.cached + phase.rows)[:, None]
    angles = places * 10000 ** -(torch.arange(HEAD) % (HEAD // 2) * 2 / HEAD)
    cache = [torch.randn(1, KEY_HEADS, phase.cached, HEAD, generator=made) for _ in "kv"]
    return tuple(
        t.to(dtype) for t in (x, angles.cos(), angles.sin(), *(cache if phase.cached else ()))
    )


def dense_layer() -> nn.Module:
    """The layer before its weights are rounded, in f32."""
    torch.manual_seed(0)
    return Layer().eval().requires_grad_(False)


def weights() -> int:
    """How many weights the linear layers have."""
    return HIDDEN * (2 * HIDDEN + 2 * KEY_HEADS * HEAD + 3 * INNER)


@dataclass(frozen=True)
class Row:
    """Weights as `weft.quantize` stores them, or dense; `bits` of one, with its share of scales.

    `dtype` is that of activations.
    """

    bits: float
    dtype: torch.dtype
    kind: Literal["int8", "int4", "fp8"] | None = None
    activations: Literal["int8"] | None = None

    @property
    def bytes(self) -> float:
        """Bytes of the weights of a layer."""
        return weights() * self.bits / 8

    def layer(self) -> nn.Module:
        made = dense_layer()
        if self.kind is not None:
            weft.quantize(made, self.kind, activations=self.activations)
        return made.to(self.dtype)


BF16, F32 = torch.bfloat16, torch.float32
ROWS = {
    "fp32": Row(32, F32),
    "bf16": Row(16, BF16),
    "fp8": Row(8, BF16, "fp8"),
    "int8": Row(8, BF16, "int8"),
    "int4": Row(4.5, BF16, "int4"),
    "int8, int8 activations": Row(8, F32, "int8", "int8"),
    "int4, int8 activations": Row(4.5, F32, "int4", "int8"),
}


def operations(phase: Phase) -> int:
    """Of a layer's linear layers, a multiply-add as two."""
    return 2 * phase.rows * weights()
