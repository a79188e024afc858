"""Rows over windows: sums and maxima of them, and what their gradients consist of."""

from collections.abc import Sequence
from typing import Any

import torch

from weft.jax.folds import FOLDS, folded, pairwise
from weft.jax.rows import highest, lowest, row
from weft.jax.shapes import padded

Tensor = torch.Tensor
Sizes = Sequence[int]
Pads = Sequence[Sequence[int]]


def windows(
    x: Tensor,
    start: Tensor | float,
    *,
    window_dimensions: Sizes,
    window_strides: Sizes,
    padding: Pads,
    base_dilation: Sizes | None = None,
    window_dilation: Sizes | None = None,
    **_: Any,
) -> Tensor:
    """Every window: as many axes as x has for where it is, then as many for its elements."""
    base = base_dilation or [1] * x.dim()
    config = [(int(lo), int(hi), b - 1) for (lo, hi), b in zip(padding, base, strict=True)]
    x = padded(x, start, config)
    for d, (size, step) in enumerate(zip(window_dimensions, window_strides, strict=True)):
        dilation = window_dilation[d] if window_dilation else 1
        reach = (size - 1) * dilation + 1
        if x.shape[d] < reach:  # no window fits
            x = x.narrow(d, 0, 0).unsqueeze(-1).expand(*x.narrow(d, 0, 0).shape, size)
            continue
        x = x.unfold(d, reach, step)[..., ::dilation]
    return x


def _inner(x: Tensor) -> tuple[int, ...]:
    return tuple(range(x.dim() // 2, x.dim()))


def _fold(name: str, of: str) -> None:
    @row(name)
    def reduce_window(x: Tensor, **p: Any) -> Tensor:
        found = windows(x, FOLDS[of][1](x.dtype), **p)
        return folded(found, _inner(found), of)


_fold("reduce_window_sum", "add")
_fold("reduce_window_max", "max")
_fold("reduce_window_min", "min")


@row("reduce_window")
def reduce_window(*values: Tensor, jaxpr: Any, **p: Any) -> Any:
    """By a function of the user's, for several operands at once."""
    n = len(values) // 2
    starts = values[n:]
    if jaxpr.name in FOLDS:  # padding counts for nothing
        whole = windows(values[0], FOLDS[jaxpr.name][1](values[0].dtype), **p)
        one = folded(whole, _inner(whole), jaxpr.name)
        return jaxpr(one, starts[0].expand(one.shape))
    found = [windows(x, s, **p) for x, s in zip(values[:n], starts, strict=True)]
    axes = _inner(found[0])
    return pairwise(found, [*starts], axes, lambda *ab: jaxpr(*ab))


def _chosen(x: Tensor, select_prim: Any, p: Any) -> Tensor:
    """For each window where its best element is in it."""
    largest = select_prim.name in ("ge", "gt")
    worst = lowest(x.dtype) if largest else highest(x.dtype)
    own = x.to(torch.uint8) if x.dtype is torch.bool else x
    found = windows(own, worst, **p).flatten(x.dim())
    return (torch.argmax if largest else torch.argmin)(found, -1, keepdim=True)


@row("select_and_gather_add")
def select_and_gather_add(
    tangents: Tensor, operand: Tensor, *, select_prim: Any, **p: Any
) -> Tensor:
    at = _chosen(operand, select_prim, p)
    return windows(tangents, 0, **p).flatten(operand.dim()).gather(-1, at).squeeze(-1)


@row("select_and_scatter_add")
def select_and_scatter_add(
    source: Tensor, operand: Tensor, *, select_prim: Any, **p: Any
) -> Tensor:
    """Adds each element of `source` to the place that its window chooses."""
    at = _chosen(operand, select_prim, p)
    places = torch.arange(operand.numel()).reshape(operand.shape)
    where = windows(places, operand.numel(), **p).flatten(operand.dim()).gather(-1, at).flatten()
    flat = torch.zeros(operand.numel() + 1, dtype=source.dtype)
    return flat.index_add(0, where, source.flatten())[:-1].reshape(operand.shape)
