"""Attention: torch's where that is the same, else its steps; linear attention; rotary embedding.

y, key, value, *_ = Attention(q, k, v, is_causal=1)
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.onnx.table import op
from weft.onnx.types import refuse, stored


def heads(x: Tensor, count: int | None) -> Tensor:
    """[batch, length, heads * size] -> [batch, heads, length, size]; of rank 4 as it is."""
    if x.dim() == 4:
        return x
    if not count:
        refuse("attention over inputs of rank 3 needs q_num_heads and kv_num_heads")
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def merged(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def bias_of(q: Tensor, k: Tensor, mask: Any, words: dict[str, Any]) -> Tensor | None:
    """What is added to the products: -inf where a query does not see a key; None for nothing."""
    rows, columns = q.shape[2], k.shape[2]
    bias: Any = None
    none = torch.full((), -math.inf, dtype=q.dtype, device=q.device)
    if mask is not None:
        bias = torch.where(mask, 0, none) if mask.dtype is torch.bool else mask
        bias = F.pad(bias, [0, columns - mask.shape[-1]], value=-math.inf)
    lengths, left, right = words["lengths"], words["left"], words["right"]
    i = torch.arange(rows, device=q.device)[:, None]
    j = torch.arange(columns, device=q.device)
    first = words["past"] if lengths is None else lengths.reshape(-1, 1, 1, 1) - rows
    seen = []
    if words["causal"]:
        seen.append(j <= i + first)
    if left >= 0:
        seen.append(i + first - j <= left)
    if right >= 0:
        seen.append(j - i - first <= right)
    if lengths is not None:
        seen.append((j < lengths[:, None]).reshape(-1, 1, 1, columns))
    for allowed in seen:
        more = torch.where(allowed, 0, none)
        bias = more if bias is None else bias + more
    return bias


def steps(
    q: Tensor, k: Tensor, v: Tensor, bias: Any, words: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The result, and the products at the stage that the node asks for."""
    root = math.sqrt(words["scale"])
    scores = (q * root) @ (k * root).transpose(-1, -2)
    stages = [scores]
    if words["softcap"] > 0:
        scores = torch.tanh(scores / words["softcap"]) * words["softcap"]
    capped = scores
    added = scores if bias is None else scores + bias
    kind = stored(words["precision"]) if words["precision"] else q.dtype
    weights = torch.softmax(added.to(kind), -1)
    if bias is not None:
        hidden = torch.isneginf(bias.amax(-1, keepdim=True))
        weights = torch.where(hidden, 0, weights)
    weights = weights.to(q.dtype)
    stages += [capped, added, weights]
    return weights @ v, stages[words["stage"]].to(q.dtype)


@op("Attention", since=23)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    """The result, keys and values with those of the past before them, and the products."""
    flat = q.dim() == 3
    q, k, v = heads(q, q_num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    past = 0 if past_key is None else past_key.shape[2]
    k = k if past_key is None else torch.cat([past_key, k], 2)
    v = v if past_value is None else torch.cat([past_value, v], 2)
    kept = k, v
    if q.shape[1] != k.shape[1]:  # each head of keys serves several of queries
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    words: dict[str, Any] = {
        "lengths": lengths, "left": left_window_size, "right": right_window_size, "past": past,
        "causal": is_causal, "scale": scale if scale is not None else 1 / math.sqrt(q.shape[3]),
        "softcap": softcap, "precision": softmax_precision, "stage": qk_matmul_output_mode,
    }  # fmt: skip
    bias = bias_of(q, k, mask, words)
    if outputs < 4 and not softcap and not softmax_precision and q.dtype is torch.float32:
        found = F.scaled_dot_product_attention(q, k, v, bias, scale=words["scale"])
        return (merged(found) if flat else found, *kept)[:outputs]
    found, products = steps(q, k, v, bias, words)
    return (merged(found) if flat else found, *kept, products)[:outputs]


@op("LinearAttention")
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:
    """A matrix of state for each head, which decays and takes in a key and value at each step."""
    if (decay is not None) != ("gated" in update_rule) or (beta is not None) != (
        "delta" in update_rule
    ):
        refuse(f"the update rule {update_rule} and the inputs decay and beta do not fit")
    dtype, size = q.dtype, q.shape[-1] // q_num_heads
    q4, k4 = heads(q, q_num_heads).float(), heads(k, kv_num_heads).float()
    v4 = heads(v, kv_num_heads).float()
    gates = None if decay is None else heads(decay, kv_num_heads).float().exp()
    rates = None if beta is None else beta.float().transpose(1, 2).unsqueeze(-1)
    empty = torch.zeros(k4.shape[0], kv_num_heads, size, v4.shape[-1], device=q.device)
    state = empty if past is None else past.float()
    found = []
    for t in range(q.shape[1]):
        key, value = k4[:, :, t, :, None], v4[:, :, t, None, :]
        if gates is not None:
            state = state * gates[:, :, t, :, None]
        if rates is not None:
            value = rates[:, :, t, None, :] * (value - (state * key).sum(2, keepdim=True))
        state = state + key * value
        seen = state.repeat_interleave(q_num_heads // kv_num_heads, 1)
        found.append(q4[:, :, t, None, :] @ seen)
    result = torch.cat(found, 2) * (scale or 1 / math.sqrt(size))
    return merged(result).to(dtype), state.to(dtype if past is None else past.dtype)
