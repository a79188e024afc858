"""Rows of scaled dot product attention: softmax(q k^T * scale + mask) v, normalised at the end.

The sum of weights divides the result, not the weights, so one pass over the keys can do it all.
"""

import math
from typing import Any

from weft.core.types import boolean
from weft.frontend.aten.derivatives import steady
from weft.frontend.aten.table import Row, require, rows
from weft.scalar.monoid import MAX
from weft.scalar.ops import apply, constant, eq, exp, floordiv, ge, where
from weft.tensor.build import Tensor, along, index_of, matmul, reduce, total, transpose
from weft.tensor.ops import position


def grouped(x: Tensor, heads: int, axis: int) -> Tensor:
    """Each key and value head serves several query heads."""
    n = x.shape[axis]
    each = apply(floordiv, position(axis), constant(heads // n))
    return x if n == heads else along(x, axis, heads, each)


def sdpa(q: Tensor, k: Tensor, v: Tensor, *how: Any, scale: Any = None, **more: Any) -> Tensor:
    """A row whose keys are all masked gives zeros.

    `how`: the mask, the dropout, whether it is causal; `more`: whether heads share keys and values.
    """
    attn_mask, dropout_p, is_causal = how
    require(dropout_p == 0, "a random mask is drawn by torch")
    if more.get("enable_gqa"):
        heads, axis = q.shape[-3], q.rank - 3
        k, v = grouped(k, heads, axis), grouped(v, heads, axis)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = matmul(q, transpose(k)) * scale
    queries, keys = scores.rank - 2, (scores.rank - 1,)
    if is_causal:
        seen = index_of(scores.shape, apply(ge, position(queries), position(*keys)))
        scores = where(seen, scores, -math.inf)
    if attn_mask is not None:  # minus infinity, or the mask's own numbers added
        is_bool = attn_mask.dtype is boolean
        scores = where(attn_mask, scores, -math.inf) if is_bool else scores + attn_mask
    top = steady(reduce(MAX, scores, keys, keep=True))
    if attn_mask is not None:
        top = where(eq(top, -math.inf), 0.0, top)
    weights = exp(scores - top)
    sums = total(weights, keys, keep=True)
    divisor = sums if attn_mask is None else where(eq(sums, 0.0), 1.0, sums)
    return matmul(weights, v, finite=True) / divisor  # ATen leaves masked keys out


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    return matmul(weights, values, finite=True)


ROWS: dict[str, Row] = {
    **rows("widened", {"scaled_dot_product_attention": sdpa}),
    "weft.weighted.default": Row(weighted, "widened"),
}
