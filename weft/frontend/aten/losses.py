"""Rows of the losses that ATen keeps whole, with their backward ops.

"mse_loss": lambda x, y, reduction=MEAN: folded((x - y) * (x - y), reduction)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.types import i64
from weft.frontend.aten.formulas import one_if
from weft.frontend.aten.indexing import gather
from weft.frontend.aten.table import Row, rows
from weft.tensor.build import (
    Operand,
    Tensor,
    broadcast,
    cast,
    eq,
    exp,
    full,
    iota,
    log,
    log1p,
    maximum,
    mean,
    minimum,
    ne,
    reshape,
    total,
    unsqueeze,
    where,
)

NONE, MEAN = 0, 1  # torch's reduction codes; 2 is the sum


def folded(loss: Tensor, reduction: int) -> Tensor:
    axes = range(loss.rank)
    return (
        loss if reduction == NONE else mean(loss, axes) if reduction == MEAN else total(loss, axes)
    )


def shared(g: Tensor, x: Tensor, reduction: int) -> Tensor:
    """What each element's loss gets of the result's gradient."""
    return g * (1 / max(x.type.size, 1)) if reduction == MEAN else g


def huber(delta_scales: bool) -> Callable[..., Tensor]:
    """smooth_l1 is huber divided by its width."""

    def row(x: Tensor, y: Tensor, reduction: int = MEAN, width: float = 1.0) -> Tensor:
        a = abs(x - y)
        if width == 0:
            return folded(a, reduction)
        near, far = 0.5 * a * a, width * (a - 0.5 * width)
        loss = where(a < width, near, far)
        return folded(loss if delta_scales else loss * (1 / width), reduction)

    return row


def huber_backward(delta_scales: bool) -> Callable[..., Tensor]:
    def row(g: Tensor, x: Tensor, y: Tensor, reduction: int, width: float) -> Tensor:
        d = x - y
        slope = where(d <= -width, -1.0, where(d >= width, 1.0, d * (1 / width if width else 0.0)))
        return slope * shared(g, x, reduction) * (width if delta_scales else 1.0)

    return row


def binary_cross_entropy(
    x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Logarithms are cut off at -100, as in torch."""
    loss = -(y * maximum(log(x), -100.0) + (1 - y) * maximum(log(1 - x), -100.0))
    return folded(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_backward(
    g: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    out = shared(g, x, reduction) * (x - y) / maximum((1 - x) * x, 1e-12)
    return out if weight is None else out * weight


def with_logits(
    x: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """(1 - y) * x - log_sigmoid(x), the logarithm weighted where y is 1."""
    log_sigmoid = minimum(x, 0.0) - log1p(exp(-abs(x)))
    scale = 1 if pos_weight is None else (pos_weight - 1) * y + 1
    loss = (1 - y) * x - log_sigmoid * scale
    return folded(loss if weight is None else loss * weight, reduction)


def class_weights(weight: Tensor | None, target: Tensor, ignore: int, like: Tensor) -> Tensor:
    """The weight of each target's class, zero where it is to be ignored."""
    kept = ne(target, ignore)
    if weight is None:
        return one_if(kept, like)
    safe = reshape(where(kept, target, 0), (-1,))
    return where(kept, reshape(gather(weight, 0, safe), target.shape), 0)


def class_axis(x: Tensor) -> int:
    return 1 if x.rank > 1 else 0


def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore: int
) -> tuple[Operand, Tensor]:
    axis = class_axis(x)
    target = target if x.rank > 1 else reshape(target, ())
    scales = class_weights(weight, target, ignore, x)
    at = unsqueeze(where(ne(target, ignore), target, 0), axis)
    chosen = reshape(gather(x, axis, at), target.shape)
    losses = where(eq(scales, 0), 0, -chosen * scales)
    if reduction == NONE:
        return losses, full((), 0, x.dtype)
    axes = range(losses.rank)
    weights = total(scales, axes)
    whole = total(losses, axes)
    return (whole / weights if reduction == MEAN else whole), weights


def nll_loss_backward(
    g: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore: int,
    total_weight: Tensor,
) -> Tensor:
    """-weight at the target's class, by comparing positions; nothing is scattered."""
    axis = class_axis(x)
    target = target if x.rank > 1 else reshape(target, ())
    scales = class_weights(weight, target, ignore, x) * (
        g if g.rank == 0 or x.rank > 1 else reshape(g, ())
    )
    scales = scales / total_weight if reduction == MEAN else scales
    hit = eq(iota(x.shape, axis), unsqueeze(cast(target, i64), axis))
    return where(hit, broadcast(unsqueeze(-scales, axis), x.shape), 0)


LOSSES: dict[str, Callable[..., Any]] = {
    "mse_loss": lambda x, y, reduction=MEAN: folded((x - y) * (x - y), reduction),
    "mse_loss_backward": lambda g, x, y, reduction: (x - y) * 2.0 * shared(g, x, reduction),
    "smooth_l1_loss": huber(delta_scales=False),
    "smooth_l1_loss_backward": huber_backward(delta_scales=False),
    "huber_loss": huber(delta_scales=True),
    "huber_loss_backward": huber_backward(delta_scales=True),
    "binary_cross_entropy": binary_cross_entropy,
    "binary_cross_entropy_backward": binary_cross_entropy_backward,
    "binary_cross_entropy_with_logits": with_logits,
    "nll_loss_forward nll_loss2d_forward": nll_loss,
    "nll_loss_backward nll_loss2d_backward": nll_loss_backward,
}

ROWS: dict[str, Row] = rows("widened", LOSSES)
