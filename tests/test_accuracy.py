"""Long sums are as accurate as eager's: error against float64 at most twice eager's, floor 1e-6."""

from __future__ import annotations

import pytest
import torch

import weft

SUMS = {
    "all": (lambda x: x.sum(), (1 << 20,)),
    "rows": (lambda x: x.sum(1), (8, 1 << 15)),
    "columns": (lambda x: x.mean(0), (1 << 15, 40)),
    "products": (lambda x: x.T @ x, (1 << 15, 20)),
    "windows": (lambda x: x.var((0, 2, 3)), (40, 3, 37, 41)),
    "short_outside": (lambda x: x.sum((0, 1)), (3, 1 << 14, 17)),
}


@pytest.mark.parametrize("name", SUMS)
def test_long_sum(name):
    torch.manual_seed(0)
    f, shape = SUMS[name]
    x = torch.rand(shape)
    want = f(x.double())

    def error(got: torch.Tensor) -> float:
        return float((got.double() - want).norm() / want.norm())

    assert error(weft.compile(f)(x)) <= max(1e-6, 2 * error(f(x)))
