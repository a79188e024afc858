"""Scans along rows, whose elements registers cross in squares: what they store may be wider."""

from __future__ import annotations

import pytest
import torch

import weft
from tests.agree.checks import check_levels


@pytest.mark.parametrize("target", ["cpu:avx512", "cpu:avx2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
def test_running_maxima_of_rows(target: str, dtype: torch.dtype) -> None:
    """Positions are i64: a square has as many columns as a register has of these."""
    torch.manual_seed(0)
    x = torch.randint(-9, 9, (37, 70)).to(dtype)
    if dtype.is_floating_point:
        x[torch.rand(37, 70) < 0.02] = float("nan")
    f = weft.compile(lambda x: x.cummax(1), target=target)
    got, want = f(x), x.cummax(1)
    assert torch.equal(got[0].double().nan_to_num(1e9), want[0].double().nan_to_num(1e9))
    assert torch.equal(got[1], want[1])
    lanes = 8 if target == "cpu:avx512" else 4
    assert "# scan register\n" in f.ir("tile")
    assert f"free vector{lanes}" in f.ir("tile")


@pytest.mark.parametrize("shape", [(5, 70), (37, 5), (1, 9), (16, 16)])
def test_on_every_level(shape: tuple[int, int]) -> None:
    f, x = weft.compile(lambda x: x.cummin(1), target="cpu:avx2"), torch.randn(shape)
    f(x)
    check_levels(f.programs[0].artifact.levels(), [x])
