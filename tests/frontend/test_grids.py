"""Grid sampling and its gradients against eager: modes, paddings, ends, NaN, infinity, dtypes."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from tests.frontend.test_aten import failure

aten = torch.ops.aten
SHAPES = {2: ((2, 3, 7, 5), (1, 1, 1, 1), (1, 2, 1, 6)), 3: ((2, 2, 4, 3, 5), (1, 1, 1, 2, 1))}
# beyond about 1e6 times its length a float has no place in an image that is reflected
ODD = [0.0, -0.0, -1, 1, 0.5, 3, -3, 99, 1e-8, 0.9999999, 1.0000001, math.nan, math.inf, -math.inf]


def grid_of(rank: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    grid = (torch.rand(n, *(5, 4, 3)[:rank], rank) * 2 - 1) * 1.4
    return grid.to(dtype)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_calls_agree_with_eager(rank: int, padding: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    op, back = (getattr(aten, f"grid_sampler_{rank}d{end}").default for end in ("", "_backward"))
    for mode, align, shape in product(range(5 - rank), (False, True), SHAPES[rank]):
        x, grid = torch.randn(shape, dtype=dtype), grid_of(rank, shape[0], dtype)
        how = mode, padding, align
        out = op(x, grid, *how)
        assert failure(op, (x, grid, *how), {}, out) is None
        args = (torch.randn_like(out), x, grid, *how, [True, True])
        assert failure(back, args, {}, back(*args)) is None
        grid.view(-1)[: len(ODD)] = torch.tensor(ODD, dtype=dtype)
        assert failure(op, (x, grid, *how), {}, op(x, grid, *how)) is None


def gradients(fn: Any, *given: torch.Tensor) -> Any:
    leaves = [t.detach().clone().requires_grad_() for t in given]
    out = fn(*leaves)
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).reshape(out.shape)
    return out.detach(), *torch.autograd.grad(out, leaves, weight)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_in_training(mode: str) -> None:
    def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid, mode=mode, padding_mode="reflection", align_corners=False)

    x, grid = torch.randn(2, 3, 9, 11), torch.rand(2, 7, 8, 2) * 3 - 1.5
    compiled = weft.compile(sampled, fallback="error")
    for ours, theirs in zip(gradients(compiled, x, grid), gradients(sampled, x, grid), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_of_an_affine_grid_for_any_size() -> None:
    def turned(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, F.affine_grid(theta, [*x.shape], False), align_corners=False)

    compiled = weft.compile(turned, fallback="error", dynamic=True)
    for shape in ((2, 3, 9, 8), (4, 2, 6, 13)):
        x, theta = torch.randn(shape), torch.eye(2, 3).repeat(shape[0], 1, 1) + 0.1
        torch.testing.assert_close(compiled(x, theta), turned(x, theta), rtol=1e-4, atol=1e-5)
