"""A small network with dropout and batch norm, and its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.train import State, Step, optimisers, schedules

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
SIMPLE = optimisers.sgd(0.9)


def network(spread: float = 0.25, norm: bool = True) -> nn.Module:
    torch.manual_seed(5)
    first = nn.BatchNorm1d(8) if norm else nn.Identity()
    return nn.Sequential(nn.Linear(6, 8), first, nn.ReLU(), nn.Dropout(spread), nn.Linear(8, 1))


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


def batches(place: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(place)
    x = torch.randn(16, 6, generator=draw)
    return x, x.square().sum(1, keepdim=True)


def started(
    compile: Compile, check_finite: bool = False, optimiser: optimisers.Optimiser = SIMPLE
) -> Step:
    state = State(network(norm=compile is eager), optimiser, seed=7)
    rate = schedules.warm_up(3, schedules.cosine(0.05, 20))
    return Step(loss, state, rate, check_finite, compile)


def eager(f: Callable[..., Any]) -> Callable[..., Any]:
    return f
