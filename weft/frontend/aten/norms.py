"""Rows of softmax and of the normalisations over trailing axes.

layer_norm(x) = (x - mean) * rsqrt(variance + eps) * weight + bias
"""

import math
from typing import Any

import ml_dtypes

from weft.core.types import DType
from weft.frontend.aten.derivatives import steady
from weft.frontend.aten.table import Row, namesakes, on_axis, rows
from weft.scalar.monoid import MAX
from weft.scalar.ops import eq, exp, rsqrt, where
from weft.tensor.build import (
    Extents,
    Tensor,
    cast,
    mean,
    reduce,
    softmax,
    total,
    variance,
    widen,
)

Maybe = Tensor | None


def affine_of(x: Tensor, weight: Maybe, bias: Maybe) -> Tensor:
    """x * weight + bias, either of which may be missing."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def trailing(x: Tensor, shape: Extents) -> list[int]:
    return list(range(x.rank - len(shape), x.rank))


def layer_norm_all(
    x: Tensor, shape: Extents, weight: Maybe, bias: Maybe, eps: float, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    axes = trailing(x, shape)
    center = mean(x, axes, keep=True)
    scale = rsqrt(variance(x, axes, keep=True) + eps)
    return affine_of((x - center) * scale, weight, bias), center, scale


def rms_norm(x: Tensor, shape: Extents, weight: Maybe, eps: float | None) -> Tensor:
    """The missing eps is that of the dtype computed in."""
    wide = widen(x)
    eps = float(ml_dtypes.finfo(wide.dtype.numpy).eps) if eps is None else eps
    scale = rsqrt(mean(wide * wide, trailing(x, shape), keep=True) + eps)
    return affine_of(wide * scale, None if weight is None else widen(weight), None)


def softmax_of(x: Tensor, axis: int, _: bool) -> Tensor:
    if x.rank == 0:
        return x - x + 1
    return softmax(x, axis, steady(reduce(MAX, x, (axis,), keep=True)))


def safe_softmax_of(x: Tensor, axis: int, dtype: DType | None = None) -> Tensor:
    """Zeros where all is minus infinity."""
    x = widen(cast(x, dtype or x.dtype))
    if x.rank == 0:
        return where(eq(x, -math.inf), 0.0, x - x + 1)
    top = steady(reduce(MAX, x, (axis,), keep=True))
    top = where(eq(top, -math.inf), 0.0, top)
    weights = exp(x - top)
    sums = total(weights, (axis,), keep=True)
    return weights * (1.0 / where(eq(sums, 0.0), 1.0, sums))


NORMS = {
    "_softmax": on_axis(softmax_of),
    "native_layer_norm": layer_norm_all,
    "layer_norm": lambda *args: layer_norm_all(*args)[0],
}

ROWS: dict[str, Row] = {
    **rows("widened", NORMS),
    **rows("stored", {**namesakes(rms_norm), "_safe_softmax": on_axis(safe_softmax_of)}),
}
