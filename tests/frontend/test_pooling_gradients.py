"""Gradients of max pooling, against eager: windows that overlap, leave gaps, hang over, tie."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft


def gradient(function: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    out = function(x)
    weights = torch.arange(1, out.numel() + 1, dtype=x.dtype).reshape(out.shape)
    return torch.autograd.grad(out, x, weights)[0]


def cases(count: int) -> list[tuple[int, dict[str, Any], tuple[int, ...]]]:
    """Random windows over 1 to 3 axes that eager takes."""
    draw, found = random.Random(0), list[tuple[int, dict[str, Any], tuple[int, ...]]]()
    while len(found) < count:
        rank = draw.choice((1, 2, 2, 2, 3))
        kernel = [draw.randint(1, 4) for _ in range(rank)]
        dilation = [draw.randint(1, 3) for _ in range(rank)]
        moves = {
            "kernel_size": kernel,
            "stride": [draw.randint(1, 4) for _ in range(rank)],
            "padding": [draw.randint(0, k // 2) for k in kernel],
            "dilation": dilation,
            "ceil_mode": draw.random() < 0.4,
        }
        sizes = [draw.randint(5, 13) for _ in range(rank)]
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        if all(r <= s for r, s in zip(reach, sizes, strict=True)):
            found.append((rank, moves, (2, 3, *sizes)))
    return found


@pytest.mark.parametrize("rank, moves, shape", cases(16), ids=str)
def test_a_window(rank: int, moves: dict[str, Any], shape: tuple[int, ...]) -> None:
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    x = torch.randint(0, 4, shape).double()  # many ties: the first place of a window wins

    def pooled(x: torch.Tensor) -> Any:
        return pool(x, **moves)

    torch.testing.assert_close(gradient(weft.compile(pooled), x), gradient(pooled, x))


@pytest.mark.parametrize("moves", [(3, 1, 1), (2, 2, 1), (3, 2, 1, 2), (4, 3, 2)])
def test_nothing_greater_than_padding(moves: tuple[int, ...]) -> None:
    """Of -inf the first place of the input wins, and never padding: no index is outside."""
    x = torch.full((1, 2, 7, 9), -torch.inf)
    x[0, 1, 3:, 4:] = 1.0

    def pooled(x: torch.Tensor) -> Any:
        return F.max_pool2d(x, *moves, return_indices=True)

    for found, expected in zip(weft.compile(pooled)(x), pooled(x), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    largest = lambda x: pooled(x)[0].exp()  # noqa: E731
    torch.testing.assert_close(gradient(weft.compile(largest), x), gradient(largest, x))


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
def test_places_that_are_no_numbers(value: float) -> None:
    x = torch.randn(1, 2, 9, 9)
    x[..., ::2, 1::3] = value

    def pooled(x: torch.Tensor) -> Any:
        return F.max_pool2d(x, 3, 2, 1)

    torch.testing.assert_close(gradient(weft.compile(pooled), x), gradient(pooled, x))


def test_any_size_is_one_program() -> None:
    def pooled(x: torch.Tensor) -> Any:
        return F.max_pool2d(x, 3, 2, 1)

    compiled = weft.compile(pooled, dynamic=True)
    for shape in ((2, 3, 12, 17), (3, 5, 9, 8), (4, 2, 31, 6)):
        x = torch.randn(shape)
        torch.testing.assert_close(gradient(compiled, x), gradient(pooled, x))
    assert len(compiled.programs) == 2  # forward and backward
