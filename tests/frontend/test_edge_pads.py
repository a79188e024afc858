"""Padding by reflection and by the edge itself, with gradients, against eager."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional as F

import weft

SHAPES = [(3, 7), (2, 3, 9), (3, 6, 7), (2, 3, 5, 8), (2, 4, 5, 6), (1, 2, 4, 5, 6)]
AXES = [1, 1, 2, 2, 3, 3]


def amounts(mode: str, sizes: tuple[int, ...], seed: int) -> list[int]:
    """From the last axis backwards; the edge may be repeated any number of times, or cut off."""
    draw = random.Random(seed)
    low, more = (0, 0) if mode == "reflect" else (-1, 4)
    return [draw.randint(low, n - 1 + more) for n in reversed(sizes) for _ in range(2)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape, axes", [*zip(SHAPES, AXES, strict=True)])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_as_eager(mode: str, shape: tuple[int, ...], axes: int, seed: int) -> None:
    pad = amounts(mode, shape[-axes:], seed)

    def padded(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, pad, mode)

    compiled = weft.compile(padded)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), padded(x), rtol=0, atol=0)
    assert not weft.report(compiled).externs
    weights = torch.randn_like(padded(x))
    found, expected = (torch.autograd.grad(f(x), x, weights)[0] for f in (compiled, padded))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_any_size(mode: str) -> None:
    def padded(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (1, 2, 3, 4), mode)

    compiled = weft.compile(padded, dynamic=True)
    for shape in ((2, 3, 12, 17), (3, 5, 9, 8), (4, 2, 31, 6)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), padded(x), rtol=0, atol=0)
    assert len(compiled.programs) == 1
