"""Remainders of floats are exact: by quotients in f64 where these are, by libm where not.

torch's own are not where a quotient is large.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import weft

SPECIAL = (0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 0.1, -2.5, 1e30, 3e38, 2.0**24)


def values() -> tuple[torch.Tensor, torch.Tensor]:
    """Quotients of all sizes, of close ones and of special values."""
    some = torch.Generator().manual_seed(0)
    far = torch.empty(2, 5000, dtype=torch.float64).uniform_(-10, 10, generator=some)
    spread = torch.randn(2, 5000, generator=some, dtype=torch.float64) * 10**far
    special, tenths = torch.tensor(SPECIAL), torch.arange(1, 3001) * 0.1
    return (
        torch.cat((spread[0].float(), special.repeat_interleave(len(special)), tenths)),
        torch.cat((spread[1].float(), special.repeat(len(special)), torch.full((3000,), 0.1))),
    )


def same(x: torch.Tensor, y: torch.Tensor) -> bool:
    equal = (x == y) & (x.signbit() == y.signbit())
    return bool((equal | (x.isnan() & y.isnan())).all())


def remainder(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """By libm."""
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.fmod(x.double().numpy(), y.double().numpy())).float()


def floored(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rest = remainder(x, y)
    return torch.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:plain"])
@pytest.mark.parametrize("function", [torch.fmod, torch.remainder])
def test_exact(function: Callable[..., torch.Tensor], target: str) -> None:
    exact = remainder if function is torch.fmod else floored
    f, (x, y) = weft.compile(function, target=target), values()
    assert same(f(x, y), exact(x, y))
    x = torch.randn(4099)
    for by in SPECIAL:  # no other quotient that would send all lanes to libm
        y = torch.full_like(x, by)
        assert same(f(x, y), exact(x, y)), by
