"""Gradients and optimiser steps of ONNX's training previews.

Momentum(rate, step, x, gradient, momentum, alpha=0.9, beta=1.0, mode="standard", ...)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft.onnx.table import op

TRAINING = "ai.onnx.preview.training"


def each(count: int, step: Callable[..., tuple[Tensor, ...]], tensors: tuple[Tensor, ...]) -> Any:
    """`count` tensors belong to each parameter, given kind by kind, as the results are."""
    number = len(tensors) // count
    rows = [step(*[tensors[kind * number + i] for kind in range(count)]) for i in range(number)]
    return tuple([value for column in zip(*rows, strict=True) for value in column])


@op("Gradient", domain=TRAINING, raw=True)
def gradient(*inputs: Any, body: Callable[..., Any]) -> Any:
    """The gradients of the sum of the body's result."""
    found: Any = torch.func.vjp(lambda *xs: body(*xs)[0], *inputs)
    return found[1](torch.ones_like(found[0]))


@op("Adagrad", domain=TRAINING)
def adagrad(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> Any:
    slow = rate / (1 + step * decay_factor)

    def update(x: Tensor, g: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = norm_coefficient * x + g
        h = h + g * g
        return (x - slow * g / (h.sqrt() + epsilon)).to(x.dtype), h

    return each(3, update, tensors)


@op("Adam", domain=TRAINING)
def adam(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    corrected = rate * torch.sqrt(1 - beta ** step.double()) / (1 - alpha ** step.double())
    rate = torch.where(step > 0, corrected, rate)

    def update(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = norm_coefficient * x + g
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * (g * g)
        moved = x - rate * (v / (h.sqrt() + epsilon))
        return ((1 - norm_coefficient_post) * moved).to(x.dtype), v, h

    return each(4, update, tensors)


@op("Momentum", domain=TRAINING)
def momentum(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    weight = torch.where(step > 0, beta, 1.0)

    def update(x: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        g = norm_coefficient * x + g
        v = (alpha * v + weight * g).to(x.dtype)
        return (x - rate * (g + alpha * v if mode == "nesterov" else v)).to(x.dtype), v

    return each(3, update, tensors)
