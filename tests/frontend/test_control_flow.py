"""Branches and loops of torch's higher-order operators: their bodies are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint

import weft

Program = Callable[[torch.Tensor], Any]
linear = torch.nn.Linear(4, 4)


def branch(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: (x * 2).sin(), lambda x: x - 1, (x,)) + 1


def nested(x: torch.Tensor) -> Any:
    def inner(x: torch.Tensor) -> Any:
        return torch.cond(x.max() > 1, lambda x: x * 3, lambda x: x * 4, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: x - 1, (x,))


def loop(x: torch.Tensor) -> Any:
    start = (torch.tensor(0), x)
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, (x * 1.5).sin()), start)[1] + 1


def running(x: torch.Tensor) -> Any:
    return scan(lambda c, y: (c + y, (c * y).sin()), torch.zeros(4), x)[1]


PROGRAMS: dict[str, tuple[Program, int]] = {  # with the bodies that a call of it compiles
    "cond": (branch, 1),
    "nested": (nested, 1),
    "while_loop": (loop, 2),
    "scan": (running, 1),
    "map": (lambda x: map_rows(lambda r: (r * 2).sin().sum(), x), 1),
    "checkpoint": (lambda x: checkpoint(lambda x: linear(x).sin(), x, use_reentrant=False), 0),
}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_eager_s(name: str, sign: int) -> None:
    fn, bodies = PROGRAMS[name]
    f = weft.compile(fn)
    x = torch.rand(6, 4) * sign
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(f(x), fn(x))
    assert len(f.programs) >= bodies
    assert all("whose bodies alone are compiled" in reason for reason in f.reasons)


@pytest.mark.parametrize("name", ["cond", "scan", "map", "checkpoint"])
def test_gradients_are_eager_s(name: str) -> None:
    fn, _ = PROGRAMS[name]

    def gradient(f: Program) -> torch.Tensor:
        given = x.detach().requires_grad_()
        return torch.autograd.grad(f(given).sum(), given)[0]

    f = weft.compile(fn)
    for n in (6, 7, 8):
        x = torch.rand(n, 4)
        torch.testing.assert_close(gradient(f), gradient(fn))


def test_bodies_are_compiled_for_later_sizes() -> None:
    f = weft.compile(loop)
    for n in (4, 3, 2, 5):
        x = torch.rand(n)
        torch.testing.assert_close(f(x), loop(x))
