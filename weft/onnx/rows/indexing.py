"""Gathers, scatters, sorts and what else works by positions.

Gather(x, indices, axis=0)
Gather((2, 3, 4), 1)               # 3: a size of a shape
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.onnx.rows.pointwise import LOWEST, UNSIGNED, is_text
from weft.onnx.table import op
from weft.onnx.types import as_tensor, number, refuse

REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def number_gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    if not isinstance(x, tuple):
        return NotImplemented
    return tuple([x[i] for i in indices]) if isinstance(indices, tuple) else x[indices]


def wrapped(indices: Tensor, size: Any) -> Tensor:
    """Indices below 0 count from the end."""
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


@op("Gather", either=(1,), numbers=number_gather)
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    if isinstance(indices, int) and not is_text(x):
        return x.select(axis, indices)
    indices = as_tensor(indices, x.device if isinstance(x, Tensor) else None)
    if is_text(x):
        return np.take(x, indices.numpy(), axis)
    axis = axis % x.dim()
    indices = wrapped(indices, x.shape[axis])
    if indices.dim() == 0:
        return x.index_select(axis, indices.reshape(1)).squeeze(axis)
    found = x.index_select(axis, indices.reshape(-1))
    return found.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@op("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, wrapped(indices, x.shape[axis]))


@op("GatherND")
def gather_nd(x: Any, indices: Tensor, *, batch_dims: int = 0) -> Any:
    if is_text(x) and batch_dims:
        refuse("strings are not gathered by batches")
    if is_text(x):
        return x[tuple(indices.numpy()[..., i] for i in range(indices.shape[-1]))]
    batch = x.shape[:batch_dims]
    depth = indices.shape[-1]
    grids = (
        torch.meshgrid(*[torch.arange(n, device=x.device) for n in batch], indexing="ij")
        if batch
        else ()
    )
    spread = [g.reshape(*batch, *(1,) * (indices.dim() - 1 - batch_dims)) for g in grids]
    picks = [wrapped(indices[..., i], x.shape[batch_dims + i]) for i in range(depth)]
    return x[(*spread, *picks)]


@op("Scatter", "ScatterElements")
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    at = wrapped(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, at, updates)
    return x.scatter_reduce(axis, at, updates, REDUCE[reduction])


@op("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """Slices by the leading axes: as rows of a matrix whose row is the sum of strides."""
    depth = indices.shape[-1]
    row = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
    for i in range(depth):
        row = row * x.shape[i] + wrapped(indices[..., i], x.shape[i])
    inner = x.shape[depth:]
    flat = x.reshape(math.prod(x.shape[:depth]), *inner)
    rows = row.reshape(-1)
    values = updates.reshape(rows.shape[0], *inner)
    if reduction == "none":
        return flat.index_copy(0, rows, values).reshape(x.shape)
    at = rows.reshape(-1, *(1,) * len(inner)).expand(values.shape)
    return flat.scatter_reduce(0, at, values, REDUCE[reduction]).reshape(x.shape)


@op("TensorScatter")
def tensor_scatter(
    cache: Tensor,
    update: Tensor,
    starts: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """Writes `update` into each batch's cache from its start on; `circular` goes round."""
    axis = axis % cache.dim()
    batch, length = cache.shape[0], update.shape[axis]
    first = torch.zeros(batch, dtype=torch.int64, device=cache.device) if starts is None else starts
    at = first[:, None] + torch.arange(length, device=cache.device)
    at = torch.remainder(at, cache.shape[axis]) if mode == "circular" else at
    at = at.reshape(batch, *(1,) * (axis - 1), length, *(1,) * (cache.dim() - axis - 1))
    return cache.scatter(axis, at.expand(update.shape), update)


@op("OneHot", wants=(1,))
def one_hot(indices: Tensor, depth: Any, values: Tensor, *, axis: int = -1) -> Tensor:
    depth = int(number(depth))
    axis = axis % (indices.dim() + 1)
    at = one_hot_positions(indices, depth)
    classes = torch.arange(depth, device=indices.device)
    hot = at.unsqueeze(axis) == classes.reshape(-1, *(1,) * (indices.dim() - axis))
    return torch.where(hot, values[1], values[0])


