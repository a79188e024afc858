"""The judge accepts what rounding explains, and nothing else."""

from __future__ import annotations

import torch

from tests.conformance.judge import compare
from tests.conformance.rounding import spread

EXACT = torch.linspace(1, 2, 40, dtype=torch.float64)
EPS = torch.finfo(torch.float32).eps


def off(by: float, at: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The exact values, rounded, but for one that is off by a share of itself."""
    t = EXACT.clone()
    t[at] *= 1 + by
    return t.to(dtype)


def test_a_few_ulp() -> None:
    assert not compare(off(3 * EPS), off(0), EXACT)
    assert "1 of 40 elements wrong, as 1.07" in compare(off(20 * EPS), off(0), EXACT)


def test_twice_eagers_error() -> None:
    assert not compare(off(20 * EPS), off(12 * EPS), EXACT)
    assert compare(off(60 * EPS), off(12 * EPS), EXACT)


def test_numbers_and_their_absence() -> None:
    nan = off(float("nan"))
    assert compare(nan, off(0), EXACT)
    assert not compare(off(0), nan, EXACT)  # float16 overflows within eager's formula
    assert compare(off(20 * EPS), nan, EXACT)
    assert not compare(nan, nan, EXACT)
    assert compare(off(0)[:-1], off(0), EXACT) and compare(off(0).double(), off(0), EXACT)


def test_float64_is_compared_in_float64() -> None:
    double = torch.float64
    assert not compare(off(1e-15, dtype=double), EXACT, EXACT)
    assert compare(off(1e-9, dtype=double), EXACT, EXACT)


def test_float64_that_eager_rounds_on_the_way() -> None:
    eager = EXACT.float().double()
    assert not compare(off(EPS, dtype=torch.float64), eager, EXACT)
    assert compare(off(40 * EPS, dtype=torch.float64), eager, EXACT)


def test_rounding_of_a_sum_that_cancels() -> None:
    x = torch.tensor([1e4, 1 / 3, -1e4], dtype=torch.float64)

    def program() -> torch.Tensor:
        return (x / 3).sum(0, keepdim=True)

    moved, rounded = spread(program, program()), program().float()
    assert compare(rounded + 4e-4, rounded, program())
    assert not compare(rounded + 4e-4, rounded, program(), moved)
    assert compare(rounded + 4e-2, rounded, program(), moved)


def test_rounding_inside_a_sum() -> None:
    """A matrix product rounds at each of its terms, which are larger than what they add up to."""
    x = torch.tensor([[1e4, 1.0, -1e4]], dtype=torch.float64)
    y = torch.tensor([[1.0], [1.0], [1.0]], dtype=torch.float64)
    moved = spread(lambda: x @ y, x @ y)
    assert compare((x @ y).float() + 1e-3, (x @ y).float(), x @ y)
    assert not compare((x @ y).float() + 1e-3, (x @ y).float(), x @ y, moved)
    assert compare((x @ y).float() + 1e-1, (x @ y).float(), x @ y, moved)
