"""Layers over a storage of few bits: ordinary modules in plain torch.

layer = LowBitLinear(Int8.of(weight, None), bias, torch.float32)
y = layer(x)                            # x [..., K] -> [..., N]
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from weft.lowbit.storage import LowBitError, Storage


class LowBit(nn.Module):
    """A layer whose weight is a storage, which several layers may share.

    `weight` is decoded at each look: it is there for code that reads a layer's weight.
    """

    like: Tensor  # an empty tensor: `to` casts it, so it tells the dtype that the layer is in

    def __init__(self, storage: Storage, dtype: torch.dtype) -> None:
        super().__init__()
        self.storage = storage
        like = torch.empty(0, dtype=dtype, device=next(iter(storage.state_dict().values())).device)
        self.register_buffer("like", like, persistent=False)

    @property
    def weight(self) -> Tensor:
        return self.storage.weight(self.like.dtype)


class LowBitLinear(LowBit):
    """x [..., K] -> [..., N] in x's dtype, as nn.Linear.

    With activations="int8", x is rounded to int8 by rows, or by rows and groups where the weight
    has groups, and products are summed in integers; else x is never rounded.
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        storage: Storage,
        bias: nn.Parameter | None,
        dtype: torch.dtype,
        activations: str | None = None,
    ) -> None:
        super().__init__(storage, dtype)
        if activations == "int8" and not storage.integers:
            raise LowBitError(
                f'activations="int8" needs integer weights, and {type(storage).__name__} has floats'
            )
        self.out_features, self.in_features = storage.size
        self.activations = activations
        self.register_parameter("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.activations is None:
            bias = None if self.bias is None else self.bias.to(x.dtype)
            return self.storage.linear(x, bias)
        y = self.storage.linear_int8(x.to(torch.float32))
        return (y if self.bias is None else y + self.bias).to(x.dtype)

    def extra_repr(self) -> str:
        end = "" if self.activations is None else f", activations={self.activations!r}"
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}{end}"


class LowBitEmbedding(LowBit):
    """index [...] -> rows [..., K] in the dtype that the layer is in, as nn.Embedding."""

    def forward(self, index: Tensor) -> Tensor:
        return self.storage.rows(index, self.like.dtype)
