"""Gradients of products: by quotients, right where elements are 0, and again differentiable."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft

FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": lambda x: x.prod(),
    "rows": lambda x: x.prod(1),
    "columns": lambda x: torch.prod(x, 0),
    "kept": lambda x: x.prod(-1, keepdim=True),
    "named": lambda x: torch.prod(x, dim=-2, keepdim=True),
    "of an input with a name": lambda x: torch.prod(input=x, dim=1),
    "of a product": lambda x: (x * x.prod(1, keepdim=True)).prod(0),
}


def given(zeros: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(5, 7)
    for i in range(zeros):
        x[1, i] = x[i, 2] = 0
    return x.to(dtype)


def gradient(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, **how: Any) -> Any:
    y = x.clone().requires_grad_()
    out = f(y)
    weight = torch.arange(1.0, out.numel() + 1, dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * weight).sum(), y, **how)[0]


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_values(form: str, zeros: int) -> None:
    f, x = FORMS[form], given(zeros)
    wanted = gradient(f, x.double())
    compiled = torch.compile(f, backend="weft", fullgraph=True)
    torch.testing.assert_close(gradient(compiled, x).double(), wanted, rtol=2e-6, atol=1e-6)
    step = weft.compile(lambda x: gradient(f, x))
    torch.testing.assert_close(step(x).double(), wanted, rtol=2e-6, atol=1e-6)
    assert not step.reasons


def test_no_scans() -> None:
    """Torch's own takes two of every row."""
    step = weft.compile(lambda x: gradient(lambda x: x.prod(1), x))
    step(given(1))
    assert "scan" not in step.ir("tensor")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_floats(dtype: torch.dtype) -> None:
    x = given(1, dtype)
    wanted = gradient(FORMS["rows"], x.double())
    found = gradient(torch.compile(FORMS["rows"], backend="weft"), x)
    assert found.dtype == dtype
    rounding = {"rtol": 2 * torch.finfo(dtype).eps, "atol": 1e-12}
    torch.testing.assert_close(found.double(), wanted, **rounding)


def test_out_of_range_of_f32_on_the_way() -> None:
    """The product of all is no f32, though those of the others are."""
    x = torch.tensor([[1e30, 1e30, 1e-30], [1e-30, 1e-30, 1e20]])
    found = gradient(torch.compile(lambda x: x.prod(1), backend="weft"), x)
    wanted = gradient(lambda x: x.prod(1), x.double()).float()
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)


def test_ends() -> None:
    x = torch.tensor([[1.0, torch.nan, 2], [torch.inf, 2, 3], [-0.0, 2, 3]])
    found = gradient(torch.compile(lambda x: x.prod(1), backend="weft"), x)
    wanted = gradient(lambda x: x.prod(1), x[:1])  # without a 0, of which eager takes scans
    torch.testing.assert_close(found[:1], wanted, equal_nan=True)
    assert torch.equal(found[1, 1:], torch.tensor([torch.inf, torch.inf]))
    assert torch.equal(found[2], torch.tensor([18.0, 0, 0]))
    empty = torch.zeros(3, 0)
    assert gradient(torch.compile(lambda x: x.prod(1), backend="weft"), empty).shape == (3, 0)
    number = torch.tensor(3.0)
    assert gradient(torch.compile(lambda x: x.prod(), backend="weft"), number) == 1


@pytest.mark.parametrize("zeros", [0, 1])
def test_second_derivatives(zeros: int) -> None:
    x = given(zeros)

    def second(f: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(f(y).sum(), y, create_graph=True)
        return torch.autograd.grad((g * g).sum(), y)[0]

    f = FORMS["rows"]
    wanted = second(f, x.double())
    found = weft.compile(lambda x: second(f, x))(x)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_what_is_beside_a_0_and_not_finite_is_not_lost() -> None:
    x = torch.tensor([[0.0, math.nan, 3.0], [0.0, math.inf, 2.0]])
    found, wanted = (x.clone().requires_grad_() for _ in range(2))
    weft.compile(lambda x: x.prod(1).sum(), fallback="error")(found).backward()
    wanted.prod(1).sum().backward()
    torch.testing.assert_close(found.grad, wanted.grad, equal_nan=True)
