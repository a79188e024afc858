"""Reductions over axes, running sums and products, softmax and losses.

ReduceSum(x, (0, 1), keepdims=0)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.onnx.table import op
from weft.onnx.types import number

Axes = tuple[int, ...]


def product(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep, dtype=x.dtype)
    return x


def extreme(function: Callable[..., Tensor], best: str) -> Callable[..., Tensor]:
    def reduce(x: Tensor, axes: Axes, keep: bool) -> Tensor:
        if x.dtype is torch.bool:
            return reduce(x.to(torch.uint8), axes, keep) == 1
        if any(x.shape[a] == 0 for a in axes):  # of nothing: what any element would replace
            sizes = [1 if i in axes else n for i, n in enumerate(x.shape)]
            info = torch.finfo(x.dtype) if x.dtype.is_floating_point else torch.iinfo(x.dtype)
            worst = math.inf if x.dtype.is_floating_point else info.max
            worst = (-worst if x.dtype.is_floating_point else info.min) if best == "max" else worst
            found = torch.full(sizes, worst, dtype=x.dtype, device=x.device)
            return (
                found
                if keep
                else found.reshape([n for i, n in enumerate(x.shape) if i not in axes])
            )
        return function(x, axes, keepdim=keep)

    return reduce


def summed(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype)


REDUCTIONS: dict[str, Callable[[Tensor, Axes, bool], Tensor]] = {
    "ReduceSum": summed,
    "ReduceMean": lambda x, axes, keep: (
        torch.mean(x, axes, keepdim=keep)
        if x.is_floating_point()
        else torch.mean(x.double(), axes, keepdim=keep).to(x.dtype)
    ),
    "ReduceProd": product,
    "ReduceMax": extreme(torch.amax, "max"),
    "ReduceMin": extreme(torch.amin, "min"),
    "ReduceL1": lambda x, axes, keep: summed(x.abs(), axes, keep),
    "ReduceL2": lambda x, axes, keep: torch.sqrt(
        summed(x * x, axes, keep).to(x.dtype if x.is_floating_point() else torch.float64)
    ).to(x.dtype),
    "ReduceSumSquare": lambda x, axes, keep: summed(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: torch.log(summed(x, axes, keep)).to(x.dtype),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep).to(x.dtype),
}


def enter(name: str, function: Callable[[Tensor, Axes, bool], Tensor]) -> None:
    def row(
        x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        if not axes and axes != 0:
            if noop_with_empty_axes and name in NO_AXES:
                return NO_AXES[name](x)
            axes = tuple(range(x.dim()))
        chosen = tuple([a % x.dim() for a in (axes if isinstance(axes, tuple) else (axes,))])
        return function(x, chosen, bool(keepdims)) if chosen else function(x[None], (0,), False)

    numbers = NUMBERS.get(name)
    op(name, wants=(1,), numbers=numbers)(row)


# Without axes, and `noop_with_empty_axes`, what is done to an element stays.
NO_AXES: dict[str, Callable[[Tensor], Tensor]] = {
    "ReduceSum": lambda x: x, "ReduceMean": lambda x: x, "ReduceProd": lambda x: x,
    "ReduceMax": lambda x: x, "ReduceMin": lambda x: x, "ReduceL1": torch.abs,
    "ReduceL2": torch.abs, "ReduceSumSquare": torch.square, "ReduceLogSum": torch.log,
    "ReduceLogSumExp": lambda x: x,
}  # fmt: skip


def number_reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(
        x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        if not isinstance(x, tuple) or not x or not (axes in ((0,), (-1,)) or axes is None):
            return NotImplemented
        found = function(x)
        return (found,) if keepdims else found

    return reduce


NUMBERS = {
    "ReduceSum": number_reduction(sum), "ReduceProd": number_reduction(math.prod),
    "ReduceMax": number_reduction(max), "ReduceMin": number_reduction(min),
}  # fmt: skip
for name, function in REDUCTIONS.items():
    enter(name, function)


def position(name: str, sign: int) -> None:
    @op(name)
    def row(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        find = torch.argmax if sign > 0 else torch.argmin
        if not select_last_index:
            return find(x, axis, keepdim=bool(keepdims))
        return x.shape[axis] - 1 - find(x.flip(axis), axis, keepdim=bool(keepdims))


position("ArgMax", 1)
position("ArgMin", -1)


def running(name: str, function: Callable[..., Tensor], first: int) -> None:
    @op(name, wants=(1,))
    def row(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        axis = number(axis) % x.dim()
        x = x.flip(axis) if reverse else x
        found = function(x, axis, dtype=x.dtype)
        if exclusive:
            before = (slice(None),) * axis
            start = torch.full_like(found[(*before, slice(1))], first)
            found = torch.cat([start, found[(*before, slice(-1))]], axis)
        return found.flip(axis) if reverse else found


running("CumSum", torch.cumsum, 0)
running("CumProd", torch.cumprod, 1)


def along(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Before opset 13 the axes from `axis` on are one."""

    def row(x: Tensor, *, axis: int = 1) -> Tensor:
        axis = axis % x.dim() if x.dim() else 0
        flat = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        return function(flat, 1).reshape(x.shape)

    return row


def hardmax(x: Tensor, axis: int) -> Tensor:
    places = torch.arange(x.shape[axis], device=x.device)
    best = torch.argmax(x, axis, keepdim=True)
    return (best == places.reshape(-1, *(1,) * (x.dim() - 1 - axis % x.dim()))).to(x.dtype)


op("Softmax")(along(torch.softmax))
op("LogSoftmax")(along(torch.log_softmax))
op("Hardmax")(along(hardmax))
op("Softmax", since=13)(lambda x, *, axis=-1: torch.softmax(x, axis))
op("LogSoftmax", since=13)(lambda x, *, axis=-1: torch.log_softmax(x, axis))
op("Hardmax", since=13)(lambda x, *, axis=-1: hardmax(x, axis))


@op("NegativeLogLikelihoodLoss")
def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Tensor:
    unused = -(2**31) if ignore_index is None else ignore_index
    n, c = x.shape[:2]
    flat = x.reshape(n, c, -1)
    found = F.nll_loss(
        flat,
        target.to(torch.int64).reshape(n, -1),
        weight,
        reduction=reduction,
        ignore_index=unused,
    )
    return found.reshape(target.shape) if reduction == "none" else found


@op("SoftmaxCrossEntropyLoss")
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> tuple[Tensor, Tensor]:
    log_prob = torch.log_softmax(x, 1)
    loss = nll_loss(log_prob, target, weight, reduction=reduction, ignore_index=ignore_index)
    return loss, log_prob
