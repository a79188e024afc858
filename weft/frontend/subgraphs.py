"""Operators with a body that is a function of numbers: traced into, so that the body is fused.

flex_attention calls its score_mod and mask_mod for every score of (batch, head, query, key). Here
torch.vmap maps them over these axes, and what they compute becomes part of the graph around them;
where that is a mask, blocks of keys that it rules out are skipped. A block mask says again which
blocks mask_mod leaves, so it is not read.
"""

# pyright: reportPrivateUsage=false

import math
from collections.abc import Callable, Mapping, Sequence
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
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(top == -math.inf, 0, top))
    sums = weights.sum(-1, keepdim=True)
    out = torch.ops.weft.weighted(weights.to(q.dtype), v.to(q.dtype)) / torch.where(
        sums == 0, 1, sums
    )
    logarithm = torch.where(sums == 0, -math.inf, top + torch.log(sums))
    out = _permute_strides(out.to(q.dtype), q.stride())
    return out, *(t.squeeze(-1) / math.log(2) for t in (logarithm, top))


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
