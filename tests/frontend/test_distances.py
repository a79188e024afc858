"""Distances between all rows: which pair comes where is found by a root, which may be one off."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import weft


@pytest.mark.parametrize("rows", [2, 3, 17, 64, 301, 1000])
def test_every_pair_in_order(rows: int) -> None:
    x = torch.randn(rows, 2, dtype=torch.float64)
    for p in (1.0, 2.0):
        f = lambda x, p=p: functional.pdist(x, p)  # noqa: E731
        torch.testing.assert_close(weft.compile(f, fallback="error")(x), f(x))
