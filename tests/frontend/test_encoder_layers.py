"""torch's fused layers of encoders, taken apart: as eager's own, and without a library call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import weft

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
LATER = torch.ones(6, 6, dtype=torch.bool).triu(1)
PADDED = torch.tensor([[False] * 4 + [True] * 2, [False] * 6])
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"src_mask": LATER},
    "padded": {"src_key_padding_mask": PADDED},
    "both": {"src_mask": LATER, "src_key_padding_mask": PADDED},
    "nothing left": {"src_key_padding_mask": torch.ones(2, 6, dtype=torch.bool)},
}


def same(module: nn.Module, *args: Any, **kwargs: Any) -> None:
    module = module.double().eval()
    with torch.no_grad():
        f = weft.compile(module, fallback="error")
        got, wanted = f(*args, **kwargs), module(*args, **kwargs)
    torch.testing.assert_close(got, wanted, equal_nan=True)
    assert not f.report.externs


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layer(mask: str, norm_first: bool, activation: str) -> None:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, activation=activation, batch_first=True, norm_first=norm_first
    )
    same(layer, X.double(), **MASKS[mask])


@pytest.mark.parametrize("need", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("mask", [None, "attn_mask", "key_padding_mask"])
def test_attention(need: bool, average: bool, mask: str | None) -> None:
    torch.manual_seed(1)
    x = X.double()
    masks = {} if mask is None else {mask: LATER if mask == "attn_mask" else PADDED}
    how: Any = {"need_weights": need, "average_attn_weights": average, **masks}
    same(nn.MultiheadAttention(8, 2, batch_first=True), x, x, x, **how)
