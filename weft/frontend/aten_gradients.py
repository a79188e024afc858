"""Gradients of ATen ops that those of their parts are not, at a tie or where parts have none.

backward = OWN[aten.hardtanh.default]      # backward(g, y, x, -1, 1): in ATen's own operators
hardtanh is two clamps, which pass a gradient at their bounds: torch's does not.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
Tensor = torch.Tensor


def hardtanh(g: Tensor, y: Tensor, x: Tensor, low: float = -1, high: float = 1) -> Tensor:
    return torch.where((x <= low) | (x >= high), 0, g)


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


def _kept(y: Tensor, x: Tensor, dim: Any) -> Tensor:
    """A reduction's result with the axes of length 1 that it dropped."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return y.reshape([1] * x.dim())
    dims = {d % max(x.dim(), 1) for d in (dim if isinstance(dim, list | tuple) else [dim])}
    return y.reshape([1 if d in dims else n for d, n in enumerate(x.shape)])


OWN: dict[Any, Callable[..., Tensor | None]] = {
    aten.hardtanh.default: hardtanh,
    aten.hardsigmoid.default: hardsigmoid,
    aten.hardswish.default: hardswish,
    aten.log_sigmoid_forward.default: log_sigmoid,
    aten.sinc.default: sinc,
    aten.logsumexp.default: logsumexp,
    aten._safe_softmax.default: safe_softmax,
    aten.linalg_vector_norm.default: vector_norm,
}
