"""Views of any size, and what is written through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import weft
from tests.frontend.test_sizes import assert_equal

View = Callable[[Any], Any]
VIEWS: dict[str, View] = {
    "view": lambda y: y.view(-1),
    "flatten": lambda y: y.flatten(),
    "unsqueeze": lambda y: y[None],
    "squeeze": lambda y: y[:1].squeeze(0),
    "permute": lambda y: y.permute(1, 0),
    "select": lambda y: y[-1],
    "slice": lambda y: y[1:-1, ::2],
    "half": lambda y: y[: y.shape[0] // 2],
    "narrow": lambda y: y.narrow(0, 1, y.shape[0] - 1),
    "strided": lambda y: y.as_strided((y.shape[0],), (y.shape[1],)),
    "chunk": lambda y: y.chunk(2)[1],
    "chunk_of_columns": lambda y: y.chunk(3, dim=-1)[1],
    "split": lambda y: y.split(y.shape[0] // 2)[0],
    "split_with_sizes": lambda y: y.split([y.shape[0] // 2, y.shape[0] - y.shape[0] // 2])[1],
    "unbind": lambda y: y.unflatten(0, (2, -1)).unbind(0)[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_one_program_reads_and_writes_a_view(name: str) -> None:
    view = VIEWS[name]

    def fn(x: Any) -> Any:
        y = x * 2
        before = view(y) + 1
        view(y).mul_(3)
        return y, before

    f = weft.compile(fn, dynamic=True)
    for rows, columns in ((6, 7), (10, 8), (12, 33), (64, 17)):
        x = torch.randn(rows, columns)
        assert_equal(f(x), fn(x))
    assert len(f.programs) == 1 and not f.reasons


def test_pieces_of_one_row_are_another_program() -> None:
    f = weft.compile(lambda x: x.chunk(2)[1] + 1, dynamic=True)
    for rows in (6, 9, 3, 2, 64):
        x = torch.randn(rows, 5)
        assert_equal(f(x), x.chunk(2)[1] + 1)
    assert len(f.programs) <= 3 and not f.reasons


def test_area_interpolation_at_any_size() -> None:
    f = weft.compile(lambda x: F.interpolate(x, scale_factor=0.5, mode="area"), dynamic=True)
    for rows, columns in ((10, 9), (12, 11), (18, 17), (25, 24)):
        x = torch.randn(2, 3, rows, columns)
        assert_equal(f(x), F.interpolate(x, scale_factor=0.5, mode="area"))
    assert len(f.programs) <= 2 and not f.reasons
