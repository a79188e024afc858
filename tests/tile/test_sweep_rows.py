"""Columns that are folded row by row: each fold, many rows, odd sizes, and where strips stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from weft.targets.cpu import host

Function = Callable[..., Any]
FORMS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "sum": (lambda x: x.sum(0), (999, 1001)),
    "rows in blocks": (lambda x: x.sum(0), (2500, 301)),
    "inner axis": (lambda x: x.mean(1), (3, 700, 403)),
    "greatest": (lambda x: x.amax(0), (999, 1001)),
    "two folds": (lambda x: (x.sum(0), (x * x).sum(0)), (999, 1001)),
    "any": (lambda x: (x > 2).any(0), (999, 1001)),
    "stored twice": (lambda x: (x.sum(0).relu(), x.sum(0) - 1), (999, 1001)),
    "f64": (lambda x: x.double().sum(0), (999, 1001)),
}


@pytest.mark.parametrize("name", FORMS)
def test_columns_swept_by_rows_are_as_eager(name: str) -> None:
    function, shape = FORMS[name]
    x = torch.randn(shape)
    swept = weft.compile(function, schedule="*.sweep = yes")
    torch.testing.assert_close(swept(x), function(x), rtol=1e-5, atol=1e-4)
    assert "local row0" in swept.ir("tile")


def test_a_vector_times_a_matrix_reads_it_in_order() -> None:
    x, w = torch.randn(1, 1037), torch.randn(1037, 515)
    product = weft.compile(torch.matmul, schedule="*.sweep = yes")
    torch.testing.assert_close(product(x, w), x @ w, rtol=1e-5, atol=1e-4)


def test_a_nan_and_an_infinity_stay() -> None:
    x = torch.randn(999, 1001)
    x[5, 7], x[500, 9], x[998, 1000] = torch.nan, torch.inf, -torch.inf
    for function in (lambda x: x.sum(0), lambda x: x.amax(0)):
        swept = weft.compile(function, schedule="*.sweep = yes")
        torch.testing.assert_close(swept(x), function(x), rtol=1e-5, atol=1e-4, equal_nan=True)


def test_many_rows_are_summed_in_blocks() -> None:
    """One running sum of 100,000 numbers in f32 is off by some 1e-4."""
    x = torch.rand(100_000, 300)
    got = weft.compile(lambda x: x.sum(0), schedule="*.sweep = yes")(x)
    torch.testing.assert_close(got.double(), x.double().sum(0), rtol=3e-6, atol=0)


@pytest.mark.parametrize("shape", [(64, 300), (host().l2 // 256, 64)])
def test_strips_stay_where_a_cache_holds_all_or_rows_are_short(shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    assert x.nbytes <= host().l2
    columns = weft.compile(lambda x: x.sum(0))
    columns(x)
    assert "sweep = yes" not in columns.ir("schedule")


def test_any_number_of_rows() -> None:
    columns = weft.compile(lambda x: x.sum(0), dynamic=True, schedule="*.sweep = yes")
    for rows, n in ((999, 1001), (3000, 700), (5, 1001), (2, 3)):
        x = torch.randn(rows, n)
        torch.testing.assert_close(columns(x), x.sum(0), rtol=1e-5, atol=1e-4)
