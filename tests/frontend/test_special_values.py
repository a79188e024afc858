"""Distances, histograms, segments and bits of floats beside eager, on values that samples lack."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from weft.core.errors import WeftError

LARGE, SMALL = 3.4028235e38, 1.17549435e-38
ODD = torch.tensor(
    [
        *(0.0, -0.0, 1.0, -3.0, 0.5, math.inf, -math.inf, math.nan, 1e-45, -1e-40),
        *(SMALL, LARGE, -LARGE, 2.0**-100, 2.0**100, 2.0**127),
    ]
)


def same_bits(found: Any, wanted: Any) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype is b.dtype
        assert bool((((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_bits_of_floats(dtype: torch.dtype) -> None:
    x = ODD.to(dtype)
    same_bits(weft.compile(torch.frexp, fallback="error")(x), torch.frexp(x))
    if dtype is not torch.float16:
        a, b = (t.contiguous() for t in torch.broadcast_tensors(x[:, None], x))
        following = weft.compile(torch.nextafter, fallback="error")
        same_bits([following(a, b)], [torch.nextafter(a, b)])


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("dynamic", [False, True])
def test_distances_of_odd_rows(p: float, dynamic: bool) -> None:
    x, y = torch.randn(2, 1, 5, 4), torch.randn(3, 6, 4)
    x[0, 0, 1, 1], x[1, 0, 2, 2], y[1, 0] = math.nan, math.inf, x[0, 0, 0]
    compiled = weft.compile(lambda a, b: torch.cdist(a, b, p), fallback="error", dynamic=dynamic)
    torch.testing.assert_close(compiled(x, y), torch.cdist(x, y, p), equal_nan=True)


X = torch.tensor([0.0, 1, 1, 2, 3, 5, math.nan, 9, -1])
S = torch.tensor([[1.0, 2], [3, 4], [math.nan, 5], [6, 7], [0, 8], [9, -1]])
TABLE = torch.tensor([[1.0, 2], [math.nan, 3], [4, -math.inf], [math.nan, math.nan], [5, 6]])
ROWS = torch.tensor([1, 0, 2, 3, 4, 1, 2]), torch.tensor([0, 2, 2, 5, 7])


def bags(**how: Any) -> Any:
    return lambda: F.embedding_bag(ROWS[0], TABLE, ROWS[1][:4], mode="max", **how)


CASES: dict[str, Callable[[], Any]] = {
    "histogram": lambda: torch.histogram(X, 4, range=(0.0, 4.0)),
    "histogram of one value": lambda: torch.histogram(X[1:3], 3),
    "histogram of weights": lambda: torch.histogram(
        X, X[[0, 2, 3, 5]], weight=X.abs().nan_to_num(), density=True
    ),
    "histogram of pairs": lambda: torch.histogramdd(X[:6].reshape(3, 2), [2, 3]).hist,
    "histc of a range of one number": lambda: torch.histc(X[:6], 5, 1, 1),
    **{
        f"segments, {fold}": lambda fold=fold: torch.segment_reduce(
            S, fold, lengths=torch.tensor([2, 0, 4]), initial=2.0
        )
        for fold in ("sum", "mean", "max", "min", "prod")
    },
    "runs": lambda: torch.repeat_interleave(torch.tensor([2, 0, 3, 0]), output_size=5),
    "places that are not 0": lambda: torch.nonzero_static(S > 4, size=4, fill_value=9),
    "bags of maxima": bags(),
    "bags of maxima, padded": bags(padding_idx=1),
    "put from the end": lambda: X.put(torch.tensor([0, -1, 3, 3]), S[:2].reshape(4)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str) -> None:
    found = weft.compile(CASES[name], fallback="error")()
    torch.testing.assert_close(found, CASES[name](), equal_nan=True)


REFUSED: dict[str, Callable[[], Any]] = {
    "a range that is NaN": lambda: torch.histogram(X, 3),
    "lengths of other rows": lambda: torch.segment_reduce(S, "sum", lengths=torch.tensor([2, 2])),
    "runs of another length": lambda: torch.repeat_interleave(torch.tensor([2, 3]), output_size=4),
    "a place outside": lambda: X.put(torch.tensor([9]), X[:1]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses(name: str) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        REFUSED[name]()
    with pytest.raises((WeftError, IndexError)):
        weft.compile(REFUSED[name], fallback="error")()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_polygamma_at_poles_and_at_infinity(n: int) -> None:
    """Infinite at poles, where torch's first one is large; the first one is 0 at infinity."""
    poles = torch.tensor([-2.0, -1.0, 0.0, -0.0], dtype=torch.float64)
    f = weft.compile(lambda x: torch.special.polygamma(n, x))
    assert torch.equal(f(poles), torch.full_like(poles, math.inf if n % 2 else -math.inf))
    ends = torch.tensor([math.inf, -math.inf, math.nan, 0.5], dtype=torch.float64)
    wanted = torch.special.polygamma(n, ends)
    torch.testing.assert_close(f(ends), wanted, equal_nan=True, rtol=1e-9, atol=0)
