"""What is known of the values of integers, and gathers by such, which need no check."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import weft
from weft.core.node import make
from weft.core.types import TensorType, f32, i32, i64
from weft.scalar import ops as s
from weft.tensor import build as b
from weft.tensor.build import Tensor
from weft.tensor.limits import limits
from weft.tensor.ops import Input

X = Tensor(make(Input("x", TensorType(i64, (4, 5)))))
SHORT = Tensor(make(Input("y", TensorType(i32, (4, 5)))))
REAL = Tensor(make(Input("z", TensorType(f32, (4, 5)))))
ANY = (-math.inf, math.inf)
WORD = (-(1 << 31), (1 << 31) - 1)
CLAMPED = s.minimum(s.maximum(X, 2), 63)
CASES = [
    (X, ANY),
    (SHORT, WORD),
    (b.cast(REAL, i32), WORD),
    (CLAMPED, (2, 63)),
    (b.cast(b.cast(CLAMPED, i32), i64) * 4 - 1, (7, 251)),
    (s.where(X > 3, CLAMPED, -1), (-1, 63)),
    (b.pad(CLAMPED, [(0, 0), (1, 1)], -7), (-7, 63)),
    (b.transpose(CLAMPED), (2, 63)),
    (b.iota((4, 5), 1) * 2 + CLAMPED, (2, 71)),
    (b.cast(s.minimum(s.maximum(SHORT, 0), 1 << 30), i32) * 4, WORD),  # it may wrap
    (b.cast(b.cast(X, i32), i64), WORD),  # so does this cast
    (b.cast(s.maximum(X, 5), i32), WORD),
    (b.cast(b.cast(s.minimum(s.maximum(X, 0), 1 << 40), i32), i64), WORD),
    (b.total(CLAMPED, (1,)), ANY),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_limits(number: int) -> None:
    tensor, want = CASES[number]
    assert limits(tensor.node, {}) == want


def rows(table: torch.Tensor, at: torch.Tensor, least: int, most: int) -> torch.Tensor:
    """Rows that a clamped index names, which is an output too, so that it is stored."""
    return table[at.clamp(least, most)] * 2


@pytest.mark.parametrize("least,most,checked", [(0, 4, False), (0, 5, True), (-1, 4, True)])
def test_a_gather_by_clamped_places_has_no_check(least: int, most: int, checked: bool) -> None:
    table, at = torch.randn(5, 6), torch.randint(0, 5, (40,))
    f = weft.compile(lambda table, at: rows(table, at, least, most))
    assert torch.equal(f(table, at), rows(table, at, least, most))
    assert ("checked_index" in f.ir("loop")) == checked
    if most == 5:
        with pytest.raises(IndexError):
            f(table, at + 5)
    else:
        assert torch.equal(f(table, at + 5), rows(table, at + 5, least, most))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("shape", [(2, 3, 7, 9), (2, 3, 1, 9), (1, 2, 1, 1)])
def test_an_image_is_read_without_checks(mode: str, shape: tuple[int, ...]) -> None:
    """By one stored place for both axes; also far outside, and at infinity."""
    torch.manual_seed(0)
    x, grid = torch.randn(shape, dtype=torch.float64), torch.randn(shape[0], 5, 6, 2).double() * 2
    grid[0, 0, 0], grid[0, 1, 1] = math.inf, -1e30

    def f(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid, mode, "zeros", align_corners=False)

    compiled = weft.compile(f, fallback="error")
    torch.testing.assert_close(compiled(x, grid), f(x, grid), equal_nan=True)
    assert "checked_index" not in compiled.ir("loop")
