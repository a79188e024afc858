"""Floats as arguments: a second value makes an input of one, where ops take it for a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft

Program = Callable[[torch.Tensor, float], Any]
VALUES = (1.5, 2.5, 3.5, 0.1, -0.7)
FREE: dict[str, Program] = {
    "an expression": lambda x, by: x * by + (by * 2 + 1) / 3,
    "division": lambda x, by: x / by + by / (x * x + 1) + 1 / by,
    "power": lambda x, by: (x.abs() + 1) ** by,
    "comparison": lambda x, by: x > by,
    "a number by a number": lambda x, by: x.sum() * by,
    "addcdiv": lambda x, by: torch.addcdiv(x, x + 1, x * x + 1, value=by),
    "masked_fill": lambda x, by: x.masked_fill(x > 0, by),
    "temperature": lambda x, by: torch.softmax(x.float() / by, -1),
    "in place": lambda x, by: x.mul_(by).add_(by),
    "size": lambda x, by: x * by * x.shape[0],
}
FIXED: dict[str, Program] = {
    "slope": lambda x, by: F.leaky_relu(x, by),
    "eps": lambda x, by: F.layer_norm(x.float(), (3,), eps=abs(by)),
    "alpha": lambda x, by: torch.add(x, x, alpha=by),
    "result": lambda x, by: (x * by, by * 2),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64)


def run(f: Program, fn: Program, dtype: torch.dtype) -> None:
    """Against eager; in bf16, where eager rounds each step, against constants in its place."""
    want = fn if dtype is not torch.bfloat16 else weft.compile(fn, dynamic=False)
    for i, value in enumerate(VALUES):
        x = torch.randn(2 + i, 3).mul(4).to(dtype)
        torch.testing.assert_close(f(x.clone(), value), want(x.clone(), value))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FREE)
def test_a_float_is_an_input(name: str, dtype: torch.dtype) -> None:
    if name in ("in place", "addcdiv") and not dtype.is_floating_point:
        pytest.skip("eager refuses it")
    f = weft.compile(FREE[name])
    run(f, FREE[name], dtype)
    assert len(f.programs) == 2 and not f.reasons


@pytest.mark.parametrize("name", FIXED)
def test_else_each_value_has_a_program(name: str) -> None:
    f = weft.compile(FIXED[name])
    run(f, FIXED[name], torch.float32)
    assert not f.reasons


def test_a_branch_on_a_float_is_guarded() -> None:
    def fn(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * 2 if by > 1 else x * by

    f = weft.compile(fn)
    run(f, fn, torch.float32)
    assert len(f.programs) <= 4


def test_gradients_take_it_too() -> None:
    module = torch.nn.Linear(3, 3)
    f = weft.compile(lambda x, by: (module(x) * by + by).sum())
    for by in VALUES:
        x = torch.randn(4, 3)
        got, want = (torch.autograd.grad(g(x, by), module.parameters()) for g in (f, f._weft.fn))
        torch.testing.assert_close(got, want)
    assert len(f.programs) == 4
