"""Lanes that go down in memory: one load and a shuffle, in every dtype, with masked ends."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import weft
from weft.text import parse_program, print_program

DTYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int16, torch.int8, torch.bool),
)


def reversals(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Whole rows, both axes, the start of a row, every second element, padded."""
    y = x.flip(1)
    return y, x.flip(0, 1), y[:, :50].contiguous(), y[:, ::2].contiguous(), F.pad(y, (2, 3))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_reversed(dtype: torch.dtype) -> None:
    x = (torch.randn(3, 117) * 50).to(dtype)
    found = weft.compile(reversals, fallback="error")(x)
    assert all(map(torch.equal, found, reversals(x)))


def test_a_reversed_row_is_loaded_in_lanes() -> None:
    program = weft.compile(lambda x: x.flip(1), target="cpu:avx512")
    program.prepare(torch.randn(8, 500))
    text = program.ir("kernel")
    assert "load{16, stride -1} x[a0 * 500 + b0 * -1 + 499]" in text
    assert print_program(parse_program(text)) == text
