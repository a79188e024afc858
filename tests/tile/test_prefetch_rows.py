"""Loads that prefetch: streams, blocks of columns, places in a row; not rows that a cache holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft

Function = Callable[..., Any]
X, INDEX = torch.randn(300, 1100), torch.randint(0, 300, (300, 1100))
FORMS: dict[str, tuple[Function, tuple[torch.Tensor, ...], bool]] = {
    "columns": (lambda x: x.cumsum(0), (X,), True),
    "inner axis": (lambda x: x.reshape(5, 60, 1100).mean(1), (X,), True),
    "looked up": (lambda x, i: x.gather(1, i), (X, INDEX), True),
    "scattered": (lambda x, i: torch.zeros(300, 1100).scatter_add(0, i, x), (X, INDEX), True),
    "short rows": (lambda x: x[:, :100].cumsum(0), (X,), True),
    "rows that follow": (lambda x: x.sum(1), (X[:50],), False),
    "more than a cache": (lambda x: x.sum(1), (torch.randn(300, 7000),), True),
    "places in all rows": (lambda x, i: x.gather(0, i), (X, INDEX), False),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_no_hardware_fetches_is_prefetched(name: str) -> None:
    function, inputs, prefetches = FORMS[name]
    found = weft.compile(function, schedule="*.prefetch = yes")
    torch.testing.assert_close(found(*inputs), function(*inputs), rtol=1e-5, atol=1e-4)
    assert (" ahead " in found.ir("tile")) is prefetches
