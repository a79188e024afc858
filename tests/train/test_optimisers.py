"""Optimisers over twenty steps beside torch.optim in float64, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

import weft
from weft.train import optimisers as own

SHAPES = ((3, 4), (5,), (), (2, 1, 3))
STEPS, RATE = 20, 0.03
Torch = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
SAME: dict[str, tuple[own.Optimiser, Torch]] = {
    "sgd": (own.sgd(), lambda p: torch.optim.SGD(p, RATE)),
    "momentum": (own.sgd(0.9), lambda p: torch.optim.SGD(p, RATE, 0.9)),
    "nesterov": (own.sgd(0.9, True), lambda p: torch.optim.SGD(p, RATE, 0.9, nesterov=True)),
    "adam": (own.adam((0.8, 0.99), 1e-6), lambda p: torch.optim.Adam(p, RATE, (0.8, 0.99), 1e-6)),
    "adamw": (own.adamw(weight_decay=0.1), lambda p: torch.optim.AdamW(p, RATE, weight_decay=0.1)),
    "radam": (own.radam((0.9, 0.9)), lambda p: torch.optim.RAdam(p, RATE, (0.9, 0.9))),
    "rmsprop": (own.rmsprop(), lambda p: torch.optim.RMSprop(p, RATE)),
}


def start(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(3)
    return [torch.randn(shape, dtype=dtype) for shape in SHAPES]


def gradients(params: Iterable[Tensor]) -> list[Tensor]:
    """Of the sum of sin(x) + x**2 / 3: of both signs."""
    return [p.cos() + 2 / 3 * p for p in params]


def trained(
    optimiser: own.Optimiser, params: list[Tensor], update: Any = None, rate: float = RATE
) -> list[Tensor]:
    update, state = update or optimiser.update, optimiser.init(params)
    for i in range(STEPS):
        step, size = (torch.tensor(x, dtype=torch.float64) for x in (i + 1.0, rate))
        params, state = update(gradients(params), state, params, step, size)
    return params


def by_torch(make: Torch, most: float | None = None) -> list[Tensor]:
    params = [p.requires_grad_() for p in start()]
    optimiser = make(params)
    for _ in range(STEPS):
        for p, g in zip(params, gradients(p.detach() for p in params), strict=True):
            p.grad = g
        if most is not None:
            torch.nn.utils.clip_grad_norm_(params, most)
        optimiser.step()
    return [p.detach() for p in params]


def close(found: list[Tensor], wanted: list[Tensor], tolerance: float = 1e-12) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SAME)
def test_equal_to_torch(name: str) -> None:
    optimiser, make = SAME[name]
    before = start()
    close(trained(optimiser, before), by_torch(make))
    close(before, start(), 0)  # the function is pure


def test_radam_passes_both_branches() -> None:
    """With a square's share of 0.9 the variance is known from step 6 on; both must be seen."""
    known = [19 - 2 * t * 0.9**t / (1 - 0.9**t) for t in (5, 6)]
    assert known[0] < 5 < known[1]


def test_clip() -> None:
    clipped = trained(own.clip(own.adam(eps=1e-2), 0.5), start())
    close(clipped, by_torch(lambda p: torch.optim.Adam(p, RATE, eps=1e-2), 0.5))
    free = trained(own.adam(eps=1e-2), start())
    assert not torch.equal(clipped[0], free[0])
    close(trained(own.clip(own.adam(), 1e9), start()), trained(own.adam(), start()))


def test_lion() -> None:
    params = start()
    moments = [torch.zeros_like(p) for p in params]
    for _ in range(STEPS):
        for i, g in enumerate(gradients(params)):
            params[i] = params[i] - RATE * torch.sign(0.9 * moments[i] + 0.1 * g)
            moments[i] = 0.99 * moments[i] + 0.01 * g
    close(trained(own.lion(), start()), params)


def test_ranger() -> None:
    fast, slow = [p.requires_grad_() for p in start()], start()
    inner = torch.optim.RAdam(fast, RATE, (0.95, 0.999), 1e-5)
    for step in range(1, STEPS + 1):
        for p, g in zip(fast, gradients(p.detach() for p in fast), strict=True):
            p.grad = g
        inner.step()
        if step % 6 == 0:
            slow = [s + 0.5 * (f.detach() - s) for s, f in zip(slow, fast, strict=True)]
            for p, s in zip(fast, slow, strict=True):
                p.data.copy_(s)
    close(trained(own.ranger(), start()), [p.detach() for p in fast])


def test_bounded() -> None:
    found = trained(own.bounded(own.sgd(), 0.25), [torch.full((3,), 2.0), torch.zeros(2)])
    assert all(p.abs().max() <= 0.25 for p in found)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_compiled(dtype: torch.dtype) -> None:
    """With a rate and a step as tensors one program serves all steps; dtypes stay."""
    optimiser = own.clip(own.ranger(every=3), 1.0)
    compiled = weft.compile(optimiser.update)
    wanted = trained(optimiser, start(dtype))
    found = trained(optimiser, start(dtype), compiled)
    assert len(compiled.programs) == 1 and not compiled.reasons
    close(found, wanted, {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 3e-2))