def one_hot_positions(indices: Tensor, depth: int) -> Tensor:
    """Whole numbers; those out of range are of no class."""
    whole = indices.to(torch.int64)
    return torch.where((whole < 0) & (whole >= -depth), whole + depth, whole)


@op("TopK", since=1, wants=(1,))
def top_k(
    x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    """Of equal elements the first one comes first, as in a stable sort."""
    k = number(k)
    if not 0 <= k <= x.shape[axis]:
        refuse(f"the {k} largest of {x.shape[axis]} elements are wanted")
    wide = x.to(torch.int64) if x.dtype in UNSIGNED[:2] else x
    if x.dtype is torch.uint64:
        wide = x.view(torch.int64) ^ LOWEST
    values, at = torch.sort(wide, dim=axis, descending=bool(largest), stable=True)
    values, at = values.narrow(axis, 0, k), at.narrow(axis, 0, k)
    if x.dtype is torch.uint64:
        return (values ^ LOWEST).view(x.dtype), at
    return values.to(x.dtype), at


@op("NonZero")
def non_zero(x: Tensor) -> Tensor:
    return torch.nonzero(x).t()


@op("Compress")
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    at = torch.nonzero(condition).reshape(-1)
    return x.reshape(-1)[at] if axis is None else x.index_select(axis, at)


@op("Unique")
def unique(
    x: Tensor, *, axis: int | None = None, sorted: int = 1
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Slices without repetition, where each comes first, which one each slice is, how often."""
    flat = x.reshape(-1) if axis is None else x
    dim = axis or 0
    values, inverse, counts = torch.unique(
        flat, sorted=True, return_inverse=True, return_counts=True, dim=dim
    )
    order = torch.arange(inverse.numel(), device=x.device)
    first = torch.full_like(counts, inverse.numel()).scatter_reduce(0, inverse, order, "amin")
    if sorted:
        return values, first, inverse, counts
    by_place = torch.argsort(first)
    rank = torch.argsort(by_place)
    return values.index_select(dim, by_place), first[by_place], rank[inverse], counts[by_place]


@op("ReverseSequence")
def reverse_sequence(
    x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    times = torch.arange(x.shape[time_axis], device=x.device)
    at = torch.where(times < lengths[:, None], lengths[:, None] - 1 - times, times)
    at = at if batch_axis == 0 else at.t()
    at = at.reshape(*at.shape, *(1,) * (x.dim() - 2)).expand(x.shape)
    return torch.gather(x, time_axis, at)


@op("NonMaxSuppression", wants=(2, 3, 4))
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    most: Any = 0,
    overlap: Any = 0.0,
    least: Any = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    """Rows (batch, class, box) of the best boxes that overlap no better one of their class."""
    most, overlap, least = map(number, (most, overlap, least))
    chosen: list[list[int]] = []
    for batch in range(scores.shape[0] if most else 0):
        corners = box_corners(boxes[batch], center_point_box)
        close = overlaps(corners) > overlap
        for kind in range(scores.shape[1]):
            score = scores[batch, kind]
            alive = torch.ones_like(score, dtype=torch.bool) if least is None else score > least
            order = torch.sort(score, descending=True, stable=True)[1].tolist()
            kept: list[int] = []
            for box in order:
                if len(kept) < most and bool(alive[box]) and not bool(close[box][kept].any()):
                    kept.append(box)
            chosen += [[batch, kind, box] for box in kept]
    return torch.tensor(chosen, dtype=torch.int64, device=boxes.device).reshape(-1, 3)


def box_corners(boxes: Tensor, center_point_box: int) -> Tensor:
    if center_point_box:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return torch.cat([middle - half, middle + half], 1)
    low, high = torch.minimum(boxes[:, :2], boxes[:, 2:]), torch.maximum(boxes[:, :2], boxes[:, 2:])
    return torch.cat([low, high], 1)


def overlaps(corners: Tensor) -> Tensor:
    """The intersection over the union of each two boxes."""
    low = torch.maximum(corners[:, None, :2], corners[None, :, :2])
    high = torch.minimum(corners[:, None, 2:], corners[None, :, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area = (corners[:, 2:] - corners[:, :2]).prod(-1)
    return common / (area[:, None] + area[None, :] - common)
