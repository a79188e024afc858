"""Adaptive pooling and its gradients against eager: bins of any length, ties, NaN, free sizes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from tests.frontend.test_aten import failure

aten = torch.ops.aten
FILLS: list[float | None] = [None, None, None, float("nan"), float("-inf"), 1.0]


@pytest.mark.parametrize("rank", [2, 3])
def test_calls_agree_with_eager(rank: int) -> None:
    draw = random.Random(rank)
    torch.manual_seed(0)
    for fill in FILLS * 5:
        n = [draw.randint(1, 9) for _ in range(rank)]
        m = [draw.randint(1, 7) for _ in range(rank)]
        dtype = draw.choice((torch.float32, torch.float64, torch.bfloat16))
        x = torch.randn(*draw.choice(((2, 3), (3,))), *n).to(dtype)
        if fill is not None:
            x[..., 0] = fill
        average, largest = (
            (getattr(aten, f"{name}_pool{rank}d").default)
            for name in ("_adaptive_avg", "adaptive_max")
        )
        values, at = largest(x, m)
        g = torch.randn_like(values)
        back = [
            (getattr(aten, f"{name}_pool{rank}d_backward").default)
            for name in ("_adaptive_avg", "adaptive_max")
        ]
        calls: list[Any] = [(average, (x, m)), (largest, (x, m))]
        for op, args in [*calls, (back[0], (g, x)), (back[1], (g, x, at))]:
            assert failure(op, args, {}, op(*args)) is None


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_calls_agree_with_eager(rank: int) -> None:
    """A size of two and more: of one ATen's check of the kernel is off by one."""
    draw = random.Random(rank)
    torch.manual_seed(0)
    op, back = (getattr(aten, f"fractional_max_pool{rank}d{end}") for end in ("", "_backward"))
    for fill in FILLS * 3:
        n = [draw.randint(4, 9) for _ in range(rank)]
        kernel = [draw.randint(1, 2) for _ in range(rank)]
        m = [draw.randint(2, a - k) for a, k in zip(n, kernel, strict=True)]
        dtype = draw.choice((torch.float32, torch.float64))
        lead = draw.choice(((2, 3), (3,)))
        x = torch.randn(*lead, *n, dtype=dtype)
        if fill is not None:
            x[..., 0] = fill
        args = x, kernel, m, torch.rand(lead[0] if len(lead) > 1 else 1, 3, rank, dtype=dtype)
        values, at = op(*args)
        assert failure(op.default, args, {}, (values, at)) is None
        args = torch.randn_like(values), x, kernel, m, at
        assert failure(back.default, args, {}, back(*args)) is None


def gradient(fn: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    out = fn(x)
    return torch.autograd.grad(out, x, torch.linspace(-1, 2, out.numel()).reshape(out.shape))[0]


@pytest.mark.parametrize("pool", [F.adaptive_avg_pool2d, F.adaptive_max_pool2d])
@pytest.mark.parametrize("size", [(3, 4), (12, 1), (6, 5)])
def test_in_training(pool: Any, size: tuple[int, int]) -> None:
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return pool(x, size)

    compiled = weft.compile(pooled)
    x = torch.randn(2, 3, 12, 10)
    torch.testing.assert_close(gradient(compiled, x), gradient(pooled, x))
    assert not compiled.report.externs
    assert "scatter" not in compiled.ir("tensor")


@pytest.mark.parametrize("pool", [F.adaptive_avg_pool2d, F.adaptive_max_pool2d])
def test_sizes_that_are_free(pool: Any) -> None:
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return pool(x, (3, 4))

    compiled = weft.compile(pooled, dynamic=True)
    for shape in ((2, 3, 11, 10), (4, 2, 9, 17), (3, 5, 31, 6)):
        x = torch.randn(shape)
        torch.testing.assert_close(gradient(compiled, x), gradient(pooled, x))
