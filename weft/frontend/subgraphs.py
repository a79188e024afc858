"""Operators with a body that is a function of numbers: traced into, so that the body is fused.

flex_attention calls its score_mod and mask_mod for every score of (batch, head, query, key). Here
torch.vmap maps them over these axes, and what they compute becomes part of the graph around them;
where that is a mask, blocks of keys that it rules out are skipped. Of a block mask the first and
the last block of each row are read: keys before and behind them are skipped, too, where mask_mod
does not tell so by itself, as of documents.
"""

# pyright: reportPrivateUsage=false

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import (
    _math_attention_inner,
    _permute_strides,
    flex_attention,
    flex_attention_backward,
    sdpa_dense_backward,
)
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph

import weft.library.attention  # noqa: F401  # pyright: ignore[reportUnusedImport]  # an operator

Tensors = tuple[torch.Tensor, ...]
MERGED = torch.minimum, torch.maximum


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    score_mod: Callable[..., torch.Tensor],
    block_mask: Sequence[Any],
    scale: float,
    options: Mapping[str, Any],
    *buffers: Tensors,
) -> Tensors:
    """What attention gives, and of each row of scores the logarithm of its sum and its maximum.

    Both to base 2. q is [B, H, M, D]; k and v are [B or 1, H / G, N, D]. Rows that are masked
    whole give zeros. As in torch's kernels, blocks of keys that are masked need not be read: a
    value there that is infinite or NaN, which makes eager's formula NaN, may take no part.
    """
    k, v = (_for_each_query(t, q) for t in (k, v))
    given = q, k, v, score_mod, tuple(block_mask), scale, dict(options), *buffers
    scores = _math_attention_inner(*given)[1]
    if block_mask[3].shape[-1] > 1:
        scores = torch.where(in_blocks(block_mask, *scores.shape[2:]), scores, -math.inf)
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(top == -math.inf, 0, top))
    sums = weights.sum(-1, keepdim=True)
    out = torch.ops.weft.weighted(weights.to(q.dtype), v.to(q.dtype)) / torch.where(
        sums == 0, 1, sums
    )
    logarithm = torch.where(sums == 0, -math.inf, top + torch.log(sums))
    out = _permute_strides(out.to(q.dtype), q.stride())
    return out, *(t.squeeze(-1) / math.log(2) for t in (logarithm, top))


def in_blocks(block_mask: Sequence[Any], rows: int, columns: int) -> torch.Tensor:
    """[B or 1, H or 1, M, N]: the keys from the first block of a query to the last one."""
    partial, whole, (height, width) = block_mask[2:4], block_mask[4:6], block_mask[-3:-1]
    found = [_ends(*part) for part in (partial, whole) if part[0] is not None]
    first, last = (
        reduce(least, ends) for least, ends in zip(MERGED, zip(*found, strict=True), strict=True)
    )
    own = torch.arange(rows, device=first.device) // height
    n = torch.arange(columns, device=first.device)
    first, last = (t.long().index_select(-1, own).unsqueeze(-1) for t in (first, last))
    return (n >= first * width) & (n < last * width + width)


def _ends(count: torch.Tensor, indices: torch.Tensor) -> Tensors:
    """The first and the last block of those that each row of blocks lists."""
    number = torch.arange(indices.shape[-1], device=indices.device)
    listed = number < count.unsqueeze(-1)
    first = torch.where(listed, indices, len(number)).amin(-1)
    return first, torch.where(listed, indices, -1).amax(-1)


def _for_each_query(t: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Keys or values for each batch and head of the queries."""
    t = t.expand(q.shape[0], -1, -1, -1)
    return torch.repeat_interleave(t, q.shape[1] // t.shape[1], dim=1)


def _called(body: Callable[..., Any], _name: str, *operands: Any) -> Any:
    return body(*operands)


# What computes each, in calls that a tracer follows.
TRACED_INTO: Mapping[Any, Callable[..., Any]] = {
    flex_attention: attention,
    flex_attention_backward: sdpa_dense_backward,
    invoke_subgraph: _called,
}
