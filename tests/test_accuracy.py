"""Long folds are as accurate as eager's: error against float64 at most twice eager's, or 1e-6."""

from __future__ import annotations

import pytest
import torch

import weft

SCANS = {
    "cumsum": (lambda x: x.cumsum(0), (1 << 20,)),
    "cumsum_rows": (lambda x: x.cumsum(1), (20, 1 << 15)),
    "cumsum_columns": (lambda x: x.cumsum(0), (1 << 15, 20)),
    "cumprod": (lambda x: x.cumprod(0), (1 << 18,)),
    "cumprod_columns": (lambda x: x.cumprod(0), (1 << 15, 20)),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), (1 << 18,)),
    "prod": (lambda x: x.prod(), (1 << 20,)),
    "prod_rows": (lambda x: x.prod(1), (3, 1 << 15)),
}
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
    compare(f, torch.rand(shape), 1e-6)


@pytest.mark.parametrize("name", SCANS)
def test_long_scan_or_product(name):
    torch.manual_seed(0)
    f, shape = SCANS[name]
    compare(f, 1 + torch.randn(shape) * 1e-3, 1e-7)


def test_a_scan_comes_back_into_range():
    """Eager accumulates in f64: what is over the greatest f32 is so only where it is stored."""
    x = torch.tensor([3e38, 3e38, -3e38, 1.0, -3e38])
    for f in (lambda x: x.cumsum(0), lambda x: (x / 1e20).cumprod(0)):
        torch.testing.assert_close(weft.compile(f)(x), f(x))


def compare(f, x, floor):
    want = f(x.double())

    def error(got: torch.Tensor) -> float:
        return float((got.double() - want).norm() / want.norm())

    assert error(weft.compile(f)(x)) <= max(floor, 2 * error(f(x)))
