"""What windows hold, summed where they overlap: F.fold and the gradient of average pooling."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import weft

# size, kernel, stride, padding, dilation
WINDOWS = [
    ((9, 8), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((8, 8), (4, 4), (4, 4), (0, 0), (1, 1)),
    ((10, 9), (4, 3), (2, 2), (1, 1), (1, 1)),
    ((11, 9), (3, 2), (2, 3), (1, 0), (1, 2)),
    ((12, 7), (2, 3), (3, 1), (0, 2), (2, 2)),
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_fold_is_generated(window: tuple[tuple[int, int], ...]) -> None:
    size, kernel, stride, pad, dilation = window
    moves = {"kernel_size": kernel, "stride": stride, "padding": pad, "dilation": dilation}
    torch.manual_seed(0)
    blocks = F.unfold(torch.randn(2, 3, *size), **moves)
    x = torch.randn_like(blocks)
    program = weft.compile(lambda x: F.fold(x, size, **moves), fallback="error")
    torch.testing.assert_close(program(x), F.fold(x, size, **moves))
    torch.testing.assert_close(program(x[0]), F.fold(x[0], size, **moves))


def test_the_gradient_of_unfold_is_a_fold() -> None:
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    weight = torch.randn(2, 27, 36)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (F.unfold(x, 3) * weight).sum()

    (found,) = torch.autograd.grad(weft.compile(loss, fallback="error")(x), x)
    (eager,) = torch.autograd.grad(loss(x), x)
    torch.testing.assert_close(found, eager)
