"""What a program does beside computing: Python's own effects, seeds, draws, methods of classes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft


def same(ours: torch.Tensor, eager: torch.Tensor) -> None:
    torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)


def test_python_runs_at_every_call(entry: Any) -> None:
    seen: list[Any] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * random.random()
        seen.append(y)
        return y

    f, x = entry(program), torch.ones(3)
    random.seed(0)
    ours = [f(x) for _ in range(3)]
    random.seed(0)
    eager = [program(x) for _ in range(3)]
    for a, b in zip(ours, eager, strict=True):
        same(a, b)
    assert [type(t) for t in seen] == [torch.Tensor] * 6


def test_a_seed_inside(entry: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return x + torch.rand(3)

    f, x = entry(program), torch.ones(3)
    for _ in range(3):
        torch.rand(1)
        same(f(x), program(x))


def test_methods_of_one_class() -> None:
    torch.compiler.reset()

    class A:
        f = weft.compile(lambda self, x: x + 1)
        g = weft.compile(lambda self, x: x * 10)

        @weft.compile
        def h(self, x: torch.Tensor) -> torch.Tensor:
            return x + 2

    class B(A):
        __slots__ = ("by",)

        @weft.compile
        def h(self, x: torch.Tensor) -> torch.Tensor:
            return super().h(x) * self.by

    a, b, x = A(), B(), torch.ones(3)
    b.by = 3.0
    same(a.f(x), x + 1)
    same(a.g(x), x * 10)
    same(b.h(x), (x + 2) * 3)
    b.by = 4.0
    same(b.h(x), (x + 2) * 4)


def test_a_draw_in_training_and_none_in_evaluation(entry: Any) -> None:
    m, x = nn.Dropout(0.5), torch.ones(100)
    f = entry(m)
    for mode in (True, False, True):
        m.train(mode)
        torch.manual_seed(1)
        ours = f(x)
        torch.manual_seed(1)
        same(ours, m(x))
    m.p = 0.9
    torch.manual_seed(1)
    ours = f(x)
    torch.manual_seed(1)
    same(ours, m(x))


def draws_in_order(x: torch.Tensor) -> Any:
    a, b = torch.rand_like(x), torch.rand_like(x)
    return b - a * 2, torch.bernoulli(a), torch.randint(0, 9, (4,)), torch.bernoulli(a)


def draws_and_drops(x: torch.Tensor) -> Any:
    torch.rand(5)
    y = F.dropout(x, 0.5)
    torch.randn_like(x)
    return y * 2


def draws_into(x: torch.Tensor) -> Any:
    y = x.clone()
    y.normal_()
    z = y + torch.zeros(3).uniform_()
    return z.exponential_() * x


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", [draws_in_order, draws_and_drops, draws_into])
def test_seeded_draws(entry: Any, program: Any, grad: bool) -> None:
    """The same numbers as in eager, and the generator where eager leaves it."""
    f, x = entry(program), torch.ones(2, 3, requires_grad=grad)
    for seed in range(2):
        found: list[Any] = []
        for one in (f, program):
            torch.manual_seed(seed)
            found.append((one(x), torch.rand(2)))
        torch.testing.assert_close(*found)


def unsqueezed(y: torch.Tensor) -> Any:
    y.unsqueeze_(-1)
    return y.shape, y.stride(), y.dim(), len(y)


def unsqueezed_by_another_name(y: torch.Tensor) -> Any:
    z = y.unsqueeze_(0)
    torch.ops.aten.unsqueeze_(z, 0)
    return y.shape, z.shape, [len(row) for row in y]


def transposed(y: torch.Tensor) -> Any:
    return y.t_().shape, y.stride(), y.is_contiguous(), y.size(0)


@pytest.mark.parametrize("look", [unsqueezed, unsqueezed_by_another_name, transposed])
def test_shapes_that_change_in_place(entry: Any, look: Any) -> None:
    """Dynamo goes on with the old ones: dynamo_mended.py."""

    def program(x: torch.Tensor) -> Any:
        y = x * 2
        return look(y), y + 1

    x = torch.arange(6.0).reshape(2, 3)
    facts, value = entry(program)(x)
    expected, eager = program(x)
    assert facts == expected
    same(value, eager)


def test_guards_are_not_timed() -> None:
    """Dynamo would flush the CPU's caches for each frame: dynamo_mended.py."""
    assert torch._dynamo.guards.profile_guard_manager(None, {}, 1) == 0.0
