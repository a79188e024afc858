"""Running maxima, minima and sums of exponentials: as eager, their gradients too, of any size."""

from __future__ import annotations

import pytest
import torch

import weft

OPS = ("cummax", "cummin", "logcumsumexp")


def values(name: str, x: torch.Tensor, d: int) -> torch.Tensor:
    out = getattr(x, name)(d)
    return out if name == "logcumsumexp" else out.values


@pytest.mark.parametrize("d", (0, 1))
@pytest.mark.parametrize("name", OPS)
def test_gradients(name: str, d: int) -> None:
    x = (torch.randn(9, 70).double() * 4).round().requires_grad_()
    y, w = x.detach().clone().requires_grad_(), torch.randn(9, 70)
    f = weft.compile(lambda x: values(name, x, d) * w, fallback="error")
    f(y).sum().backward()
    (values(name, x, d) * w).sum().backward()
    torch.testing.assert_close(y.grad, x.grad)


@pytest.mark.parametrize("name", OPS)
def test_any_size(name: str) -> None:
    f = weft.compile(lambda x: getattr(x, name)(-1), dynamic=True, fallback="error")
    for shape in ((3, 5), (7, 300), (1, 1), (40, 64)):
        x = (torch.randn(shape) * 3).round()
        torch.testing.assert_close(f(x), getattr(x, name)(-1))


def test_results_share_a_kernel() -> None:
    f = weft.compile(lambda x: x.cummax(1), fallback="error")
    f(torch.randn(4, 50))
    assert f.ir("loop").count("\nkernel") == 1
