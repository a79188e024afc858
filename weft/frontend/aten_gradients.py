"""Gradients of ATen ops that those of their parts are not, at a tie or where parts have none.

backward = OWN[aten.hardtanh.default]      # backward(g, y, x, -1, 1): in ATen's own operators
hardtanh is two clamps, which pass a gradient at their bounds: torch's does not. A backward of
several tensors gives a list, one gradient for each float tensor among the arguments, in order.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from weft.library import ctc  # noqa: F401  # pyright: ignore[reportUnusedImport]  # an operator

aten, weft = torch.ops.aten, torch.ops.weft
Tensor = torch.Tensor


def hardtanh(g: Tensor, y: Tensor, x: Tensor, low: float = -1, high: float = 1) -> Tensor:
    return torch.where((x <= low) | (x >= high), 0, g)


def clamp(g: Tensor, y: Tensor, x: Tensor, low: Any = None, high: Any = None) -> list[Tensor]:
    """At a bound all of it is x's; bounds that cross are the higher one."""
    inside, found = torch.ones_like(x, dtype=torch.bool), list[Tensor]()
    if low is not None:
        inside = inside & (x >= low)
        found.append((x < low) if high is None else (x < low) & (low < high))
    if high is not None:
        inside = inside & (x <= high)
        found.append((x > high) if low is None else (x > high) | (high < low))
    tensors = [t for t in (x, low, high) if t is not None]
    shares = (torch.where(named, g, 0) for named in (inside, *found))
    pairs = zip(tensors, shares, strict=True)
    return [_summed_to(share, t) for t, share in pairs if t.is_floating_point()]


def clamp_max(g: Tensor, y: Tensor, x: Tensor, high: Any) -> list[Tensor]:
    return clamp(g, y, x, None, high)


def _larger(wins: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """fmax and fmin: a tie is the first one's."""

    def backward(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
        first = wins(a, b) | torch.isnan(b)
        shares = torch.where(first, g, 0), torch.where(first, 0, g)
        return [
            _summed_to(share, t)
            for t, share in zip((a, b), shares, strict=True)
            if t.is_floating_point()
        ]

    return backward


def _summed_to(g: Tensor, x: Tensor) -> Tensor:
    """The gradient of what a tensor was spread to."""
    return g.sum_to_size(x.shape).to(x.dtype)


def hardsigmoid(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return torch.where((x > -3) & (x < 3), g / 6, 0)


def hardswish(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return torch.where(x <= -3, 0, torch.where(x < 3, g * (x / 3 + 0.5), g))


def log_sigmoid(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return g * torch.sigmoid(-x)


def sinc(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    zero, angle = x == 0, x * math.pi
    slope = (angle * torch.cos(angle) - torch.sin(angle)) / torch.where(zero, 1, angle * x)
    return torch.where(zero, 0, g * slope)


def logsumexp(g: Tensor, y: Tensor, x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    g, y = (t if keepdim else _kept(t, x, dim) for t in (g, y))
    return g * torch.exp(x - torch.where(y == -math.inf, 0, y))


def safe_softmax(g: Tensor, y: Tensor, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return (y * (g - (g * y).sum(dim, keepdim=True))).to(x.dtype)


def vector_norm(
    g: Tensor,
    y: Tensor,
    x: Tensor,
    order: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    **_: Any,
) -> Tensor | None:
    """Of order 2; None: of others those of the parts."""
    if order != 2:
        return None
    g, y = (t if keepdim else _kept(t, x, dim) for t in (g, y))
    zero = y == 0
    return torch.where(zero, 0, g * (x / torch.where(zero, 1, y))).to(x.dtype)


def ctc_loss(g: Tensor, y: Tensor, *given: Any) -> Tensor:
    """Of losses, by the states that the same call gives; those of its parts are NaN."""
    found = weft.ctc_loss.default(*given)
    return weft.ctc_loss_backward.default(g, *given[:4], *found, *given[4:])


def _kept(y: Tensor, x: Tensor, dim: Any) -> Tensor:
    """A reduction's result with the axes of length 1 that it dropped."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return y.reshape([1] * x.dim())
    dims = {d % max(x.dim(), 1) for d in (dim if isinstance(dim, list | tuple) else [dim])}
    return y.reshape([1 if d in dims else n for d, n in enumerate(x.shape)])


OWN: dict[Any, Callable[..., Tensor | list[Tensor] | None]] = {
    aten.clamp.Tensor: clamp,
    aten.clamp_min.Tensor: clamp,
    aten.clamp_max.Tensor: clamp_max,
    aten.fmax.default: _larger(torch.ge),
    aten.fmin.default: _larger(torch.le),
    aten.hardtanh.default: hardtanh,
    aten.hardsigmoid.default: hardsigmoid,
    aten.hardswish.default: hardswish,
    aten.log_sigmoid_forward.default: log_sigmoid,
    aten.sinc.default: sinc,
    aten.logsumexp.default: logsumexp,
    aten._safe_softmax.default: safe_softmax,
    aten.linalg_vector_norm.default: vector_norm,
    weft.ctc_loss.default: ctc_loss,
}
