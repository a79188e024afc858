"""Scatters of any size: rows, columns and entries, in a table that fits where memory is short."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from tests.frontend.test_sizes import assert_equal

Make = Callable[[int], tuple[torch.Tensor, ...]]


def entries(rows: int, count: int, *columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, rows, (count,)), torch.randn(count, *columns)


SCATTERS: dict[str, tuple[Callable[..., Any], Make]] = {
    "rows": (
        lambda x, at, y: x.scatter_add(0, at, y) * 2,
        lambda n: (torch.randn(n), *entries(n, 7)),
    ),
    "rows_and_entries": (
        lambda x, at, y: x.scatter_add(0, at, y) * 2,
        lambda n: (torch.randn(n), *entries(n, 2 * n)),
    ),
    "entries": (
        lambda at, y: torch.zeros(64).scatter_add(0, at, y) * 2,
        lambda n: entries(64, n),
    ),
    "columns": (
        lambda x, at, y: x.index_add(0, at, y) * 2,
        lambda n: (torch.randn(n, n + 3), *entries(n, 7, n + 3)),
    ),
    "fixed_columns": (
        lambda x, at, y: x.index_add(0, at, y) * 2,
        lambda n: (torch.randn(n, 48), *entries(n, 2 * n, 48)),
    ),
}


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
@pytest.mark.parametrize("name", SCATTERS)
def test_one_program_for_all_sizes(name: str, target: str) -> None:
    if target != "cpu" and shutil.which("g++") is None:
        pytest.skip("the simulator needs g++")
    fn, make = SCATTERS[name]
    f = weft.compile(fn, dynamic=True, target=target, simulate=target != "cpu", fallback="error")
    for n in (5, 8, 41, 300):
        args = make(n)
        assert_equal(f(*args), fn(*args))
    assert len(f.programs) == 1
