"""Normalisations and dropout.

LayerNormalization(x, self.scale, self.bias, axis=-1)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.onnx.table import op
from weft.onnx.types import stored


def channels(v: Tensor, x: Tensor) -> Tensor:
    """Of each channel; before opset 9, with spatial=0, of each place of one as well."""
    return v.reshape(-1, *(1,) * (x.dim() - 2)) if v.dim() == 1 else v


@op("BatchNormalization", buffers=(3, 4))
def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
    is_test: int = 1,
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    """In training also the running mean and variance that the batch's move, and the batch's.

    Before opset 14 a node trains if it has these outputs.
    """
    if not training_mode and outputs == 1:
        same = len({t.dtype for t in (x, scale, bias, mean, var)}) == 1
        if same and mean.dim() == 1:
            return (F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon),)
        inverse = torch.rsqrt(channels(var, x) + epsilon)
        found = (x - channels(mean, x)) * inverse * channels(scale, x) + channels(bias, x)
        return (found.to(x.dtype),)
    axes = tuple([a for a in range(x.dim()) if a != 1])
    batch_var, batch_mean = torch.var_mean(x.to(mean.dtype), axes, correction=0)
    found = F.batch_norm(x, None, None, scale.to(x.dtype), bias.to(x.dtype), True, 0.0, epsilon)
    running = [
        old * momentum + new * (1 - momentum) for old, new in ((mean, batch_mean), (var, batch_var))
    ]
    return (found, *running, batch_mean, batch_var)[:outputs]


@op("InstanceNormalization")
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return torch.instance_norm(x, scale, bias, None, None, True, 0.0, epsilon, False)


@op("LayerNormalization")
def layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    """Over the axes from `axis` on; also the mean and the inverse of the deviation."""
    axis = axis % x.dim()
    sizes = x.shape[axis:]
    if outputs == 1 and scale.shape == sizes and (bias is None or bias.shape == sizes):
        return (F.layer_norm(x, sizes, scale, bias, epsilon),)
    wide = x.to(stored(stash_type))
    var, mean = torch.var_mean(wide, tuple(range(axis, x.dim())), correction=0, keepdim=True)
    inverse = torch.rsqrt(var + epsilon)
    found = ((wide - mean) * inverse).to(x.dtype) * scale
    return (found if bias is None else found + bias, mean, inverse)[:outputs]


@op("RMSNormalization")
def rms_norm(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    wide = x.to(stored(stash_type))
    axes = tuple(range(axis % x.dim(), x.dim()))
    inverse = torch.rsqrt(wide.square().mean(axes, keepdim=True) + epsilon)
    return (wide * inverse).to(x.dtype) * scale


def group_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    return F.group_norm(x, num_groups, scale, bias, epsilon)


op("GroupNormalization", since=21)(group_norm)


@op("GroupNormalization", since=18)
def group_norm_18(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5
) -> Tensor:
    """A scale and a bias for each group, before opset 21."""
    each = x.shape[1] // num_groups
    scale, bias = (v.repeat_interleave(each) for v in (scale, bias))
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@op("MeanVarianceNormalization")
def mean_variance_norm(x: Tensor, *, axes: tuple[int, ...] = (0, 2, 3)) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred / (centred.square().mean(axes, keepdim=True).sqrt() + 1e-9)


@op("LpNormalization")
def lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    norm = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    return torch.where(norm == 0, 0, x / norm)


@op("LRN")
def lrn(
    x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """Over `size` channels around each, of which one more may stand behind it than before."""
    before = (size - 1) // 2
    flat = x.square().reshape(x.shape[0], 1, x.shape[1], -1)
    wide = F.pad(flat, [0, 0, before, size - 1 - before])
    sums = F.avg_pool2d(wide, (size, 1), 1).reshape(x.shape)
    return x / (bias + alpha * sums).pow(beta)


@op("Dropout", literals=(1, 2), either=(1, 2))
def dropout(
    x: Tensor,
    ratio: Any = 0.5,
    training: Any = False,
    *,
    is_test: int = 1,
    seed: int | None = None,
    types: Any,
) -> tuple[Tensor, Tensor]:
    """Nothing is dropped unless the model says that it trains."""
    if not bool(training) or not is_test or float(ratio) == 0:
        kind = types[1][1] if len(types[1]) > 1 else None  # of the mask: before opset 10 x's own
        return x, torch.ones_like(x, dtype=stored(kind) if kind else torch.bool)
    keep = 1 - float(ratio)
    mask = torch.rand_like(x) < keep
    return torch.where(mask, x / keep, 0), mask
