"""A decoder layer of TinyLlama with weights of few bits, for `weft bench cpu --quantized`.

row = ROWS["int4 g32"]
layer = row.layer(torch.manual_seed(0))             # [1, rows, 2048] -> the same shape
layer(*given(PHASES["decode"], row.dtype))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HIDDEN, INNER, HEADS, KEY_HEADS = 2048, 5632, 32, 4
HEAD = HIDDEN // HEADS
GROUP = 32
ROTATED = 400e6  # bytes of weights that a round goes over: more than the last cache holds


@dataclass(frozen=True)
class Phase:
    """How many rows a call has, and how many positions are cached before them."""

    rows: int
    cached: int


PHASES = {"decode": Phase(1, 512), "prefill": Phase(128, 0)}


class Layer(nn.Module):
    """Rotary attention of few keys and a gated MLP; `linear(K, N)` makes its linear layers."""

    def __init__(self, linear: Callable[[int, int], nn.Module]) -> None:
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


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def given(phase: Phase, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The arguments of a Layer, the same for all backends."""
    made = torch.Generator().manual_seed(1)
    x = torch.randn(1, phase.rows, HIDDEN, generator=made)
    places = torch.arange(phase.cached, phase.cached + phase.rows)[:, None]
    angles = places * 10000 ** -(torch.arange(HEAD) % (HEAD // 2) * 2 / HEAD)
    cache = [torch.randn(1, KEY_HEADS, phase.cached, HEAD, generator=made) for _ in "kv"]
    return tuple(
        t.to(dtype) for t in (x, angles.cos(), angles.sin(), *(cache if phase.cached else ()))
    )


def dense(k: int, n: int) -> nn.Linear:
    """A Linear whose outputs are as large as its inputs."""
    made = nn.Linear(k, n, bias=False)
    nn.init.normal_(made.weight, std=1 / math.sqrt(k))
    return made


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [..., n] -> int8 codes and scales [..., 1]: the largest magnitude is 127."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().clamp(-127, 127).to(torch.int8), scale


def int8_product(x: Tensor, codes: Tensor) -> Tensor:
    """int8 [..., K] and [N, K] -> int32 [..., N]; eager has a fast kernel of it."""
    if torch.compiler.is_compiling():
        return x.to(torch.int32) @ codes.to(torch.int32).T
    return torch.ops.aten._int_mm(x.flatten(0, -2), codes.T).unflatten(0, x.shape[:-1])


class Int8(nn.Module):
    """codes i8[N, K], scale [N]; with `activations`, inputs are rounded to int8 by rows."""

    def __init__(self, k: int, n: int, activations: bool = False) -> None:
        super().__init__()
        codes, scale = rounded(dense(k, n).weight.detach())
        self.activations = activations
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale.squeeze(-1))

    def forward(self, x: Tensor) -> Tensor:
        codes, scale = self.get_buffer("codes"), self.get_buffer("scale")
        if not self.activations:
            return F.linear(x, codes.to(x.dtype)) * scale
        q, of_rows = rounded(x)
        return int8_product(q, codes).to(x.dtype) * of_rows * scale


class Int4(nn.Module):
    """codes u8[N, K / 32, 16], scale [N, K / 32]: byte j holds elements j (low) and j + 16."""

    def __init__(self, k: int, n: int, activations: bool = False) -> None:
        super().__init__()
        w = dense(k, n).weight.detach().unflatten(-1, (-1, GROUP))
        scale = w.gather(-1, w.abs().argmax(-1, keepdim=True)) / -8
        low, high = ((w / scale).round() + 8).clamp(0, 15).to(torch.uint8).chunk(2, -1)
        self.activations = activations
        self.register_buffer("codes", low | high << 4)
        self.register_buffer("scale", scale.squeeze(-1))

    def forward(self, x: Tensor) -> Tensor:
        codes, scale = self.get_buffer("codes"), self.get_buffer("scale")
        halves = torch.cat((codes & 15, codes >> 4), -1)
        if not self.activations:
            return F.linear(x, ((halves.to(x.dtype) - 8) * scale[..., None]).flatten(-2))
        q, of_groups = rounded(x.unflatten(-1, (-1, GROUP)))
        sums = torch.einsum("...gk,ngk->...ng", q.to(torch.int32), halves.to(torch.int32) - 8)
        return (sums.to(x.dtype) * scale * of_groups.transpose(-1, -2)).sum(-1)


def int8_rounded(k: int, n: int) -> nn.Module:
    return Int8(k, n, activations=True)


def int4_rounded(k: int, n: int) -> nn.Module:
    return Int4(k, n, activations=True)


@dataclass(frozen=True)
class Row:
    """A kind of weights: bits of one with its share of scales, the dtype of weft's activations, and
    whether they are rounded, so that products are int8's; keys of peers are in lowbit_peers.py."""

    linear: Callable[[int, int], nn.Module]
    bits: float
    dtype: torch.dtype
    rounds: bool = False

    @property
    def bytes(self) -> float:
        """Bytes of the weights of a layer."""
        weights = HIDDEN * (2 * HIDDEN + 2 * KEY_HEADS * HEAD + 3 * INNER)
        return weights * self.bits / 8

    @property
    def layers(self) -> int:
        """How many layers one round of decoding goes over."""
        return math.ceil(ROTATED / self.bytes)

    def layer(self, seed: int) -> nn.Module:
        """A layer of random weights, in the dtype of its activations; scales are kept in it too."""
        torch.manual_seed(seed)
        return Layer(self.linear).eval().requires_grad_(False).to(self.dtype)


BF16, F32 = torch.bfloat16, torch.float32
ROWS = {
    "bf16": Row(dense, 16, BF16),
    "int8": Row(Int8, 8, BF16),
    "int4 g32": Row(Int4, 4.5, BF16),
    "int4 g32, int8 activations": Row(int4_rounded, 4.5, F32, rounds=True),
    "int8, int8 activations": Row(int8_rounded, 8, F32, rounds=True),
}


def dense_layer(seed: int) -> nn.Module:
    """The layer of these weights before they were rounded, in f32."""
    torch.manual_seed(seed)
    return Layer(dense).eval().requires_grad_(False)


def flops(phase: Phase) -> float:
    """Operations of a layer's linear layers, a multiply-add as two."""
    return 2 * phase.rows * ROWS["int8"].bytes
