"""as_strided_scatter: a slice of a tensor's memory, or places that are in no slice of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft

Steps = tuple[int, ...]
# of x, of the source, its strides, where it begins, and whether it is a slice of x
CASES: list[tuple[Steps, Steps, Steps, int, bool]] = [
    ((6, 7), (3, 4), (7, 1), 9, True),
    ((6, 7), (3, 2), (14, 3), 1, True),  # every other row, every third column
    ((6, 7), (2, 3), (1, 14), 0, True),  # transposed
    ((6, 7), (4,), (8,), 7, False),  # a diagonal
    ((6, 7), (3, 4), (7, 1), 4, False),  # over the ends of rows
    ((6, 7), (3, 3), (1, 1), 0, False),  # places that several elements go to: the last one stays
    ((6, 7), (1, 4), (3, 1), 35, True),
    ((2, 3, 4), (2, 2), (12, 2), 5, True),  # in one row of each
    ((2, 3, 4), (2, 5), (12, 2), 0, False),  # over two axes
    ((5, 1), (3,), (2,), 0, True),
    ((6, 7), (0, 4), (7, 1), 0, False),
    ((6, 7), (), (), 41, True),
]


@pytest.mark.parametrize(("shape", "size", "stride", "offset", "sliced"), CASES)
def test_as_eager(shape: Steps, size: Steps, stride: Steps, offset: int, sliced: bool) -> None:
    """A slice is read where it goes, without a table; what is not, by its places as before."""
    x = torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    y = -torch.arange(1, 1 + torch.Size(size).numel(), dtype=torch.float64).reshape(size)

    def f(x: Any, y: Any) -> torch.Tensor:
        return torch.as_strided_scatter(x, y, size, stride, offset)

    compiled = weft.compile(f, fallback="error")
    assert torch.equal(compiled(x, y), f(x, y))
    assert ("scatter{" in compiled.ir("tensor")) == (not sliced and 0 not in size)


@pytest.mark.parametrize("offset", [42, 100])
def test_beyond_its_memory(offset: int) -> None:
    x, y = torch.zeros(6, 7), torch.ones(1)
    with pytest.raises((RuntimeError, weft.WeftError)):
        weft.compile(lambda x, y: torch.as_strided_scatter(x, y, (1,), (1,), offset))(x, y)
