"""Rows of scaled dot product attention: softmax(q k^T * scale + mask) v, normalised at the end.

The sum of weights divides the result, not the weights, so one pass over the keys can do it all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.core.types import boolean
from weft.frontend.aten.table import Row, require, rows
from weft.scalar.monoid import MAX
from weft.scalar.ops import apply, constant, floordiv, ge
from weft.tensor.build import (
    Tensor,
    along,
    cast,
    eq,
    exp,
    index_of,
    log,
    matmul,
    reduce,
    reshape,
    total,
    transpose,
    where,
)
from weft.tensor.ops import position

INFINITY = math.inf


class Attention(NamedTuple):
    out: Tensor
    weights: Tensor  # before division by their sum
    sums: Tensor
    top: Tensor


def scores_of(
    q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> Tensor:
    """q k^T * scale, masked: minus infinity, or the mask's own numbers added."""
    scores = matmul(q, transpose(k)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        r = scores.rank
        seen = index_of(scores.shape, apply(ge, position(r - 2), position(r - 1)))
        scores = where(seen, scores, -INFINITY)
    if mask is not None:
        scores = where(mask, scores, -INFINITY) if mask.dtype is boolean else scores + mask
    return scores


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> Attention:
    """A row whose keys are all masked gives zeros."""
    scores = scores_of(q, k, mask, causal, scale)
    keys = (scores.rank - 1,)
    top = reduce(MAX, scores, keys, keep=True)
    if mask is not None:
        top = where(eq(top, -INFINITY), 0.0, top)
    weights = exp(scores - top)
    sums = total(weights, keys, keep=True)
    divisor = sums if mask is None else where(eq(sums, 0.0), 1.0, sums)
    return Attention(matmul(weights, v) / divisor, weights, divisor, top)


def grouped(x: Tensor, heads: int, axis: int) -> Tensor:
    """Each key and value head serves several query heads."""
    n = x.shape[axis]
    each = apply(floordiv, position(axis), constant(heads // n))
    return x if n == heads else along(x, axis, heads, each)


def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    require(dropout_p == 0, "a random mask is drawn by torch")
    if enable_gqa:
        heads, axis = q.shape[-3], q.rank - 3
        k, v = grouped(k, heads, axis), grouped(v, heads, axis)
    return attend(q, k, v, attn_mask, is_causal, scale).out


def flash_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """With the logarithm of each row's sum of exponentials."""
    require(dropout_p == 0, "a random mask is drawn by torch")
    k, v = grouped(k, q.shape[1], 1), grouped(v, q.shape[1], 1)
    a = attend(q, k, v, attn_mask, is_causal, scale)
    lse = a.top + log(total(a.weights, (a.weights.rank - 1,), keep=True))
    return a.out, reshape(lse, lse.shape[:-1])


def math_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Tensor | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    require(dropout_p == 0 and dropout_mask is None, "a random mask is drawn by torch")
    if enable_gqa:
        heads, axis = q.shape[-3], q.rank - 3
        k, v = grouped(k, heads, axis), grouped(v, heads, axis)
    if attn_mask is not None:  # a bool mask has been made -inf and 0 by the caller
        attn_mask = cast(attn_mask, q.dtype)
    a = attend(q, k, v, attn_mask, is_causal, scale)
    return a.out, a.weights / a.sums


def flash_cpu_backward(
    g: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dS = P * (dP - rowsum(dO * O)), where P = exp(S - lse)."""
    require(dropout_p == 0, "a random mask is drawn by torch")
    require(k.shape[1] == q.shape[1], "the gradient of grouped heads")
    by = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    p = exp(scores_of(q, k, attn_mask, is_causal, scale) - reshape(lse, (*lse.shape, 1)))
    inner = total(g * out, (3,), keep=True)
    to_scores = p * (matmul(g, transpose(v)) - inner) * by
    to_k, to_v = matmul(transpose(to_scores), q), matmul(transpose(p), g)
    return matmul(to_scores, k), to_k, to_v


ATTENTION: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": sdpa,
    "_scaled_dot_product_attention_math": math_attention,
    "_scaled_dot_product_flash_attention_for_cpu": flash_cpu,
    "_scaled_dot_product_flash_attention_for_cpu_backward": flash_cpu_backward,
}

ROWS: dict[str, Row] = rows("widened", ATTENTION)
