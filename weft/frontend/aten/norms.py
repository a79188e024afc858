"""Rows of softmax and the normalisations, with their backward ops.

layer_norm(x) = (x - mean) * rsqrt(variance + eps) * weight + bias
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes

from weft.frontend.aten.table import Row, axis_of, rows
from weft.scalar.monoid import MAX
from weft.tensor.build import (
    Tensor,
    exp,
    extent_of,
    log,
    mean,
    reduce,
    reshape,
    rsqrt,
    softmax,
    total,
    variance,
    widen,
)

Optional = Tensor | None
Results = tuple[Tensor | None, ...]


def affine_of(x: Tensor, weight: Optional, bias: Optional) -> Tensor:
    """x * weight + bias, either of which may be missing."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def softmax_row(x: Tensor, dim: int, *_: Any) -> Tensor:
    return softmax(x, axis_of(dim, x.rank)) if x.rank else x - x + 1


def log_softmax(x: Tensor, dim: int, *_: Any) -> Tensor:
    if x.rank == 0:
        return x - x
    axes = (axis_of(dim, x.rank),)
    shifted = x - reduce(MAX, x, axes, keep=True)
    return shifted - log(total(exp(shifted), axes, keep=True))


def trailing(x: Tensor, shape: Sequence[int]) -> list[int]:
    return list(range(x.rank - len(shape), x.rank))


def native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Optional, bias: Optional, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    axes = trailing(x, shape)
    center = mean(x, axes, keep=True)
    scale = rsqrt(variance(x, axes, keep=True) + eps)
    return affine_of((x - center) * scale, weight, bias), center, scale


def layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    return native_layer_norm(x, shape, weight, bias, eps)[0]


def rms_norm_both(
    x: Tensor, shape: Sequence[int], weight: Optional = None, eps: float | None = None
) -> tuple[Tensor, Tensor]:
    """The missing eps is that of the dtype computed in."""
    eps = float(ml_dtypes.finfo(x.dtype.numpy).eps) if eps is None else eps
    wide = widen(x)
    scale = rsqrt(mean(wide * wide, trailing(x, shape), keep=True) + eps)
    return affine_of(wide * scale, None if weight is None else widen(weight), None), scale


# --- group norm: [N, G, C/G * HW] ---------------------------------------------------------------


def group_norm(
    x: Tensor, weight: Optional, bias: Optional, n: int, c: int, size: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    grouped = reshape(x, (n, groups, c // groups * size))
    normal, center, scale = native_layer_norm(grouped, grouped.shape[2:], None, None, eps)
    per_channel = [None if p is None else on_channels(p, x.rank) for p in (weight, bias)]
    out = affine_of(reshape(normal, x.shape), *per_channel)
    return out, reshape(center, (n, groups)), reshape(scale, (n, groups))


def on_channels(p: Tensor, rank: int) -> Tensor:
    """A per-channel parameter, shaped to meet [N, C, ...]."""
    return reshape(p, (-1, *(1,) * (rank - 2)))


# --- batch norm: statistics per channel ---------------------------------------------------------


def channel_axes(x: Tensor) -> list[int]:
    return [a for a in range(x.rank) if a != 1]


def normalize_channels(
    x: Tensor, weight: Optional, bias: Optional, center: Tensor, scale: Tensor
) -> Tensor:
    by_channel = [None if p is None else on_channels(p, x.rank) for p in (weight, bias)]
    normal = (x - on_channels(center, x.rank)) * on_channels(scale, x.rank)
    return affine_of(normal, *by_channel)


def batch_norm_training(
    x: Tensor, weight: Optional, bias: Optional, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Result, mean, 1 / deviation, and the biased variance."""
    axes = channel_axes(x)
    center, spread = mean(x, axes), variance(x, axes)
    scale = rsqrt(spread + eps)
    return normalize_channels(x, weight, bias, center, scale), center, scale, spread


def inference(
    x: Tensor, weight: Optional, bias: Optional, center: Optional, spread: Optional, eps: float
) -> Results:
    assert center is not None and spread is not None
    out = normalize_channels(x, weight, bias, center, rsqrt(spread + eps))
    return out, None, None


def batch_norm_functional(
    x: Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Results:
    """With the updated running statistics as two more results."""
    if not training:
        settled = inference(x, weight, bias, running_mean, running_var, eps)
        return *settled, running_mean, running_var
    out, center, scale, spread = batch_norm_training(x, weight, bias, eps)
    n = extent_of(x, channel_axes(x))
    unbiased = spread * (n / max(n - 1, 1))
    return (
        out,
        center,
        scale,
        center * momentum + running_mean * (1 - momentum),
        unbiased * momentum + running_var * (1 - momentum),
    )


NORMS: dict[str, Callable[..., Any]] = {
    "_softmax": softmax_row,
    "_log_softmax": log_softmax,
    "native_layer_norm": native_layer_norm,
    "layer_norm": layer_norm,
    "native_group_norm": group_norm,
    "_native_batch_norm_legit.no_stats": (
        lambda x, weight, bias, training, momentum, eps: batch_norm_training(x, weight, bias, eps)[
            :3
        ]
    ),
    "_native_batch_norm_legit_no_training": (
        lambda x, weight, bias, center, spread, momentum, eps: inference(
            x, weight, bias, center, spread, eps
        )
    ),
    "_native_batch_norm_legit_functional": batch_norm_functional,
}

ROWS: dict[str, Row] = {
    **rows("widened", NORMS),
    **rows(
        "stored",
        {"_fused_rms_norm": rms_norm_both, "rms_norm": lambda *args: rms_norm_both(*args)[0]},
    ),
}
