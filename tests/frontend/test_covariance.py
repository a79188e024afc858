"""Covariances and correlations, which torch's own composite reads values for as it is traced."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from weft.core.errors import WeftError

X = torch.randn(4, 7, generator=torch.Generator().manual_seed(0))
COUNTS, WEIGHTS = torch.tensor([1, 3, 0, 2, 1, 1, 4]), torch.linspace(0.1, 2, 7)
CASES: list[Callable[[], Any]] = [
    lambda: torch.cov(X),
    lambda: torch.corrcoef(X),
    lambda: (torch.corrcoef(X[0]), X[1].cov(), X[:1].corrcoef()),
    lambda: (torch.cov(X[:, :1]), torch.cov(X[:, :1], correction=0), torch.cov(X[:, :0])),
    lambda: torch.cov((X * 9).long()),
    lambda: torch.cov(X.double(), correction=3, fweights=COUNTS),
    lambda: torch.cov(X, correction=0, aweights=WEIGHTS),
    lambda: torch.cov(X, fweights=COUNTS, aweights=WEIGHTS),
    lambda: torch.cov(X, correction=20, fweights=COUNTS),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_values(case: int) -> None:
    compiled = weft.compile(CASES[case], fallback="error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of no degrees of freedom
        torch.testing.assert_close(compiled(), CASES[case](), equal_nan=True)


def test_negative_weights_are_a_fault() -> None:
    compiled = weft.compile(lambda x, w: torch.cov(x, aweights=w), fallback="error")
    compiled(X, WEIGHTS)
    for wrong in (WEIGHTS - 1, torch.zeros(7)):
        with pytest.raises(WeftError):
            compiled(X, wrong)


def test_gradients() -> None:
    a, b = X.clone().requires_grad_(), X.clone().requires_grad_()
    torch.corrcoef(a).sin().sum().backward()
    weft.compile(torch.corrcoef)(b).sin().sum().backward()
    torch.testing.assert_close(a.grad, b.grad)
