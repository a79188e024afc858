"""What is kept for a backward: no values of which a shape is read, narrow positions, one view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

import weft


def kept(f: Callable[..., Tensor], *inputs: Tensor) -> list[tuple[torch.dtype, int]]:
    """Dtypes and elements of what a call keeps beside its inputs, in order of size."""
    found: dict[int, Tensor] = {}

    def pack(t: Tensor) -> Tensor:
        found.setdefault(t.untyped_storage().data_ptr(), t)
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        f(*inputs).sum().backward()
    own = {t.untyped_storage().data_ptr() for t in inputs}
    return sorted(
        ((t.dtype, t.numel()) for at, t in found.items() if at not in own), key=lambda k: k[1]
    )


def check(f: Callable[..., Tensor], *inputs: Tensor) -> list[tuple[torch.dtype, int]]:
    """What is kept, with gradients equal to eager's."""
    twins = [t.detach().clone().requires_grad_() for t in inputs]
    f(*twins).sum().backward()
    found = kept(weft.compile(f), *inputs)
    for t, twin in zip(inputs, twins, strict=True):
        torch.testing.assert_close(t.grad, twin.grad)
    return found


@pytest.mark.parametrize(("size", "narrow"), [(16, torch.uint8), (20, torch.int16)])
def test_pooling_keeps_narrow_positions_alone(size: int, narrow: torch.dtype) -> None:
    x = torch.randn(2, 3, size, size, requires_grad=True)
    found = check(lambda x: F.max_pool2d(x.sin().relu(), 2), x)
    assert found == [(narrow, 6 * size**2 // 4)]


def test_pooling_to_a_mean_keeps_nothing() -> None:
    x, y = (torch.randn(2, 3, 8, 8, requires_grad=True) for _ in range(2))
    assert check(lambda x: F.avg_pool2d(x * 2, 2), x) == []
    assert check(lambda y: F.adaptive_avg_pool2d(y * 2, 3), y) == []


def test_adaptive_pooling_keeps_positions_alone() -> None:
    x = torch.randn(2, 3, 10, 9, requires_grad=True)
    found = check(lambda x: F.adaptive_max_pool2d(x.sin(), (4, 3)), x)
    assert found == [(torch.uint8, 72)]


def test_attention_keeps_no_square_of_its_length() -> None:
    q, k, v = (torch.randn(1, 2, 64, 8, requires_grad=True) for _ in range(3))
    found = check(lambda q, k, v: F.scaled_dot_product_attention(q * 2, k, v).tanh(), q, k, v)
    assert max(n for _, n in found) == 2 * 64 * 8


def test_a_tensor_and_its_transpose_are_kept_once() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(8, 8, bias=False), torch.randn(4, 6, 8, requires_grad=True)
    w = linear.weight

    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x @ w
        return y.exp().transpose(0, 1).reshape(24, 8) @ w + y.exp().reshape(24, 8)

    assert sum(n for _, n in check(f, x, w)) <= 2 * x.numel()


def test_a_tensor_and_its_multiples_are_kept_once() -> None:
    torch.manual_seed(0)
    x, w = (torch.randn(n).mul(0.1).requires_grad_() for n in ((6, 8), (8, 48)))

    def f(x: Tensor, w: Tensor) -> Tensor:
        q, k, v = (x @ w).chunk(3, 1)
        return ((q * 0.5) @ (k / 2).t()) @ v

    assert [n for _, n in check(f, x, w)] == [36, 6 * 48]


def test_results_that_are_views() -> None:
    def f(x: Tensor) -> Any:
        a, b = (x * 2).exp().split(3, 1)
        return (a.t() * b.sum()).t().reshape(-1)

    x = torch.randn(4, 6, requires_grad=True)
    check(f, x)


def test_a_difference_is_kept_and_not_what_it_is_of() -> None:
    """Although one side is a view, which is never kept itself."""
    torch.manual_seed(0)
    x, w, y = torch.randn(4, 6), torch.randn(6, 8, requires_grad=True), torch.randn(8, 4)
    found: set[int] = set()

    def pack(t: Tensor) -> Tensor:
        found.add(t.untyped_storage().data_ptr())
        return t

    f = weft.compile(lambda x, w, y: F.mse_loss((x @ w).t(), y))
    with saved_tensors_hooks(pack, lambda t: t):
        f(x, w, y).backward()
    assert w.grad is not None
    twin = w.detach().clone().requires_grad_()
    F.mse_loss((x @ twin).t(), y).backward()
    torch.testing.assert_close(w.grad, twin.grad)
    assert x.data_ptr() in found and y.data_ptr() not in found


def test_copies_of_one_tensor_are_made_again() -> None:
    """As rotary embeddings have them: torch's cut knows no cat that is made twice."""

    def f(q: Tensor, x: Tensor) -> Tensor:
        half = x.detach() * 2
        angle = torch.cat([half, half], 1)
        return q * angle.cos() + (q * angle.sin()).tanh() + x.sum() * 0

    assert (
        check(f, torch.randn(4, 8, requires_grad=True), torch.randn(4, 4, requires_grad=True)) == []
    )


COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "cat": lambda x: torch.cat([x, x]),
    "repeat": lambda x: x.repeat(2, 1),
    "pad": lambda x: F.pad(x, (0, 0, 4, 4)),
    "of a view": lambda x: torch.cat([x.view(4, 16).view(8, 8), x]),
}


@pytest.mark.parametrize("case", COPIES)
def test_a_copy_of_an_input_is_as_that_was(case: str) -> None:
    f = weft.compile(lambda x, w: (w * COPIES[case](x)).sum(0))
    x, w = torch.ones(8, 8), torch.randn(16, 8, requires_grad=True)
    wanted = COPIES[case](x).clone()
    y = f(x, w)
    x.data.mul_(2)  # of which torch knows nothing
    y.sum().backward()
    torch.testing.assert_close(w.grad, wanted)
