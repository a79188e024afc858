"""Rows of what moves elements and computes none: shapes, slices, pieces, padding, order."""

from collections.abc import Sequence
from typing import Any

import torch

from weft.jax.rows import Out, row

Tensor = torch.Tensor


@row("iota")
def iota(*, dimension: int, out: Out, **_: Any) -> Tensor:
    shape = [1] * len(out.shape)
    shape[dimension] = out.shape[dimension]
    integer = torch.int64 if out.dtype is torch.bool or out.dtype.is_complex else out.dtype
    line = torch.arange(out.shape[dimension], dtype=integer).reshape(shape)
    return line.to(out.dtype).expand(out.shape)


@row("iota_2x32_shape")
def iota_2x32(*, shape: Sequence[int], **_: Any) -> tuple[Tensor, Tensor]:
    """The upper and the lower word of each position."""
    count = torch.arange(int(torch.Size(shape).numel())).reshape(tuple(shape))
    return count >> 32, count


@row("broadcast_in_dim")
def broadcast_in_dim(
    x: Tensor, *sizes: Tensor, broadcast_dimensions: Sequence[int], out: Out, **_: Any
) -> Tensor:
    shape = [1] * len(out.shape)
    for d, n in zip(broadcast_dimensions, x.shape, strict=True):
        shape[d] = n
    return x.reshape(shape).expand(out.shape)


@row("reshape")
def reshape(x: Tensor, *, new_sizes: Sequence[int], dimensions: Any = None, **_: Any) -> Tensor:
    x = x if dimensions is None else x.permute(tuple(dimensions))
    return x.reshape(tuple(new_sizes))


@row("squeeze", "expand_dims")
def squeeze(x: Tensor, *, out: Out, **_: Any) -> Tensor:
    return x.reshape(out.shape)


@row("transpose")
def transpose(x: Tensor, *, permutation: Sequence[int], **_: Any) -> Tensor:
    return x.permute(tuple(permutation))


@row("rev")
def rev(x: Tensor, *, dimensions: Sequence[int], **_: Any) -> Tensor:
    return x.flip(tuple(dimensions))


@row("slice")
def slice_(
    x: Tensor,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None,
    **_: Any,
) -> Tensor:
    steps = strides or [1] * len(limit_indices)
    limits = zip(start_indices, limit_indices, steps, strict=True)
    return x[tuple(slice(a, max(a, b), s) for a, b, s in limits)]


@row("split")
def split(x: Tensor, *, sizes: Sequence[int], axis: int, **_: Any) -> tuple[Tensor, ...]:
    return torch.split(x, [int(n) for n in sizes], axis)


@row("concatenate")
def concatenate(*xs: Tensor, dimension: int, **_: Any) -> Tensor:
    return torch.cat(xs, dimension)


@row("stack")
def stack(*xs: Tensor, axis: int, **_: Any) -> Tensor:
    return torch.stack(xs, axis)


@row("unstack")
def unstack(x: Tensor, *, axis: int, **_: Any) -> tuple[Tensor, ...]:
    return torch.unbind(x, axis)


@row("tile")
def tile(x: Tensor, *, reps: Sequence[int], **_: Any) -> Tensor:
    return x.repeat(tuple(reps))


@row("pad")
def pad(x: Tensor, value: Tensor, *, padding_config: Sequence[Any], **_: Any) -> Tensor:
    """Before, after and between elements; a negative number of elements is cut off."""
    return padded(x, value, [tuple(map(int, p)) for p in padding_config])


def padded(x: Tensor, value: Tensor | float, config: Sequence[tuple[int, ...]]) -> Tensor:
    """x with (low, high, between) elements of a value along each axis."""
    for d, (low, high, between) in enumerate(config):
        n = x.shape[d]
        whole = n + between * max(n - 1, 0)
        if between and n > 1:
            gaps = filled([*x.shape[: d + 1], between, *x.shape[d + 1 :]], value, x)
            x = torch.cat([x.unsqueeze(d + 1), gaps], d + 1).flatten(d, d + 1).narrow(d, 0, whole)
        parts = [filled(_with(x, d, low), value, x)] if low > 0 else []
        parts.append(x)
        parts += [filled(_with(x, d, high), value, x)] if high > 0 else []
        x = torch.cat(parts, d) if len(parts) > 1 else x
        first, last = max(-low, 0), x.shape[d] - max(-high, 0)
        x = x.narrow(d, first, max(last - first, 0)) if low < 0 or high < 0 else x
    return x


def _with(x: Tensor, d: int, n: int) -> list[int]:
    return [*x.shape[:d], n, *x.shape[d + 1 :]]


def filled(shape: Sequence[int], value: Tensor | float, like: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(like.dtype).expand(tuple(shape))
    return torch.full(tuple(shape), value, dtype=like.dtype)


@row("sort")
def sort(*operands: Tensor, dimension: int, num_keys: int, **_: Any) -> list[Tensor]:
    """By the first keys; the last key is sorted first, as each sort keeps the order of equals."""
    order = None
    for key in reversed(operands[:num_keys]):
        own = key if order is None else key.gather(dimension, order)
        own = torch.where(own == 0, torch.zeros_like(own), own)  # -0.0 is equal to 0.0
        found = torch.sort(own, dim=dimension, stable=True).indices
        order = found if order is None else order.gather(dimension, found)
    assert order is not None
    return [x.gather(dimension, order) for x in operands]


@row("top_k")
def top_k(x: Tensor, *, k: int, axis: int = -1, **_: Any) -> tuple[Tensor, Tensor]:
    """The largest ones in the total order of floats, NaN before all; of equals the first."""
    at = torch.sort(total_order(x), dim=axis, descending=True, stable=True).indices
    at = at.narrow(axis, 0, k)
    return x.gather(axis, at), at


def total_order(x: Tensor) -> Tensor:
    """Integers in the order of IEEE 754: -NaN, -infinity, ..., -0.0, 0.0, ..., infinity, NaN."""
    if not x.is_floating_point():
        return x
    bits = x.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)


@row("approx_top_k")
def approx_top_k(
    x: Tensor, *, k: int, reduction_dimension: int, is_max_k: bool, **_: Any
) -> tuple[Tensor, Tensor]:
    """Exact."""
    values, at = torch.sort(x, dim=reduction_dimension, descending=is_max_k, stable=True)
    return values.narrow(reduction_dimension, 0, k), at.narrow(reduction_dimension, 0, k)
