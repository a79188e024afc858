"""Rows of contractions: dot_general, and convolutions of any layout, dilation and grouping."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from weft.jax.rows import MISSING, Out, row
from weft.jax.shapes import padded

Tensor = torch.Tensor
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
MISSING["conv_general_dilated"] = lambda p, ranks: (
    f"convolution over {ranks[0] - 2} axes" if ranks[0] > 5 else ""
)


@row("dot_general")
def dot_general(x: Tensor, y: Tensor, *, dimension_numbers: Any, out: Out, **_: Any) -> Tensor:
    """A product of matrices over the batch axes: (batch, x's own, summed) (batch, summed, y's)."""
    (sum_x, sum_y), (batch_x, batch_y) = dimension_numbers
    x, y = _as(x, y, out)
    own_x = [d for d in range(x.dim()) if d not in (*sum_x, *batch_x)]
    own_y = [d for d in range(y.dim()) if d not in (*sum_y, *batch_y)]
    a = x.permute(*batch_x, *own_x, *sum_x)
    b = y.permute(*batch_y, *sum_y, *own_y)
    batch = [x.shape[d] for d in batch_x]
    rows, columns = [x.shape[d] for d in own_x], [y.shape[d] for d in own_y]
    n, m = _count(rows), _count(columns)
    k = _count([x.shape[d] for d in sum_x])
    found = torch.matmul(a.reshape((*batch, n, k)), b.reshape((*batch, k, m)))
    return found.reshape((*batch, *rows, *columns))


def _count(sizes: Sequence[int]) -> int:
    return int(torch.Size(sizes).numel())


def _as(x: Tensor, y: Tensor, out: Out) -> tuple[Tensor, Tensor]:
    """Both in the dtype that sums are of: a bool's in i32, of which the plan asks what is not 0."""
    dtype = torch.int32 if out.dtype is torch.bool else out.dtype
    return x.to(dtype), y.to(dtype)


@row("conv_general_dilated")
def conv_general_dilated(
    x: Tensor,
    w: Tensor,
    *,
    window_strides: Sequence[int],
    padding: Sequence[Sequence[int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    out: Out,
    **_: Any,
) -> Tensor:
    d = dimension_numbers
    x, w = x.permute(tuple(d.lhs_spec)), w.permute(tuple(d.rhs_spec))
    exact = not (out.dtype.is_floating_point or out.dtype.is_complex)
    dtype = torch.int64 if exact else out.dtype  # of integers, torch has convolutions of these
    x, w = x.to(dtype), w.to(dtype)
    steps = [(int(a), int(b), n - 1) for (a, b), n in zip(padding, lhs_dilation, strict=True)]
    x = padded(x, 0, [(0, 0, 0), (0, 0, 0), *steps])
    groups = feature_group_count
    if batch_group_count > 1:  # a group of the batch has features of its own
        groups = batch_group_count
        x = x.reshape(groups, x.shape[0] // groups, *x.shape[1:]).movedim(0, 1).flatten(1, 2)
    found = _convolved(x, w, window_strides, rhs_dilation, groups)
    order = sorted(range(found.dim()), key=lambda i: tuple(d.out_spec)[i])
    return found.permute(order)


def _convolved(
    x: Tensor, w: Tensor, strides: Sequence[int], dilation: Sequence[int], groups: int
) -> Tensor:
    rank = x.dim() - 2
    reach = [(n - 1) * s + 1 for n, s in zip(w.shape[2:], dilation, strict=True)]
    sizes = [max((n - r) // s + 1, 0) for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    shape = (x.shape[0], w.shape[0], *sizes)
    if 0 in (*shape, *w.shape):
        return torch.zeros(shape, dtype=x.dtype)
    if rank == 0:
        x, w = x.unsqueeze(-1), w.unsqueeze(-1)
        return F.conv1d(x, w, groups=groups).squeeze(-1)
    return CONVOLUTIONS[rank](x, w, stride=tuple(strides), dilation=tuple(dilation), groups=groups)
