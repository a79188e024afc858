"""Gathers of places in 32 bits: lanes as wide as what is read, and no index of 64 bits."""

from __future__ import annotations

import re

import pytest
import torch

import weft

TABLE = torch.arange(5000, dtype=torch.float32)


def gathered(dtype: torch.dtype, rows: int = 3) -> tuple[str, torch.Tensor]:
    """The C of a gather at computed places, from one of some rows; and what it gives."""
    table = torch.stack([TABLE + i for i in range(rows)]).to(dtype)
    at = torch.randint(-9000, 9000, (rows, 1024), dtype=torch.int32)

    def fn(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return x.gather(1, at.clamp(0, 4999).long())

    f = weft.compile(fn, fallback="error")
    assert torch.equal(f(table, at), fn(table, at))
    return f.ir("source"), f(table, at)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_places_stay_narrow(dtype: torch.dtype) -> None:
    source, _ = gathered(dtype)
    assert "gather_near_" in source
    assert not re.search(r"const i64x\d+ v", source)


def test_wide_elements() -> None:
    source, _ = gathered(torch.float64)
    assert "gather_near_f64" in source


def test_an_index_that_is_read_elsewhere_too() -> None:
    def fn(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        place = at.clamp(0, 4999).long()
        return x[place], place

    at = torch.randint(-9000, 9000, (1003,), dtype=torch.int32)
    f = weft.compile(fn, fallback="error")
    for got, wanted in zip(f(TABLE, at), fn(TABLE, at), strict=True):
        assert torch.equal(got, wanted)


def test_few_channels_of_a_grid_are_one_kernel() -> None:
    x, grid = torch.randn(2, 1, 40, 40), torch.rand(2, 40, 40, 2) * 2 - 1

    def fn(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(x, grid, align_corners=False)

    f = weft.compile(fn, fallback="error")
    torch.testing.assert_close(f(x, grid), fn(x, grid), rtol=1e-4, atol=1e-5)
    assert len(f.report.kernels) == 1
