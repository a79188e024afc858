"""torch's fused layers of encoders in inference, written in other ops.

nn.TransformerEncoderLayer and nn.MultiheadAttention in eval mode call one operator each, where
their inputs allow it. Attention is scaled dot product attention there; a mask tells which keys are
left out, and a row without any is NaN.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

KEYS = 1  # a mask is [B, L], for all heads and queries; that of other kinds is as scores are


def encoder_layer(
    x: Tensor,
    width: int,
    heads: int,
    qkv: Tensor,
    qkv_bias: Tensor,
    out: Tensor,
    out_bias: Tensor,
    gelu: bool,
    norm_first: bool,
    eps: float,
    *rest: Any,
) -> Tensor:
    """x: [B, L, width]; `rest`: weights of two norms and two products, a mask and its kind."""
    up, up_bias, down, down_bias = rest[4:8]
    mask, kind = (*rest[8:], None, None)[:2]

    def normed(t: Tensor, number: int) -> Tensor:
        weight, bias = rest[2 * number : 2 * number + 2]
        return F.layer_norm(t, (width,), weight, bias, eps)

    def attended(t: Tensor) -> Tensor:
        given = t, t, t, width, heads, qkv, qkv_bias, out, out_bias, mask, False, True, kind
        return multi_head_attention(*given)[0]

    def fed(t: Tensor) -> Tensor:
        inner = F.linear(t, up, up_bias)
        return F.linear(F.gelu(inner) if gelu else F.relu(inner), down, down_bias)

    if norm_first:
        x = x + attended(normed(x, 0))
        return x + fed(normed(x, 1))
    x = normed(x + attended(x), 0)
    return normed(x + fed(x), 1)


def multi_head_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    width: int,
    heads: int,
    qkv: Tensor,
    qkv_bias: Tensor,
    out: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average: bool = True,
    kind: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q, k and v: [B, L, width]. The result, and its weights where they are wanted."""
    parts = zip((q, k, v), qkv.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (F.linear(*part).unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
    scores = q @ k.transpose(-2, -1) / math.sqrt(width // heads)
    if mask is not None:
        mask = mask.to(torch.bool)
        mask = mask[:, None, None, :] if kind == KEYS else mask
        scores = torch.where(mask, -math.inf, scores)
    weights = scores.softmax(-1)
    result = F.linear((weights @ v).transpose(1, 2).flatten(2), out, out_bias)
    if not need_weights:
        return result, None
    return result, weights.mean(1) if average else weights


aten: Any = torch.ops.aten
LAYERS = {
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten._native_multi_head_attention.default: multi_head_attention,
}
