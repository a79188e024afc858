"""Rows of scaled dot product attention: softmax(q k^T * scale + mask) v, normalised at the end.

The sum of weights divides the result, not the weights, so one pass over the keys can do it all.
"""

import math

from weft.core.types import boolean
from weft.frontend.aten.table import Row, require, rows
from weft.scalar.monoid import MAX
from weft.scalar.ops import apply, constant, eq, exp, floordiv, ge, where
from weft.tensor.build import Tensor, along, index_of, matmul, reduce, total, transpose
from weft.tensor.ops import position


def scores_of(
    q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> Tensor:
    """q k^T * scale, masked: minus infinity, or the mask's own numbers added."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = matmul(q, transpose(k)) * scale
    if causal:
        r = scores.rank
        seen = index_of(scores.shape, apply(ge, position(r - 2), position(r - 1)))
        scores = where(seen, scores, -math.inf)
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype is boolean else scores + mask
    return scores


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
    """A row whose keys are all masked gives zeros."""
    require(dropout_p == 0, "a random mask is drawn by torch")
    if enable_gqa:
        heads, axis = q.shape[-3], q.rank - 3
        k, v = grouped(k, heads, axis), grouped(v, heads, axis)
    scores = scores_of(q, k, attn_mask, is_causal, scale)
    keys = (scores.rank - 1,)
    top = reduce(MAX, scores, keys, keep=True)
    if attn_mask is not None:
        top = where(eq(top, -math.inf), 0.0, top)
    weights = exp(scores - top)
    sums = total(weights, keys, keep=True)
    divisor = sums if attn_mask is None else where(eq(sums, 0.0), 1.0, sums)
    return matmul(weights, v, finite=True) / divisor  # ATen leaves masked keys out


ROWS: dict[str, Row] = rows("widened", {"scaled_dot_product_attention": sdpa})
